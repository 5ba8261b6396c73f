"""What ``tan-cli watch`` draws, on wide and on narrow terminals, and once for scripts."""

import io
import json

import pytest
from rich.console import Console

from service.cli.live import LiveDisplay
from service.cli.picture import plots
from service.cli.progress import StudyProgress
from service.cli.story import Story
from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import STUDY, TRIALS, RecordedServer, progress

ID = STUDY["id"]


def trial(number: int, accuracy: float | None, state: str = "completed") -> dict:
    scores = [] if accuracy is None else [
        {"expected_batch_size": batch, "accuracy": accuracy - gap}
        for batch, gap in ((8.0, 0.1), (32.0, 0.0))
    ]  # fmt: skip
    return {"number": number, "state": state, "value": accuracy, "scores": scores}


def drawn(story: Story, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as captured:
        console.print(plots(story, width=width))
    return captured.get().splitlines()


class TestStory:
    def test_the_best_so_far_never_falls_and_counts_each_trial_once(self) -> None:
        story = Story()
        for told in (
            trial(0, 0.5, "running"), trial(0, 0.5), trial(0, 0.5), trial(1, 0.3), trial(2, 0.7),
            trial(3, None, "diverged"), trial(4, 0.9, "pruned"),
        ):  # fmt: skip
            story.hear(told)
        assert story.best_so_far == [0.5, 0.5, 0.7]

    def test_rungs_hold_every_accuracy_at_their_batch(self) -> None:
        story = Story.of_study(STUDY, [trial(0, 0.5), trial(1, 0.75)])
        assert [(rung.expected_batch_size, len(rung.accuracies)) for rung in story.rungs] == [
            (8.0, 2),
            (32.0, 2),
        ]
        assert (story.rungs[1].best, story.rungs[1].middle) == (0.75, 0.625)

    def test_rates_are_noted_when_the_step_moves(self) -> None:
        story = Story()
        for step in (10, 10, 20):
            story.observe(StudyProgress(step=step, steps=100, steps_per_second=5.0))
        assert story.rates == [5.0, 5.0]


class TestPlots:
    story = Story.of_study(STUDY, [trial(n, 0.5 + n / 100) for n in range(20)])
    story.rates.extend([1.0, 2.0, 4.0])

    @pytest.mark.parametrize("width", [36, 60, 80, 120, 200])
    def test_they_fit_whatever_the_width(self, width: int) -> None:
        lines = drawn(self.story, width)
        assert max(map(len, lines)) <= width
        text = "\n".join(lines)
        assert "B = 32" in text
        assert "not priv" in text

    def test_they_stand_side_by_side_where_there_is_room(self) -> None:
        assert len(drawn(self.story, 200)) < len(drawn(self.story, 50))
        assert "best so far, 20 completed (not private)" in drawn(self.story, 200)[1]

    def test_where_there_is_no_room_there_are_none(self) -> None:
        assert drawn(self.story, 30) == [""]

    def test_nothing_is_drawn_of_nothing(self) -> None:
        assert "".join(drawn(Story(), 120)).strip() == ""


def test_a_terminal_gets_bars_and_plots() -> None:
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=True, color_system=None)
    with LiveDisplay(console, "digits") as display:
        for number, told in enumerate(TRIALS * 2):
            display.update(
                StudyProgress(
                    state="simulating", trials_total=4, trials_finished=number,
                    last_trial={**told, "number": number, "value": 0.5 + number / 10},
                )
            )  # fmt: skip
    shown = file.getvalue()
    assert "best so far" in shown
    assert "B = 32" in shown


class TestOnce:
    def test_it_shows_how_a_study_stands_and_leaves(self, cli: Cli, server: RecordedServer) -> None:
        server.study |= {
            "state": "simulating",
            "progress": progress("simulating", trials_finished=1, best_accuracy=0.9301),
        }
        done = cli("watch", ID, "--once")
        assert done.code == 0
        assert "1 of 2 trials, best 93.0 %" in done.out
        assert "B = 8" in done.out
        assert not server.asked(f"GET /studies/{ID}/events")

    @pytest.mark.parametrize(("state", "code"), [("completed", 0), ("failed", 1)])
    def test_the_exit_code_of_one_that_is_over_is_its_outcome(
        self, cli: Cli, server: RecordedServer, state: str, code: int
    ) -> None:
        server.study["state"] = state
        assert cli("watch", ID, "--once").code == code

    def test_json_is_the_study(self, cli: Cli, server: RecordedServer) -> None:
        assert json.loads(cli("watch", ID, "--once", "--json").out) == server.study
