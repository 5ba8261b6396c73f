"""``tan-cli trials`` as a table, as CSV and as JSON."""

import copy
import csv
import io
import json
from pathlib import Path

import pytest
import yaml
from rich.console import Console, RenderableType

from service.cli import trials
from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import STUDY, TRIALS, Json, RecordedServer

ID = STUDY["id"]


@pytest.fixture
def study() -> Json:
    return copy.deepcopy(STUDY)


def told(shown: RenderableType) -> str:
    console = Console(width=160, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def test_the_table_has_parameters_rungs_and_says_that_nothing_is_private(
    cli: Cli, server: RecordedServer
) -> None:
    shown = cli("trials", "digits-eps3").out
    assert "not private" in shown.splitlines()[0]
    row = next(line for line in shown.splitlines() if line.split()[:2] == ["1", "completed"])
    assert row.split()[2:] == ["93.0", "%", "0.5123", "0.9", "-", "91.0", "%", "93.0", "%"]
    assert "B = 8" in shown
    assert "a weight was not finite" in shown


def test_parameters_share_a_column_where_their_names_would_be_cut(
    cli: Cli, server: RecordedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {}
    for width in (80, 120):
        monkeypatch.setattr("service.cli.output.PIPE_WIDTH", width)
        shown[width] = cli("trials", "digits-eps3").out

    assert "learning_rate" in shown[120].splitlines()[2]
    assert "parameters" in shown[80].splitlines()[2]
    assert "learning_rate=0.5123" in shown[80]
    assert max(map(len, shown[80].splitlines())) <= 80


def test_the_server_sorts_and_filters(cli: Cli, server: RecordedServer) -> None:
    cli("trials", ID, "--state", "completed", "--sort", "number", "--limit", "7")
    assert server.queries[-1] == {"state": "completed", "sort": "number", "limit": "7"}
    cli("trials", ID)
    assert server.queries[-1] == {"sort": "-value", "limit": "20"}


def test_csv_has_every_trial_with_a_column_for_each_parameter_and_rung(
    cli: Cli, server: RecordedServer
) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("trials", ID, "--csv").out)))
    assert server.queries[-1]["limit"] == "1000"
    assert rows[0] == {
        "number": "1", "state": "completed", "value": "0.9301", "expected_batch_size": "32.0",
        "learning_rate": "0.512345", "ema_decay": "0.9", "momentum": "", "accuracy_rung_0": "0.91",
        "accuracy_rung_1": "0.9301", "fresh_seeds": "0", "seconds": "3.0", "source": "", "reason": "",
        "goes_on_from": "", "learning_rate_factor": "", "clipped_fraction": "0.0625",
        "started_at": "2026-01-02T03:04:05Z", "finished_at": "2026-01-02T03:04:09Z",
    }  # fmt: skip
    assert rows[1]["reason"] == "a weight was not finite"


def test_csv_holds_no_formula_that_a_spreadsheet_would_run(
    cli: Cli, server: RecordedServer
) -> None:
    """What a user's own factory takes may be any text."""
    trial = {**TRIALS[0], "params": {"options.note": "=1+1", "momentum": -0.5}, "reason": "-1"}
    server.answers[f"GET /studies/{ID}/trials"] = (200, {"items": [trial], "next_cursor": None})
    (row,) = csv.DictReader(io.StringIO(cli("trials", ID, "--csv").out))
    told = row["options.note"], row["momentum"], row["reason"]
    assert told == ("'=1+1", "-0.5", "'-1")


def test_json_is_what_the_server_said(cli: Cli, server: RecordedServer) -> None:
    assert json.loads(cli("trials", ID, "--json").out) == TRIALS
    assert cli("trials", ID, "--json", "--csv").code == 2


def test_a_study_without_trials_says_so(cli: Cli, server: RecordedServer) -> None:
    server.answers[f"GET /studies/{ID}/trials"] = (200, {"items": [], "next_cursor": None})
    assert "no such trials" in cli("trials", ID).out


def test_what_the_server_does_not_sort_by_is_bad_input(cli: Cli, server: RecordedServer) -> None:
    problem = {"detail": "sort", "errors": [{"path": "sort", "message": "no", "value": "x"}]}
    server.answers[f"GET /studies/{ID}/trials"] = (422, problem)
    assert cli("trials", ID, "--sort", "x").code == 2


def test_one_trial_is_shown_with_its_simulations(cli: Cli, server: RecordedServer) -> None:
    shown = cli("trial", "digits-eps3", "1").out
    lines = [line.split() for line in shown.splitlines()]
    assert shown.splitlines()[0] == "Trial 1 of digits-eps3"
    assert ["learning_rate", "0.512345"] in lines
    assert ["32", "0.61", "300", "93.0", "%", "-", "6.2", "%", "2s"] in lines
    assert ["ran", "4s,", "2026-01-02", "03:04:05", "to", "03:04:09", "UTC"] in lines
    assert "not private" in shown
    assert "clipped: the share of gradients" in shown


def test_of_a_trial_that_has_not_ended_only_its_begin_is_shown(study: Json) -> None:
    running = {**TRIALS[0], "state": "running", "finished_at": None}
    lines = [line.split() for line in told(trials._one(study, running)).splitlines()]
    assert ["began", "2026-01-02", "03:04:05", "UTC"] in lines


def test_where_clip_norm_is_searched_the_table_has_what_it_clipped(study: Json) -> None:
    assert "clipped" not in told(trials._table(study, TRIALS))
    study["spec"]["search"]["space"]["clip_norm"] = {"low": 0.1, "high": 1.0}
    shown = told(trials._table(study, TRIALS))
    row = next(line for line in shown.splitlines() if line.split()[:2] == ["1", "completed"])
    assert row.split()[-2:] == ["6.2", "%"]
    assert "clipped: the share of gradients" in shown


@pytest.mark.parametrize(
    ("clipping", "said"),
    [("automatic", "clipped: not told of automatic clipping"), ("per_example", "")],
)
def test_what_no_simulation_told_has_no_column(study: Json, clipping: str, said: str) -> None:
    study["spec"]["train"]["clipping"] = clipping
    item = copy.deepcopy(TRIALS[0])
    for score in item["scores"]:
        score["clipped_fraction"] = None
    shown = told(trials._one(study, item))
    assert said in shown
    assert shown.count("clipped") == bool(said)


def test_a_trial_is_written_as_a_study_of_its_own(
    cli: Cli, server: RecordedServer, tmp_path: Path
) -> None:
    made = yaml.safe_load(cli("trial", ID, "1", "--yaml").out)
    assert made["name"] == "digits-eps3-trial-1"
    assert made["search"]["space"] == {"learning_rate": 0.512345, "ema_decay": 0.9}
    assert (made["search"]["trials"], made["search"]["rungs"]) == (1, [32])


def test_a_trial_that_is_none_is_said_to_be_none(cli: Cli, server: RecordedServer) -> None:
    done = cli("trial", ID, "77")
    assert (done.code, "has no trial 77" in done.err) == (2, True)
    assert cli("trial", ID, "1", "--yaml", "--json").code == 2
    assert json.loads(cli("trial", ID, "1", "--json").out)["number"] == 1
