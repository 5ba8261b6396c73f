"""The heat of a first rung: all trials take the first part of their steps, and only the best go on.

A small batch costs little and tells the candidates of a network apart badly: those with the largest rates are lost to its
draw. The first quarter of a run at four times the batch costs as much and ranks them better, as long as that is no
large batch: of one the beginning says little, for what noise does comes later. Linear heads are ranked better by whole runs
of small batches (docs/decisions/0027-a-heat-before-the-first-rung.md).
"""

from collections.abc import Sequence

from tan_core.spec import StudySpec
from tan_core.wire import CURVE_POINTS, RungScore, TrialRecord

SMALLEST_PART = 8
"""Steps below which a rung is not worth dividing, and no verdict on it is fair."""

LARGEST_BATCH = 256
"""Of a heat: above it whole simulations at a quarter of the batch rank networks better."""


def heat_steps(steps: int) -> int:
    """That a trial of so many steps takes in a heat.

    Example:
        >>> heat_steps(200)
        50
    """
    return steps // CURVE_POINTS


def wants_heats(spec: StudySpec, *, least_steps: int) -> bool:
    """Whether a study's first rung should begin with a heat: it trains a network, its rungs are the planner's, and no trial is charged.

    Args:
        spec: the study.
        least_steps: that any of its trials takes.
    """
    return (
        spec.search.rungs == "auto"
        and not spec.search.accounting.is_charged
        and spec.model.trains_network
        and heat_steps(least_steps) >= SMALLEST_PART
    )


def takes_heat(ladder: Sequence[float]) -> bool:
    """Whether the first part of the second rung should stand for the first rung: it costs the same, and says more.

    Example:
        >>> takes_heat([32, 128]), takes_heat([128, 512]), takes_heat([32, 64]), takes_heat([32])
        (True, False, False, False)
    """
    return len(ladder) > 1 and CURVE_POINTS * ladder[0] == ladder[1] <= LARGEST_BATCH


def costs_between_cuts(cuts: Sequence[float]) -> list[float]:
    """Examples per step from cut to cut where the first one ends a heat: the second goes on from there.

    Example:
        >>> costs_between_cuts([32, 128, 512])
        [32, 96, 512]
    """
    heat, first, *above = cuts
    return [heat, first - heat, *above]


def in_parts(trial: TrialRecord) -> TrialRecord:
    """The trial as if its heat were a rung of its own, and what it did after it the next one.

    Example:
        >>> curve = [{"step": 50 * n, "accuracy": 0.1 * n} for n in range(1, 5)]
        >>> known = {"rung": 0, "expected_batch_size": 128, "noise_multiplier": 0.1, "seconds": 9}
        >>> whole = RungScore.model_validate(
        ...     {**known, "steps": 200, "accuracy": 0.4, "curve": curve}
        ... )
        >>> trial = TrialRecord(number=0, state="completed", params={}, scores=[whole])
        >>> [(part.rung, part.steps, part.accuracy) for part in in_parts(trial).scores]
        [(0, 50, 0.1), (1, 150, 0.4)]
    """
    parts: list[RungScore] = []
    for score in trial.scores:
        if score.rung > 0:
            parts.append(score.model_copy(update={"rung": score.rung + 1}))
            continue
        end = score.curve[0] if score.curve else None
        if end is None or (score.accuracy is None and score.steps <= end.step):
            parts.append(score)
            continue
        heat = {"accuracy": end.accuracy, "steps": end.step, "curve": [end]}
        parts.append(score.model_copy(update=heat))
        if not score.heat:
            rest = {"rung": 1, "steps": score.steps - end.step}
            parts.append(score.model_copy(update=rest))
    return trial.model_copy(update={"scores": parts})
