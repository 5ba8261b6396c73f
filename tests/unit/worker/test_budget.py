"""What ends a trial between two rungs for the sake of the budget."""

from typing import Any

import pytest

from tan_core.data import inspect
from tan_core.mechanism import Mechanism
from tan_core.wire import CurvePoint, SearchAssignment, TrialRecord, TrialState
from tests.support.assignments import search_assignment
from tests.support.datasets import dataset_ref
from tests.support.trials import LADDER, RUNGS, STEPS, ladder, make_trial
from worker.budget import BudgetStopper

NUM_TRIALS = 4
FIRSTS = NUM_TRIALS * RUNGS[0] * STEPS
PLANNED = FIRSTS + (3 * RUNGS[1] + 2 * RUNGS[2]) * STEPS + LADDER
"""ASHA is expected to let 2.3 of 4 trials climb, and 1.5 of these further."""


def assignment_of(*, max_examples: int, **changes: Any) -> SearchAssignment:
    return search_assignment(
        dataset_ref(inspect(None, source="digits")),
        mechanism=Mechanism(sampling_rate=0.1, noise_multiplier=2.0, clip_norm=1.0, steps=STEPS),
        search={"trials": NUM_TRIALS, "space": {"learning_rate": 1.0}},
        max_examples=max_examples,
        **{"rungs": list(RUNGS), **changes},
    )


def result(number: int, *accuracies: float, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """What a trial reports at the end of its newest rung."""
    score = ladder(accuracies, seed=seed)[-1]
    report = {"number": number, "seed": seed, "is_scored": True, "is_heat": False, "done": False}
    return {**report, "rung_score": score.model_dump_json(), **changes}


def begun(number: int, *accuracies: float) -> TrialRecord:
    return make_trial(number, accuracies, state=TrialState.RUNNING)


def stopper_of(*records: TrialRecord, max_examples: int = 0) -> BudgetStopper:
    return BudgetStopper(
        assignment_of(max_examples=max_examples), {each.number: each for each in records}
    )


DONE = make_trial(0, [0.8, 0.8, 0.8])
FULL = [DONE, make_trial(1, [0.7, 0.7, 0.7]), make_trial(3, [0.7, 0.7], state=TrialState.PRUNED)]
"""As many at each rung as are expected: nothing is left but for the finals."""


def test_who_has_no_room_ends_with_a_reason() -> None:
    told = result(2, 0.9)

    assert stopper_of(*FULL, begun(2))("t", told)
    assert told["reason"] == "the search budget has no room for it at batch 128"


def test_a_budget_above_the_plan_has_room_for_more() -> None:
    for more in (0, 1):
        budget = PLANNED + RUNGS[1] * STEPS - 1 + more
        assert stopper_of(*FULL, begun(2), max_examples=budget)("t", result(2, 0.9)) == (more == 0)


def test_what_was_planned_is_had_whatever_the_budget() -> None:
    assert not stopper_of(*FULL[:2], begun(2), max_examples=0)("t", result(2, 0.9))


@pytest.mark.parametrize(
    "told",
    [
        result(2, 0.9, seed=1),
        result(2, 0.9, done=True),
        result(2, 0.9, is_scored=False),
        result(2, 0.9, is_scored=False, rung_score=None),
    ],
    ids=["finalist", "over", "on the way", "failed"],
)
def test_nothing_else_is_asked(told: dict[str, Any]) -> None:
    assert not stopper_of(*FULL, begun(2))("t", told)


def test_a_rung_that_an_earlier_attempt_climbed_is_not_asked_for_again() -> None:
    known = begun(2, 0.6, 0.6)

    assert not stopper_of(*FULL, known)("t", result(2, 0.6))
    assert stopper_of(*FULL, known)("t", result(2, 0.6, 0.6))


def test_it_reads_the_records_as_they_are_then() -> None:
    records = {0: DONE, 1: begun(1), 2: begun(2)}
    stopper = BudgetStopper(assignment_of(max_examples=0), records)

    assert not stopper("t", result(2, 0.9))
    records |= {each.number: each for each in FULL}
    assert stopper("t", result(2, 0.9))


def test_with_a_confirmation_the_budget_is_all_there_is_and_holds_it() -> None:
    records = {each.number: each for each in [*FULL, begun(2)]}
    needed = sum(each.examples for each in FULL) + (RUNGS[0] + RUNGS[1] + 2048) * STEPS

    for less in (0, 1):
        assignment = assignment_of(max_examples=needed - less, confirmation=2048)
        assert BudgetStopper(assignment, records)("t", result(2, 0.9)) == (less == 1)


def test_who_has_no_room_after_its_heat_ends_with_a_reason() -> None:
    point = CurvePoint(step=STEPS // 4, accuracy=0.9)
    scored = ladder([0.9])[0].model_copy(
        update={"heat": True, "steps": point.step, "curve": [point]}
    )
    told = result(2, 0.9, is_scored=False, is_heat=True, rung_score=scored.model_dump_json())
    done = make_trial(0, [0.8])
    stopper = BudgetStopper(
        assignment_of(max_examples=0, heat=True, rungs=[RUNGS[0]], confirmation=RUNGS[1]),
        {0: done, 2: begun(2)},
    )

    assert stopper("t", told)
    assert (
        told["reason"]
        == "not among the best that the search budget has room for after the first 25 steps"
    )
