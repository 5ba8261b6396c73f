"""kill -9 in the middle of a search that is charged: every trial that ran is paid for, and whatever is stated covers it."""

from typing import Any

import pytest

from service.ledger import names
from service.statements.verify import verify_statement
from tests.support.live import LiveService, digits_study
from tests.support.studies import finished_trials

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.timeout(420),
]

TRIALS, SPARE = 20, 2
STEPS = 1500
"""Of a trial and of the run: enough that a kill lands between a trial's charge and its score."""


def accounted(name: str) -> dict[str, Any]:
    """Long trials, so that a kill lands in one of them."""
    return digits_study(
        name,
        privacy={"epsilon": 8.0},
        search={"accounting": "accounted", "trials": TRIALS},
        train={"batch_size": 256, "steps": STEPS, "clip_norm": 0.5},
    )


def charged(service: LiveService, study_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the ledger holds for the trials, and for their scores."""
    account = service.get("/datasets/digits/ledger")
    held = {each["reservation_id"]: each for each in account["reservations"]}
    trials, scores = names.of_search(study_id)
    return held[trials], held[scores]


def in_a_trial(service: LiveService, study_id: str) -> int:
    """Wait until a trial was charged whose score nobody has been told; how many were charged by then."""
    found = 0

    def is_so(study: dict[str, Any]) -> bool:
        nonlocal found
        told = len(finished_trials(service, study_id))
        found = charged(service, study_id)[1]["charged_steps"]
        return study["state"] == "simulating" and found > told

    service.wait(study_id, is_so)
    return found


class TestAccountedSearch:
    def test_a_trial_that_is_killed_stays_charged_and_is_charged_once_more(
        self, service: LiveService
    ) -> None:
        study_id = service.submit(accounted("kill-accounted"))
        before: list[dict[str, Any]] = []
        for words in (
            ("ray::", "rial"),
            ("service.app",),
            ("worker.simulate",),
            ("service.orchestrator",),
        ):
            known = len(before)
            service.wait(
                study_id, lambda study, known=known: study["progress"]["trials_finished"] > known
            )
            paid = in_a_trial(service, study_id)
            service.kill(*words)
            assert charged(service, study_id)[1]["charged_steps"] >= paid
            before = finished_trials(service, study_id)

        study = service.complete(study_id)
        values = {trial["number"]: trial["value"] for trial in finished_trials(service, study_id)}
        assert all(values[trial["number"]] == trial["value"] for trial in before)
        trials, scores = charged(service, study_id)
        scored = [value for value in values.values() if value is not None]
        assert len(scored) < scores["charged_steps"] <= TRIALS + SPARE
        assert trials["charged_steps"] == STEPS * scores["charged_steps"]
        assert study["privacy"]["epsilon"] <= 8.0
        assert_stated(service, study_id)

    def test_a_search_that_is_cancelled_in_a_trial_keeps_what_it_was_charged(
        self, service: LiveService
    ) -> None:
        study_id = service.submit(accounted("cancel-accounted"))
        paid = in_a_trial(service, study_id)
        service.kill("worker.simulate")
        assert service.request("POST", f"/studies/{study_id}/cancel").is_success

        study = service.wait(study_id)
        assert study["state"] == "cancelled"
        trials, scores = charged(service, study_id)
        assert {trials["state"], scores["state"]} == {"closed"}
        assert scores["charged_steps"] >= paid
        assert trials["charged_steps"] == STEPS * scores["charged_steps"]
        assert study["privacy"]["epsilon"] > 0
        assert service.get("/datasets/digits/ledger/verify")["is_valid"]


def assert_stated(service: LiveService, study_id: str) -> None:
    """The journal is whole, and the statement is of all that it charged to the study."""
    assert service.get("/datasets/digits/ledger/verify")["is_valid"]
    statement = service.get(f"/studies/{study_id}/statement")
    assert not [check for check in verify_statement(statement) if check.is_bad]
    held = [each["charged_steps"] for each in charged(service, study_id)]
    assert [event["steps"] for event in statement["events"][1:]] == held
    assert statement["search"]["trials"] == held[1]
