"""`tan-cli plan`: what it says on one screen, and the picture that `--plot` draws."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from service.cli import plan_plot, plan_view
from service.cli.template import STUDY
from tan_core.mechanism import Accountant
from tan_core.planner import MeasuredRate, plan_mechanism, plan_study
from tan_core.planner import privacy as privacy_section
from tan_core.spec import StudySpec, parse_yaml
from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import PLAN, RecordedServer

OFFLINE = (
    "plan", "--num-examples", "50000", "--batch-size", "4096", "--noise-multiplier", "3",
    "--steps", "2500", "--delta", "1e-5",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _two_voices(monkeypatch: pytest.MonkeyPatch) -> None:
    """PRV takes a process per answer, and nothing here asks for it."""
    monkeypatch.setattr(privacy_section, "PRV_MAX_EPSILON", 0.0)


def made(**changes: Any) -> dict[str, Any]:
    arguments = {
        "num_examples": 50_000,
        "expected_batch_size": 4096,
        "noise_multiplier": 3.0,
        "steps": 2500,
        "delta": 1e-5,
        **changes,
    }
    return plan_mechanism(**arguments).model_dump(mode="json")


def screen(document: dict[str, Any], *, width: int = 80) -> list[str]:
    console = Console(width=width, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(plan_view.plan(document))
    return captured.get().splitlines()


def test_without_a_search_no_simulation_and_no_saving_is_told() -> None:
    study = StudySpec.model_validate({**parse_yaml(STUDY), "search": {"accounting": "no_search"}})
    told = "\n".join(screen(plan_study(study, num_examples=1295).model_dump(mode="json")))
    assert "Private run" in told
    assert "hyper-parameters given with the study" in told
    assert not [word for word in ("Simulations", "saving", "finals", "full batch") if word in told]


class TestScreen:
    @pytest.mark.slow
    def test_a_large_plan_fits_eighty_columns_with_every_number_whole(self) -> None:
        rate = MeasuredRate(examples_per_second=3000, source="private runs of wrn-16-4 on imagenet")
        document = made(
            num_examples=1_281_167, expected_batch_size=32_768, steps=72_000, delta=8e-7, rate=rate
        )

        lines = screen(document)

        words = {word.rstrip(",") for line in lines for word in line.split()}
        assert max(map(len, lines)) <= 80
        assert len(lines) <= 48
        assert {f"{one['private_run_examples']:,}" for one in document["step_candidates"]} <= words
        assert {f"{one['steps']:,}" for one in document["step_candidates"]} <= words
        assert {f"{rung['expected_batch_size']:,}" for rung in document["simulations"]} <= words

    def test_the_precision_of_the_passes_stands_beside_the_private_run(self) -> None:
        document = made()
        document["reference"]["precision"] = "bfloat16"

        assert any("precision" in line and "bfloat16" in line for line in screen(document))
        assert not any("precision" in line for line in screen(made()))

    def test_no_simulation_is_shown_without_saying_that_it_is_not_private(self) -> None:
        document = made(rungs=[64, 256, 1024])

        lines = screen(document)

        shown = [line for line in lines if line.rstrip().endswith("not private")]
        assert len(shown) == len(document["simulations"]) == 3

    def test_each_rung_says_how_many_trials_are_expected_there(self) -> None:
        document = made(rungs=[64, 256, 1024])

        lines = screen(document)

        shown = [line.split()[:4] for line in lines if line.rstrip().endswith("not private")]
        assert [rung[:3] for rung in shown] == [
            ["64", "0.046875", "64"],
            ["256", "0.1875", "16"],
            ["1,024", "0.75", "4"],
        ]
        expected = [rung["trials"] for rung in document["simulations"]]
        assert [float(rung[3]) for rung in shown] == expected == sorted(expected, reverse=True)
        assert expected[0] > expected[1]

    def test_the_finals_are_priced_beside_the_search_and_timed_with_it(self) -> None:
        document = made()
        document["cost"] |= {"finals_examples": 5_120_000, "search_seconds": 60.0}

        lines = "\n".join(screen(document))

        assert "15,360,000 expected" in lines
        assert "at most 5,120,000; search and finals about 1m00s" in lines

    def test_the_plan_is_marked_among_the_steps_to_try(self) -> None:
        (line,) = [line for line in screen(made()) if "this plan" in line]

        assert line.split()[:2] == ["2,500", "3"]

    def test_a_plan_of_an_older_server_is_shown_without_what_it_lacks(self) -> None:
        lines = "\n".join(screen(PLAN))

        assert "2.941" in lines
        assert "finals" not in lines
        assert "Steps to try" not in lines

    def test_memory_is_shown_in_a_unit_that_can_be_read(self) -> None:
        document = made()
        document["cost"]["memory_bytes"] = 2_340_000_000

        assert any("about 2.3 GB per worker" in line for line in screen(document))

    def test_it_says_whether_features_are_computed_once(self) -> None:
        begun = {"path": "a.pt", "data": "public", "train": "classifier"}
        spec = StudySpec.model_validate(
            {**parse_yaml(STUDY), "model": {"name": "mlp", "pretrained": begun}}
        )
        document = plan_study(spec, num_examples=1295).model_dump(mode="json")

        lines = " ".join(" ".join(screen(document)).split())

        assert f"features {document['features_note']}" in lines
        assert "features" not in " ".join(screen(made()))

    def test_what_is_reserved_is_told_apart_from_what_is_promised(self) -> None:
        document = made(steps=40)
        document["search_privacy"] |= {"mode": "public_proxy", "epsilon": 1.0}

        lines = screen(document)

        words = " ".join("\n".join(lines).split())
        assert (
            "reserved in the ledger are 42 steps: the 40 planned, whose ε is promised, and 2 to spare for what "
            "a crash has to repeat; what is not used is given back"
        ) in words
        assert "Privacy of search and run, spare steps included" in lines
        assert max(map(len, lines)) <= 80

    def test_nothing_is_reserved_of_public_data(self) -> None:
        document = made()
        document["reservation"]["charged"] = False

        words = " ".join("\n".join(screen(document)).split())

        assert "nothing is reserved or charged: the data are public" in words
        assert "reserved ε" not in words

    def test_the_search_is_priced_beside_the_words_about_it(self) -> None:
        document = made()
        document["search_privacy"] = {
            "mode": "declared_unaccounted",
            "epsilon": None,
            "epsilon_if_accounted": 2843.2001,
            "simulations": 24,
            "note": "search on private data NOT accounted",
        }

        lines = "\n".join(screen(document))

        assert "2843.201" in lines
        assert "search on private data NOT accounted" in lines


class TestRate:
    def test_a_rate_turns_examples_into_time(self, cli: Cli) -> None:
        done = cli(*OFFLINE, "--examples-per-second", "1024")

        assert "10,240,000, about 2h46m" in done.out
        assert "--examples-per-second" in done.out

    @pytest.mark.parametrize("rate", ["0", "-3"])
    def test_a_rate_that_is_none_is_refused_by_name(self, cli: Cli, rate: str) -> None:
        done = cli(*OFFLINE, "--examples-per-second", rate)

        assert done.code == 2
        assert "--examples-per-second" in done.err

    def test_a_server_measures_its_own(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        done = cli("plan", study_yaml, "--examples-per-second", "10")

        assert done.code == 2
        assert server.requests == []


class TestPlotFile:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "magic"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml"), ("P.PDF", b"%PDF")]
    )
    def test_the_suffix_says_which_picture_is_written(
        self, cli: Cli, tmp_path: Path, name: str, magic: bytes
    ) -> None:
        path = tmp_path / name

        done = cli(*OFFLINE, "--plot", str(path))

        assert done.code == 0, done.err
        assert path.read_bytes().startswith(magic)
        assert f"wrote {path}" in done.out

    @pytest.mark.slow
    def test_a_study_is_drawn_from_what_the_server_answers(
        self, cli: Cli, server: RecordedServer, study_yaml: str, tmp_path: Path
    ) -> None:
        done = cli("plan", study_yaml, "--plot", str(tmp_path / "p.png"), "--json")

        assert json.loads(done.out)["reference"].items() >= PLAN["reference"].items()
        assert (tmp_path / "p.png").exists()

    @pytest.mark.parametrize("name", ["p.jpg", "p", "p.png.gz"])
    def test_another_suffix_is_refused_before_anything_is_asked(
        self, cli: Cli, server: RecordedServer, study_yaml: str, tmp_path: Path, name: str
    ) -> None:
        done = cli("plan", study_yaml, "--plot", str(tmp_path / name))

        assert done.code == 2
        assert ".png, .svg, .pdf" in done.err
        assert server.requests == []

    @pytest.mark.slow
    def test_a_path_that_cannot_be_written_is_named(self, cli: Cli, tmp_path: Path) -> None:
        path = tmp_path / "away" / "p.png"

        done = cli(*OFFLINE, "--plot", str(path))

        assert done.code == 2
        assert f"cannot write {path}" in done.err
        assert done.out == ""

    def test_without_matplotlib_it_says_what_to_install(
        self, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)

        done = cli(*OFFLINE, "--plot", str(tmp_path / "p.png"))

        assert done.code == 2
        assert "pip install 'tan-search[plot]'" in done.err


class TestPicture:
    @staticmethod
    def drawn(document: dict[str, Any]) -> Any:
        figure = Figure()
        plan_plot.draw(figure, document)
        return figure.axes[0]

    def test_the_words_about_the_search_stand_below_the_picture(self) -> None:
        document = made()
        document["search_privacy"]["mode"] = "declared_unaccounted"
        document["search_privacy"]["note"] = "search on private data NOT accounted"
        figure = Figure()

        plan_plot.draw(figure, document)

        assert figure.get_supxlabel().endswith("search on private data NOT accounted")

    @staticmethod
    def labelled(axes: Any, words: str) -> Any:
        (found,) = [
            handle
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
            if words in label
        ]
        return found

    def test_the_plan_lies_on_the_exact_curve_and_off_the_estimate(self) -> None:
        document = made()
        axes = self.drawn(document)

        curve = dict(self.labelled(axes, "by PLD, an upper bound").get_xydata())
        plan = self.labelled(axes, "this plan").get_xydata()[0]

        assert plan[0] == 3.0
        assert curve[3.0] <= plan[1] <= curve[3.0] + 1e-4
        estimate = self.labelled(axes, "estimate, not a guarantee").get_ydata()[0]
        assert estimate == document["privacy"]["epsilon_tan"] > plan[1]

    def test_of_a_search_that_is_charged_the_curve_is_called_that_of_the_run_alone(self) -> None:
        axes = self.drawn({**made(), "charged_search": {"trials": 6}})

        assert self.labelled(axes, "ε by PLD of the private run alone")

    def test_the_curve_falls_and_the_wall_ends_where_a_tenth_is_left(self) -> None:
        axes = self.drawn(made())

        noise, epsilon = self.labelled(axes, "an upper bound").get_xydata().T
        foot = self.labelled(axes, "the wall").get_extents().transformed(axes.transData.inverted())

        assert list(epsilon) == sorted(epsilon, reverse=True)
        assert noise[-1] == pytest.approx(16)
        assert foot.x1 == pytest.approx(1.96, abs=0.01)
        at_foot = min(e for s, e in zip(noise, epsilon, strict=True) if s <= foot.x1)
        assert at_foot / epsilon[-1] == pytest.approx(1.10, abs=0.03)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "changes",
        [
            {"noise_multiplier": 0.25, "expected_batch_size": 512},
            {"noise_multiplier": 30.0, "expected_batch_size": 50_000},
            {"accountant": Accountant.RDP},
            {"num_examples": 10, "expected_batch_size": 8, "noise_multiplier": 1.0, "steps": 3},
            {"num_examples": 1, "expected_batch_size": 1, "noise_multiplier": 5.0, "steps": 1},
        ],
        ids=str,
    )
    def test_whatever_the_plan_its_point_is_inside_with_ticks_around_it(
        self, changes: dict[str, Any]
    ) -> None:
        axes = self.drawn(made(**changes))

        sigma, epsilon = self.labelled(axes, "this plan").get_xydata()[0]
        for value, (low, high), axis in (
            (sigma, axes.get_xlim(), axes.xaxis),
            (epsilon, axes.get_ylim(), axes.yaxis),
        ):
            assert low < value < high
            assert 2 <= len(axis.get_ticklocs()) <= 10


class TestUnits:
    @pytest.mark.parametrize("counts", ["examples", "users", "units"])
    def test_what_is_counted_is_said_as_the_plan_has_it(self, counts: str) -> None:
        document = made()
        assert "counts" not in document["cost"]
        if counts != "examples":
            document["cost"]["counts"] = counts

        shown = "\n".join(screen(document))

        assert f"{counts} N" in shown
        assert f"Cost, in {counts} processed" in shown
        assert re.search(rf"lr factor +{counts}", shown)
