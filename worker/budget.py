"""Ending a trial between two rungs that the search budget does not hold."""

import math
from collections.abc import Mapping
from typing import Any

from ray.tune import Stopper

from tan_core.mechanism import Mechanism
from tan_core.planner import may_climb, most_examples
from tan_core.wire import RungScore, SearchAssignment, TrialRecord


class BudgetStopper(Stopper):
    """Holds the search to its budget, or to what its trials were planned to cost where that is more.

    A confirmation is planned only where the budget holds it, so there the budget is all.

    Args:
        assignment: of the search.
        records: every trial by number, kept up to date by whoever sees results; read here.
    """

    def __init__(self, assignment: SearchAssignment, records: Mapping[int, TrialRecord]) -> None:
        self._rungs, self._num_trials = assignment.rungs, assignment.search.trials
        self._repetition = sum(assignment.repetition)
        self._max_examples = assignment.max_examples
        steps = Mechanism.from_json(assignment.reference.event).steps
        self._heated_steps = steps if assignment.heat else None
        if assignment.confirmation is None:
            self._max_examples = max(self._max_examples, _planned(assignment, steps))
        self._records = records

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial ends here; the reason goes into the result."""
        is_cut = result["is_scored"] or result["is_heat"]
        if result["seed"] > 0 or result["done"] or not is_cut:
            return False
        score = RungScore.model_validate_json(result["rung_score"])
        record = self._records[result["number"]]
        if any(known.rung > score.rung for known in record.scores):
            return False  # an earlier attempt climbed already
        below = [known for known in record.scores if known.rung < score.rung]
        if may_climb(
            record.model_copy(update={"scores": [*below, score]}),
            [other for number, other in self._records.items() if number != record.number],
            rungs=self._rungs,
            num_trials=self._num_trials,
            max_examples=self._max_examples,
            repetition=self._repetition,
            heated_steps=self._heated_steps,
        ):
            return False
        if score.heat:
            result["reason"] = (
                "not among the best that the search budget has room for after the first "
                f"{score.steps} steps"
            )
        else:
            batch = self._rungs[score.rung + 1]
            result["reason"] = f"the search budget has no room for it at batch {batch}"
        return True

    def stop_all(self) -> bool:
        """Never: only single trials are ended."""
        return False


def _planned(assignment: SearchAssignment, steps: int) -> int:
    """What the trials and one repetition are expected to process, at the planned number of steps."""
    views = assignment.trainer.augmentation_multiplicity
    most = most_examples(
        assignment.search.trials, assignment.cuts, repetition=sum(assignment.repetition)
    )
    return math.ceil(most * steps * views)
