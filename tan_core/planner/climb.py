"""Whether what a search may process holds one more rung of a trial.

ASHA cuts by rank alone: the more a search improves, the more of its trials climb, whatever that costs. A
pure decision: the driver asks at the end of each rung, and asks again after a crash.
"""

import math
from collections.abc import Sequence
from statistics import fmean

from tan_core.errors import ParameterError
from tan_core.planner.heats import heat_steps, in_parts
from tan_core.planner.rungs import expected_trials
from tan_core.wire import RungScore, TrialRecord, TrialState

_ROUND_OFF = 0.5
"""Examples: less than one."""


def may_climb(
    trial: TrialRecord,
    others: Sequence[TrialRecord],
    *,
    rungs: Sequence[float],
    num_trials: int,
    max_examples: int,
    repetition: int | None = None,
    heated_steps: int | None = None,
) -> bool:
    """Whether a trial may begin its next rung, or go on after the heat of the first one.

    Free for climbing is what is left by the first rungs of all trials, those to come taken to cost what
    others did, and by the first repetition of the winner. A trial that is the best so far at
    its rung may take of all that is free; another one only while less is taken than is due after so many of
    the trials. So those that come late, and are the better for what was learnt, still find something.

    Formal guarantees:

    * Trials of equal cost and the first repetition process at most ``max_examples`` together, wherever all
      first rungs, the rest of one ladder and one repetition do and no trial diverges above its first rung.
    * While no other trial has completed or is as high, it may: a search without a completed trial finds
      nothing.

    Args:
        trial: scored at its newest rung, which is not the last.
        others: those of the search that have begun.
        rungs: simulated batch sizes, smallest first.
        num_trials: of the search.
        max_examples: of the whole search, finals included.
        repetition: batch sizes of one repetition in the finals, in all; None: those of the rungs.
        heated_steps: of a whole rung, where the first one begins with a heat; None: it begins with none.
    """
    kept_back: float = sum(rungs) if repetition is None else repetition
    if heated_steps is not None:
        # In units of what one example of the batch costs in a heat.
        whole = heated_steps / heat_steps(heated_steps)
        first_rung, *above = rungs
        rungs = [first_rung, first_rung * (whole - 1), *(whole * rung for rung in above)]
        kept_back *= whole
        trial, others = in_parts(trial), [in_parts(other) for other in others]
    height, everyone = len(trial.scores), (trial, *others)
    active = [other for other in others if not other.state.is_finished]
    completed = [other for other in others if other.state is TrialState.COMPLETED]
    rivals = [len(other.scores) for other in active if len(other.scores) >= height]
    if not completed and not rivals:
        return True
    costs = {each.number: _per_batch(each) for each in everyone if _is_scored(each)}
    usual = fmean(costs.values())
    seen = [score for each in everyone for score in each.scores]
    begun = [(len(each.scores), costs.get(each.number, usual)) for each in active]
    at_first = sum(rung == 0 for rung, _ in begun) + num_trials - len(everyone)

    first = sum(score.examples for score in seen if score.rung == 0) + at_first * usual * rungs[0]
    dearest = max(costs.get(each.number, usual) for each in (trial, *completed))
    free = max_examples - first - dearest * kept_back
    taken = sum(score.examples for score in seen if score.rung > 0)
    taken += sum(cost * rungs[rung] for rung, cost in begun if rung > 0)
    rest = 0 if completed else usual * sum(rungs[max(rivals, default=height) + 1 :])
    if taken + costs[trial.number] * rungs[height] + rest > free + _ROUND_OFF:
        return False
    is_due = taken < free * (1 - at_first / num_trials)
    return is_due or _is_best(trial.scores[-1], seen)


def most_examples(trials: int, cuts: Sequence[float], *, repetition: float | None = None) -> float:
    """Examples per step of as many whole trials as are expected at each cut, and of one repetition.

    Args:
        trials: of the search.
        cuts: as ``SearchAssignment.cuts``.
        repetition: batch sizes of one repetition in the finals, in all; None: those of the cuts.

    Example:
        >>> most_examples(24, [32, 128])  # 24 trials at 32, those that climb, one repetition
        2080
    """
    reached = expected_trials(trials, cuts)
    if len(cuts) == 0:
        raise ParameterError("cuts must hold at least one batch size, got none", field="cuts")
    climbing = sum(cut * math.ceil(num) for cut, num in zip(cuts, reached, strict=True))
    return climbing + (sum(cuts) if repetition is None else repetition)


def _is_best(newest: RungScore, seen: Sequence[RungScore]) -> bool:
    """Whether no score at the same rung is above it."""
    return all(
        (score.accuracy or 0.0) <= (newest.accuracy or 0.0)
        for score in seen
        if score.rung == newest.rung
    )


def _is_scored(trial: TrialRecord) -> bool:
    return bool(trial.scores) and trial.scores[0].accuracy is not None


def _per_batch(trial: TrialRecord) -> int:
    """Examples of a whole rung for each of its expected batch."""
    return trial.scores[0].steps * trial.scores[0].views
