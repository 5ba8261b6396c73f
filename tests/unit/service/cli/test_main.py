"""The commands against a real HTTP server that answers in the contract's shape."""

import copy
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from service.cli.template import STUDY as STUDY_YAML
from service.ledger.notes import RESTORED_NOTE
from tan_core.spec import StudySpec
from tan_core.spec.yaml import parse_yaml
from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import PLAN, STUDY, RecordedServer, budget_fit

ROOT = Path(__file__).parents[4]
ID = STUDY["id"]
NOTE = "search on private data NOT accounted"


def problem(status: int, **fields: object) -> tuple[int, dict]:
    return status, {"type": "about:blank", "title": "No", "status": status, **fields}


class TestStart:
    def test_help_loads_neither_rich_nor_httpx_nor_pydantic_nor_a_database(self) -> None:
        code = (
            "import sys; from service.cli.main import run; run(['--help']); "
            "heavy = {'rich', 'httpx', 'pydantic', 'numpy', 'sqlalchemy', 'torch', 'ray', 'yaml'}; "
            "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def test_every_command_of_the_contract_is_there(self, cli: Cli) -> None:
        listed = cli("--help").out
        for command in (
            "serve", "init", "plan", "submit", "list", "show", "watch", "cancel", "promote",
            "calibration", "dataset", "ledger", "statement", "download",
        ):  # fmt: skip
            assert f"  {command} " in listed

    def test_the_version_is_that_of_the_package(self, cli: Cli) -> None:
        done = cli("--version")
        assert (done.code, done.out) == (0, f"tan-cli {version('tan-search')}\n")

    def test_an_unknown_option_is_bad_input(self, cli: Cli) -> None:
        assert cli("list", "--colour").code == 2


class TestServerAway:
    def test_the_error_names_the_address_and_how_to_start_one(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAN_API_URL", "http://127.0.0.1:1")
        done = cli("list")
        assert done.code == 1
        assert done.out == ""
        assert "http://127.0.0.1:1" in done.err
        assert "tan-cli serve" in done.err

    def test_an_address_that_is_none_is_said_to_be_none(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAN_API_URL", "localhost")
        done = cli("list")
        assert done.code == 1
        assert "localhost" in done.err

    @pytest.mark.parametrize("token", ["sekret\r", "sékret", "sekret "])
    @pytest.mark.parametrize("verb", ["list", "calibration"])
    def test_a_token_that_cannot_be_sent_is_named_and_not_told(
        self,
        cli: Cli,
        server: RecordedServer,
        monkeypatch: pytest.MonkeyPatch,
        verb: str,
        token: str,
    ) -> None:
        monkeypatch.setenv("TAN_API_TOKEN", token)
        done = cli(verb)
        assert (done.code, done.out, server.requests) == (2, "", [])
        assert "error: TAN_API_TOKEN holds a character that a header cannot carry" in done.err
        assert "next: export TAN_API_TOKEN=" in done.err
        assert "kret" not in done.err
        assert "TAN_API_URL" not in done.err

    def test_something_that_is_not_our_server_is_recognised(
        self, cli: Cli, server: RecordedServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAN_API_URL", f"{server.url}/studies/{ID}/model?x=")
        assert cli("list").code == 1


class TestPlan:
    def test_the_published_cifar_setting_prints_the_published_figures(self, cli: Cli) -> None:
        arguments = [
            "plan", "--num-examples", "50000", "--batch-size", "4096", "--noise-multiplier", "3",
            "--steps", "2500", "--delta", "1e-5",
        ]  # fmt: skip
        figures = json.loads(cli(*arguments, "--json").out)
        voices = figures["privacy"]["epsilon_by_accountant"]
        assert voices["pld"] == pytest.approx(6.58, abs=0.01)
        assert voices["rdp"] == pytest.approx(7.10, abs=0.01)

        done = cli(*arguments)
        assert done.code == 0
        assert row(done.out, "PLD")[1] == pytest.approx(6.58, abs=0.01)
        assert row(done.out, "RDP")[1] == pytest.approx(7.10, abs=0.01)
        assert row(done.out, "ε_TAN")[1] == pytest.approx(7.48, abs=0.01)
        assert "asymptotic estimate, not a guarantee" in done.out
        assert "add_or_remove_one" in done.out
        simulation = next(line for line in done.out.splitlines() if "0.1875" in line)
        assert simulation.split()[0] == "256"
        assert "not private" in simulation

    @pytest.mark.slow
    def test_a_target_calibrates_the_noise_with_spare_steps_as_of_a_study(self, cli: Cli) -> None:
        done = cli(
            "plan", "--num-examples", "60000", "--batch-size", "2048", "--epsilon", "3",
            "--steps", "300", "--delta", "1e-5", "--json",
        )  # fmt: skip
        privacy = json.loads(done.out)["privacy"]
        assert 2.99 <= privacy["epsilon_reserved"] <= 3.0
        assert privacy["epsilon"] < privacy["epsilon_reserved"]

    def test_every_missing_option_is_named_at_once(self, cli: Cli) -> None:
        done = cli("plan", "--steps", "10")
        assert done.code == 2
        assert done.out == ""
        for option in ("--num-examples", "--batch-size", "--delta", "--epsilon"):
            assert option in done.err

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("--delta", "1.5"),
            ("--batch-size", "70000"),
            ("--steps", "0"),
            ("--accountant", "x"),
            ("--noise-multiplier", "1e300"),
        ],
    )
    def test_an_option_outside_its_domain_is_named(self, cli: Cli, option: str, value: str) -> None:
        options = {
            "--num-examples": "60000", "--batch-size": "2048", "--noise-multiplier": "2",
            "--steps": "300", "--delta": "1e-5", option: value,
        }  # fmt: skip
        done = cli("plan", *(word for pair in options.items() for word in pair))
        assert done.code == 2
        assert option in done.err

    def test_a_study_is_planned_by_the_server(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        done = cli("plan", study_yaml)
        assert done.code == 0
        assert server.asked("POST /plans")[0][0]["privacy"] == {"epsilon": 3, "delta": 1e-5}
        assert "warning: prv was not asked" in done.out
        assert "2.941" in done.out

    def test_a_plan_says_whether_the_budget_would_admit_it_and_ends_well_either_way(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        said = {True: "It fits the budget of digits", False: "warning: Over the budget of digits"}
        for fits, words in said.items():
            server.answers["POST /plans"] = (200, {**PLAN, "budget": budget_fit(fits=fits)})
            done = cli("plan", study_yaml)
            assert done.code == 0
            assert words in " ".join(done.out.split())
        document = json.loads(cli("plan", study_yaml, "--json").out)
        assert document["budget"]["missing_epsilon"] == 0.4

    def test_what_is_set_is_planned_and_not_what_the_file_says(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        before = Path(study_yaml).read_text()
        assert cli("plan", study_yaml, "--set", "privacy.epsilon=1").code == 0
        ((body, _),) = server.asked("POST /plans")
        assert body is not None
        assert body["privacy"] == {"epsilon": 1, "delta": 1e-5}
        assert Path(study_yaml).read_text() == before

    def test_there_is_nothing_to_set_without_a_study(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        done = cli("plan", "--set", "privacy.epsilon=1")
        assert (done.code, server.requests) == (2, [])
        assert "--set" in done.err

    def test_a_study_and_options_contradict_each_other(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        assert cli("plan", study_yaml, "--steps", "3").code == 2
        assert server.requests == []


class TestSubmit:
    def test_it_prints_the_id_to_watch(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        done = cli("submit", study_yaml, "--idempotency-key", "k1")
        assert done.code == 0
        assert ID in done.out
        assert server.asked("POST /studies")[0][1]["idempotency-key"] == "k1"

    def test_the_token_goes_along(
        self,
        cli: Cli,
        server: RecordedServer,
        study_yaml: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("TAN_API_TOKEN", "open-sesame")
        cli("submit", study_yaml)
        assert server.asked("POST /studies")[0][1]["authorization"] == "Bearer open-sesame"

    def test_watching_shows_phases_trials_steps_and_the_guarantee_with_its_note(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        done = cli("submit", study_yaml, "--watch")
        assert done.code == 0
        for words in (
            "simulating",
            "trial 0 diverged",
            "trial 1 completed 93.0 %; 2 of 2 trials, best 93.0 %",
            "2 repetitions of finalists with fresh seeds",
            "training",
            "test accuracy 92.5 %",
            "ε = 2.941 at δ = 1e-05, accountant PLD, neighbours add_or_remove_one; " + NOTE,
            "simulation, not private",
            "entry 54 of digits",
        ):
            assert words in done.out

    def test_watching_with_json_prints_one_document_and_nothing_else(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        done = cli("submit", study_yaml, "--watch", "--json")
        assert json.loads(done.out) == server.study
        assert done.err == ""

    @pytest.mark.parametrize(("state", "code"), [("completed", 0), ("failed", 1), ("cancelled", 1)])
    def test_the_exit_code_says_how_the_study_ended(
        self, cli: Cli, server: RecordedServer, study_yaml: str, state: str, code: int
    ) -> None:
        server.study["state"] = state
        server.study["error"] = {"detail": "no trial completed"} if code else None
        done = cli("submit", study_yaml, "--watch")
        assert done.code == code
        assert ("no trial completed" in done.out) == bool(code)

    def test_every_fault_is_shown_with_path_and_value_on_one_screen(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        errors = [
            {"path": "search.trials", "message": "must be at least 1", "value": 0},
            {"path": "privacy.delta", "message": "must be below 1", "value": 2.0},
        ]
        detail = "; ".join(f"{e['path']}: {e['message']}" for e in errors)
        server.answers["POST /studies"] = problem(422, detail=detail, errors=errors)
        done = cli("submit", study_yaml)
        assert done.code == 2
        assert done.out == ""
        assert "  search.trials: must be at least 1 (got 0)\n" in done.err
        assert "  privacy.delta: must be below 1 (got 2.0)\n" in done.err
        assert done.err.count("must be at least 1") == 1
        assert len(done.err.splitlines()) <= 24

    def test_over_budget_exits_3_with_what_is_left(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        answer = problem(409, detail="epsilon 3 was asked, 1.2 of 100 remains")
        answer[1]["type"] = "/problems/over-budget"
        server.answers["POST /studies"] = answer
        done = cli("submit", study_yaml)
        assert done.code == 3
        assert "1.2 of 100 remains" in done.err

    def test_another_conflict_exits_1(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        server.answers["POST /studies"] = problem(409, detail="the key was used before")
        assert cli("submit", study_yaml).code == 1

    def test_a_broken_server_exits_1(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        server.answers["POST /studies"] = problem(500, detail="quote 1a2b3c")
        done = cli("submit", study_yaml)
        assert (done.code, "1a2b3c" in done.err) == (1, True)


class TestSubmitSet:
    def test_one_file_is_submitted_at_several_targets(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        for epsilon in (1, 2):
            words = (f"privacy.epsilon={epsilon}", f"name=digits-eps{epsilon}")
            done = cli("submit", study_yaml, *(word for each in words for word in ("--set", each)))
            assert (done.code, done.out.count("\n")) == (0, 1)

        sent = [body for body, _ in server.asked("POST /studies") if body is not None]
        assert [(each["name"], each["privacy"]) for each in sent] == [
            ("digits-eps1", {"epsilon": 1, "delta": 1e-5}),
            ("digits-eps2", {"epsilon": 2, "delta": 1e-5}),
        ]

    @pytest.mark.parametrize("change", ["epsilon", "privacy.epsilon=[", "name.first=x"])
    def test_what_cannot_be_set_is_bad_input_and_nothing_is_sent(
        self, cli: Cli, server: RecordedServer, study_yaml: str, change: str
    ) -> None:
        done = cli("submit", study_yaml, "--set", change)
        assert (done.code, done.out, server.requests) == (2, "", [])
        assert f"  --set {change}: " in done.err
        assert "next: tan-cli submit --help" in done.err

    def test_what_the_server_refuses_is_told_by_the_path_that_was_set(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        errors = [{"path": "search.trials", "message": "must be at least 1", "value": 0}]
        server.answers["POST /studies"] = problem(422, detail="no", errors=errors)
        done = cli("submit", study_yaml, "--set", "search.trials=0")
        assert done.code == 2
        assert "  search.trials: must be at least 1 (got 0)\n" in done.err

    def test_the_study_that_is_submitted_again_is_changed(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        before = copy.deepcopy(server.study["spec"])
        assert (
            cli("submit", "--from", ID, "--set", "name=again", "--set", "train.steps=9").code == 0
        )
        ((body, _),) = server.asked("POST /studies")
        assert body == {
            **before,
            "name": "again",
            "train": {**before["train"], "steps": 9},
            "search": {**before["search"], "warm_start": [ID]},
        }

    def test_a_file_is_changed_before_it_begins_from_others(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        cli("submit", study_yaml, "--from", ID, "--set", "search={trials: 4, warm_start: none}")
        ((body, _),) = server.asked("POST /studies")
        assert body is not None
        assert body["search"] == {"trials": 4, "warm_start": [ID]}


class TestSubmitFrom:
    @staticmethod
    def sent(server: RecordedServer) -> dict:
        ((body, _),) = server.asked("POST /studies")
        assert body is not None
        return body

    def test_a_study_begins_from_others_named_in_any_way(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        with open(study_yaml, "a") as file:
            file.write("search: {trials: 4, warm_start: none}\n")

        done = cli("submit", study_yaml, "--from", ID[:6], "--from", "digits-eps3")

        assert done.code == 0
        assert self.sent(server)["search"] == {"trials": 4, "warm_start": [ID]}
        assert self.sent(server)["privacy"] == {"epsilon": 3, "delta": 1e-5}

    def test_without_a_file_the_study_itself_is_submitted_again(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        assert cli("submit", "--from", ID).code == 0

        spec = server.study["spec"]
        assert self.sent(server) == {**spec, "search": {**spec["search"], "warm_start": [ID]}}

    def test_a_study_without_a_search_is_submitted_again_as_it_is(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        """It has nothing to begin with, and the server refuses a warm start of no search."""
        spec = server.study["spec"]
        spec["search"] = {"accounting": "no_search", "trials": 0, "space": {}, "warm_start": "auto"}

        assert cli("submit", "--from", ID).code == 0
        assert self.sent(server) == spec

    @pytest.mark.parametrize("words", [("submit",), ("submit", "--from", "nothing")])
    def test_nothing_to_begin_from_is_bad_input(
        self, cli: Cli, server: RecordedServer, words: tuple[str, ...]
    ) -> None:
        done = cli(*words)

        assert done.code == 2
        assert "--from" in done.err
        assert len(done.err.splitlines()) == 2
        assert not server.asked("POST /studies")

    def test_a_search_that_is_none_is_left_for_the_server_to_refuse(
        self, cli: Cli, server: RecordedServer, study_yaml: str
    ) -> None:
        with open(study_yaml, "a") as file:
            file.write("search: much\n")

        cli("submit", study_yaml, "--from", ID)

        assert self.sent(server)["search"] == "much"


class TestRead:
    def test_a_list_shows_epsilon_with_delta_and_how_the_search_was_accounted(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        shown = cli("list").out
        line = next(line for line in shown.splitlines() if ID in line)
        for words in ("2.941 (PLD)", "1e-05", "declared_unaccounted", "92.5 %"):
            assert words in line
        assert f"declared_unaccounted: {NOTE}" in shown
        assert "neighbours add_or_remove_one" in shown

    def test_an_empty_list_says_what_to_do(self, cli: Cli, server: RecordedServer) -> None:
        server.summaries = []
        assert "tan-cli submit" in cli("list").out

    def test_list_names_the_studies_whose_charges_may_be_lost(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        assert RESTORED_NOTE not in cli("list").out
        server.summaries[0]["restored_note"] = RESTORED_NOTE
        shown = " ".join(cli("list").out.split())
        assert f"{server.summaries[0]['id']}: {RESTORED_NOTE}" in shown

    def test_json_is_what_the_server_said(self, cli: Cli, server: RecordedServer) -> None:
        assert json.loads(cli("show", ID, "--json").out) == server.study
        assert json.loads(cli("list", "--json").out) == server.summaries
        assert json.loads(cli("dataset", "list", "--json").out) == server.datasets

    def test_show_names_the_checkpoint_of_a_model(self, cli: Cli, server: RecordedServer) -> None:
        server.study["spec"]["model"]["pretrained"] = {"path": "a.pt", "train": "classifier"}

        assert "mlp from a.pt (train: classifier)" in cli("show", ID).out

    def test_show_says_how_far_features_are(self, cli: Cli, server: RecordedServer) -> None:
        made = {"done": 1200, "number": 45_000, "seconds_left": 90.0}
        server.study["progress"]["features"] = made

        assert "1,200 of 45,000 records, 1m30s left" in cli("show", ID).out
        server.study["paused"] = True
        assert "1m30s" not in cli("show", ID).out

    @pytest.mark.parametrize("reference", [ID, ID[:6], "digits-eps3"])
    def test_a_study_is_found_by_id_by_its_beginning_and_by_name(
        self, cli: Cli, server: RecordedServer, reference: str
    ) -> None:
        assert NOTE in cli("show", reference).out

    def test_a_beginning_that_two_studies_share_is_refused_with_both(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        server.summaries.append({**server.summaries[0], "id": "s-0123ffff"})
        done = cli("show", "s-0123")
        assert done.code == 1
        assert "s-0123ffff" in done.err
        assert ID in done.err

    def test_a_study_that_is_not_there_is_said_not_to_be(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        done = cli("show", "nothing")
        assert (done.code, "nothing" in done.err) == (1, True)

    def test_text_from_the_server_is_never_taken_for_markup(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        server.study["reason"] = "[bold]no[/bold] [/] :smile:"
        assert "[bold]no[/bold] [/] :smile:" in cli("show", ID).out


class TestWatch:
    def test_json_prints_every_event_once_on_a_line_of_its_own(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        lines = cli("watch", ID, "--json").out.splitlines()
        assert [json.loads(line) for line in lines] == server.events


class TestAct:
    def test_a_search_that_is_approved_is_not_called_a_private_run(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        waiting = {**STUDY, "state": "awaiting_approval", "promotion": None}
        server.answers[f"GET /studies/{ID}"] = (200, waiting)
        server.answers[f"POST /studies/{ID}/promote"] = (202, waiting)
        assert "its search may begin" in cli("promote", ID).out

    def test_cancel_and_promote_say_what_happened(self, cli: Cli, server: RecordedServer) -> None:
        assert "is cancelled" in cli("cancel", ID).out
        assert "trial 1 is promoted" in cli("promote", ID, "--trial", "1").out
        assert server.asked(f"POST /studies/{ID}/promote")[0][0] == {"trial": 1}

    def test_download_writes_the_model_and_repeats_the_guarantee(
        self, cli: Cli, server: RecordedServer, tmp_path: Path
    ) -> None:
        target = tmp_path / "model.safetensors"
        done = cli("download", ID, "-o", str(target))
        assert target.read_bytes() == b"weights!"
        assert NOTE in done.out

    def test_a_refused_download_leaves_no_file(
        self, cli: Cli, server: RecordedServer, tmp_path: Path
    ) -> None:
        server.answers[f"GET /studies/{ID}/model"] = problem(404, detail="not completed")
        assert cli("download", ID, "-o", str(tmp_path / "model")).code == 1
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("again", [["--allow"], []], ids=["each", "in a row"])
    def test_dataset_add_sends_only_what_was_said(
        self, cli: Cli, server: RecordedServer, tmp_path: Path, again: list[str]
    ) -> None:
        done = cli(
            "dataset", "add", "--path", str(tmp_path), "--epsilon", "8", "--delta", "1e-6", "--waiver", "me: a test",
            "--allow", "public_proxy", *again, "declared_unaccounted", "mine",
        )  # fmt: skip
        assert done.code == 0
        assert server.asked("POST /datasets")[0][0] == {
            "name": "mine",
            "path": str(tmp_path),
            "epsilon": 8.0,
            "delta": 1e-6,
            "unit": "record",
            "label": "label",
            "public": False,
            "allow": ["public_proxy", "declared_unaccounted"],
            "waiver": "me: a test",
        }

    def test_dataset_add_reads_from_a_file_how_columns_are_read(
        self, cli: Cli, server: RecordedServer, tmp_path: Path
    ) -> None:
        file = tmp_path / "columns.yaml"
        file.write_text("age: {low: 0, high: 100}\nheight:\njob: {choices: [clerk, no]}\n")

        done = cli("dataset", "add", "mine", "--public", "--feature", "x", "--features", str(file))

        assert done.code == 0
        assert server.asked("POST /datasets")[0][0]["features"] == [
            "x",
            {"column": "age", "low": 0, "high": 100},
            "height",
            {"column": "job", "choices": ["clerk", "no"]},
        ]

    @pytest.mark.parametrize("text", ["age: 3", "age: [0, 100]", "age: old"])
    def test_dataset_add_refuses_what_says_no_way_to_read_a_column(
        self, cli: Cli, server: RecordedServer, tmp_path: Path, text: str
    ) -> None:
        file = tmp_path / "columns.yaml"
        file.write_text(text)

        done = cli("dataset", "add", "mine", "--public", "--features", str(file))

        assert done.code == 2
        assert (
            "age: expected nothing, {low: NUMBER, high: NUMBER} or {choices: [NAME, ...]}"
            in done.err
        )
        assert not server.asked("POST /datasets")

    def test_dataset_add_dry_run_says_that_nothing_was_registered(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        done = cli("dataset", "add", "mine", "--public", "--dry-run")
        assert done.code == 0
        assert server.queries[-1] == {"dry_run": "true"}
        assert "nothing was registered" in done.err
        cli("dataset", "add", "mine", "--public")
        assert server.queries[-1] == {}

    def test_dataset_edit_changes_who_lets_private_runs_begin(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        done = cli("dataset", "edit", "digits", "--approval", "required")
        assert "a person approves every private run" in done.out
        assert server.asked("PUT /datasets/digits/approval")[0][0] == {"approval": "required"}
        assert "a person approves" not in cli("dataset", "show", "digits").out

    def test_a_study_says_that_its_dataset_wants_an_approval(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        server.study |= {"state": "simulating", "approval": "required"}
        assert "approval" in cli("show", ID).out
        assert "required by dataset digits" in cli("show", ID).out
        server.study["spec"]["promotion"] = "manual"
        assert "required by dataset" not in cli("show", ID).out

    def test_dataset_show_states_budget_and_relation(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        shown = cli("dataset", "show", "digits").out
        assert "ε = 100, δ = 0.001 in total, neighbours add_or_remove_one" in shown

    def test_the_keys_that_the_first_study_leaves_out_are_shown_with_their_defaults(self) -> None:
        shown = re.sub(r"# (sampler|budget|warm_start): (\S+) .*", r"\1: \2", STUDY_YAML)

        assert shown.count("#") == STUDY_YAML.count("#") - 6
        read = [StudySpec.model_validate(parse_yaml(text)) for text in (shown, STUDY_YAML)]
        assert read[0] == read[1]
        assert {"sampler", "budget", "warm_start"} <= read[0].search.model_fields_set


def row(output: str, name: str) -> tuple[str, float]:
    """A table's row: its first two cells."""
    cells = next(line for line in output.splitlines() if line.split()[:1] == [name]).split()
    return cells[0], float(cells[1])


def begun(before: str, *words: str) -> subprocess.CompletedProcess[str]:
    """How the script that is installed ends, where ``before`` runs first."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts["tan-cli"].split(":")
    code = f"import sys; {before}; from {module} import {function}; sys.exit({function}())"
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60
    )


class TestEntry:
    def test_it_runs_the_commands(self) -> None:
        done = begun("pass", "--version")

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("tan-cli ")

    def test_with_the_library_alone_it_says_what_to_install(self) -> None:
        done = begun("sys.modules['typer'] = None", "--version")

        assert done.returncode == 1
        assert done.stderr.startswith("tan-cli needs typer, which is not installed here.")
        assert "pip install '.[service]'" in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_part_of_its_own_that_is_missing_is_no_matter_of_installing(self) -> None:
        done = begun("sys.modules['service.cli.calibration'] = None", "--version")

        assert "Traceback" in done.stderr
