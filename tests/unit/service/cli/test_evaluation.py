"""What `tan-cli show` and `statement` say of classes and groups."""

import pytest

from service.cli.output import console
from service.cli.privacy_view import statement
from service.evaluation import evaluation_view
from tests.support.evaluations import evaluation
from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import STUDY, RecordedServer
from tests.unit.service.cli.test_results import DOCUMENT

LINES = (
    "Test accuracy by class (95 % intervals)",
    "Test accuracy by hand (95 % intervals)",
    "40.0 % [16.8, 68.7]",
    "90.0 % [59.6, 98.2]",
    "no epsilon covers",
)


def told(*, baseline: bool = True) -> dict:
    view = evaluation_view({"evaluation": evaluation(baseline=baseline)})
    assert view is not None
    return view.model_dump(mode="json")


def test_a_study_shows_each_class_and_group_beside_a_model_without_privacy(
    cli: Cli, server: RecordedServer
) -> None:
    server.study["run"]["evaluation"] = told()

    shown = cli("show", STUDY["id"]).out

    for line in LINES:
        assert line in shown


def test_without_a_baseline_its_reason_is_told(cli: Cli, server: RecordedServer) -> None:
    reason = {"baseline_reason": "its weights diverged"}
    server.study["run"]["evaluation"] = told(baseline=False) | reason

    assert "no model without privacy: its weights diverged" in cli("show", STUDY["id"]).out


def test_a_statement_shows_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(statement({**DOCUMENT, "evaluation": told()}))

    shown = capsys.readouterr().out
    for line in LINES:
        assert line in shown


def test_a_group_of_empty_cells_has_a_name(cli: Cli, server: RecordedServer) -> None:
    server.study["run"]["evaluation"] = told()
    server.study["run"]["evaluation"]["groups"][0]["name"] = ""

    assert any(
        line.split()[:1] == ["(empty)"] for line in cli("show", STUDY["id"]).out.splitlines()
    )
