"""``tan-cli compare``: what differs is shown, and what does not is left out."""

import copy
import json
from typing import Any

import pytest

from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import STUDY, RecordedServer

OTHER = "s-aaaaaaaaaaaa"


@pytest.fixture
def other(server: RecordedServer) -> dict[str, Any]:
    made = copy.deepcopy(STUDY)
    made |= {"id": OTHER, "name": "digits-wide", "prediction": None, "run": None}
    made["spec"]["model"]["hidden"] = [256]
    made["privacy"]["epsilon"] = 8.0
    server.answers[f"GET /studies/{OTHER}"] = (200, made)
    return made


def test_outcomes_stand_side_by_side_and_the_yaml_where_it_differs(
    cli: Cli, other: dict[str, Any]
) -> None:
    shown = cli("compare", STUDY["id"], OTHER).out
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert "digits-eps3" in shown.splitlines()[1]
    assert lines["ε"].split()[1:] == ["2.941", "(PLD)", "8.000", "(PLD)"]
    assert lines["test"].split()[2:] == ["92.5", "%", "-"]
    assert lines["model.hidden"].split()[1:] == ["[64]", "[256]"]
    assert "model.name" not in shown
    assert "NOT accounted" in shown


def test_all_of_the_yaml_is_shown_with_marks(cli: Cli, other: dict[str, Any]) -> None:
    shown = cli("compare", STUDY["id"], OTHER, "--all").out
    assert "model.hidden *" in shown
    assert "model.name  " in shown


def test_json_has_the_studies_and_their_differences(cli: Cli, other: dict[str, Any]) -> None:
    document = json.loads(cli("compare", STUDY["id"], OTHER, "--json").out)
    assert [study["id"] for study in document["studies"]] == [STUDY["id"], OTHER]
    assert document["differences"] == {"model.hidden": [[64], [256]]}
    assert document["trained"]["model.hidden"] == [[64], [256]]


def test_what_the_trials_were_trained_with_stands_side_by_side(
    cli: Cli, other: dict[str, Any]
) -> None:
    other["best_trial"]["params"]["learning_rate"] = 0.25
    other["promotion"] = None

    shown = cli("compare", STUDY["id"], OTHER).out
    trained = shown[shown.index("trained with") : shown.index("How their")]

    rows = {line.split()[0]: line.split()[1:] for line in trained.splitlines() if line.strip()}
    best = STUDY["best_trial"]["params"]
    assert rows["train.learning_rate"] == [str(best["learning_rate"]), "0.25"]
    assert rows["train.ema_decay"] == [str(best["ema_decay"])] * 2
    assert f"trial {STUDY['best_trial']['number']}, best so far" in shown


def test_what_a_run_goes_on_from_and_its_own_learning_rate_are_told(
    cli: Cli, other: dict[str, Any]
) -> None:
    part = "it takes a part of the learning rate"
    plain = cli("compare", STUDY["id"], OTHER).out
    other["plan"]["goes_on"] = True
    other["run"] = {**STUDY["run"], "began_from_trial": 5, "learning_rate": 0.125}

    shown = cli("compare", STUDY["id"], OTHER).out

    (row,) = (each.split() for each in shown.splitlines() if each.startswith(" run goes on"))
    assert row[4:] == ["-", "trial", "5,", "at", "learning", "rate", "0.125"]
    assert part in shown
    assert "goes on from" not in plain
    assert part not in plain


@pytest.mark.parametrize("count", [1, 7])
def test_two_to_six_can_be_compared(cli: Cli, server: RecordedServer, count: int) -> None:
    done = cli("compare", *[STUDY["id"]] * count)
    assert (done.code, "2 to 6" in done.err) == (2, True)
    assert server.requests == []


def test_a_study_is_not_compared_with_itself(cli: Cli, server: RecordedServer) -> None:
    assert cli("compare", STUDY["id"], "digits-eps3").code == 2
