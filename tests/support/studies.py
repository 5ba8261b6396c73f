"""Studies to break something in the middle of, and what must hold when they are over."""

import json
from collections.abc import Callable
from typing import Any

from tan_core.planner.segments import segment_rule
from tests.support.live import LiveService, digits_study

STEPS = 900
"""Of the private run: enough that a fault lands in the middle of it."""
SEGMENT = segment_rule(STEPS).segment_steps
SLACK = segment_rule(STEPS).slack_steps
AT_WORST = 2 * SEGMENT
"""What a crash costs while a checkpoint is on its way: the segment before it, and the one after."""


def searching(name: str, *, trials: int = 10) -> dict[str, Any]:
    """Enough trials that a fault lands in the middle of them."""
    return digits_study(name, search={"trials": trials}, train={"steps": 400})


def training(name: str) -> dict[str, Any]:
    """A long private run after a search of seconds."""
    only = {
        "trials": 1,
        "rungs": [8],
        "budget": 0.01,
        "space": {"learning_rate": {"low": 0.25, "high": 0.5, "log": True}},
    }
    study = digits_study(name, search=only, train={"steps": STEPS})
    study["model"] = {"name": "tanh-cnn"}
    return study


def some_trials_done(study: dict[str, Any]) -> bool:
    return study["progress"]["trials_finished"] >= 2


def has_searched(trials: int) -> Callable[[dict[str, Any]], bool]:
    """Whether so many trials have finished, and the search goes on."""

    def is_there(study: dict[str, Any]) -> bool:
        return study["state"] == "simulating" and study["progress"]["trials_finished"] >= trials

    return is_there


def has_run(attempt: int, step: int) -> Callable[[dict[str, Any]], bool]:
    """Whether the private run is that far, in this attempt or a later one."""

    def is_there(study: dict[str, Any]) -> bool:
        run = study["run"]
        return bool(run) and (run["attempt"] or 0) >= attempt and run["step"] >= step

    return is_there


def finished_trials(service: LiveService, study_id: str) -> list[dict[str, Any]]:
    items = service.get(f"/studies/{study_id}/trials?limit=200")["items"]
    return [trial for trial in items if trial["state"] not in ("running", "interrupted")]


def assert_nothing_was_lost(
    service: LiveService, study: dict[str, Any], *, finished_before: list[dict[str, Any]]
) -> None:
    """Finished trials stand as they were; the ledger charged every step and stayed inside."""
    finished = finished_trials(service, study["id"])
    by_number = {trial["number"]: trial for trial in finished}
    for trial in finished_before:
        assert _scored(by_number[trial["number"]]) == _scored(trial)
    assert len(finished) == len(by_number) == study["spec"]["search"]["trials"]
    # Every segment that was begun is charged, once and for ever, and nothing ran that was not begun.
    begun, ended = segments(service, study["id"])
    assert study["privacy"]["charged_steps"] == sum(begun.values())
    assert study["run"]["step"] == sum(begun[number] for number in ended)
    assert study["privacy"]["charged_steps"] <= study["privacy"]["reserved_steps"]
    assert study["privacy"]["epsilon"] <= 3.0


def segments(service: LiveService, study_id: str) -> tuple[dict[int, int], set[int]]:
    """Of the study's reservation: the steps of every segment that was begun, and which have ended."""
    reservation = next(
        each["reservation_id"]
        for each in service.get("/datasets/digits/ledger")["reservations"]
        if each["study_id"] == study_id
    )
    begun: dict[int, int] = {}
    ended: set[int] = set()
    for entry in service.get("/datasets/digits/ledger/export")["entries"]:
        body = json.loads(entry["body"])
        if entry["reservation_id"] != reservation:
            continue
        if entry["kind"] == "begin":
            begun[body["segment"]] = body["num_steps"]
        elif entry["kind"] == "end":
            ended.add(body["segment"])
    return begun, ended


def _scored(trial: dict[str, Any]) -> dict[str, Any]:
    """A trial without what the finals add to it once it has finished."""
    return {
        key: value
        for key, value in trial.items()
        if key not in ("repeats", "attempt", "updated_at")
    }
