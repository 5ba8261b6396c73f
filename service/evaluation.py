"""Accuracy by class and by group as it is stated and shown: from counts, with confidence intervals. Pure."""

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Any, Literal, Self

from pydantic import BaseModel

from tan_core.wire import LEAST_TOLD, OTHER, Evaluation, Scores, Tally

LEVEL = 0.95
_FEW = f"Counts on the test split, which no epsilon covers. Classes and groups of fewer than {LEAST_TOLD} test records"
_POOLED = f"are counted together as {OTHER}, with the next smallest where these are still fewer."
NOTE = f"{_FEW}, or users where one guarantee is for a user, {_POOLED}"
_EARLIER_NOTE = f"{_FEW} {_POOLED}"
BASELINE_NOTE = (
    "The baseline is the same training without noise and "
    "clipping: it read the training and validation data without privacy, no epsilon covers it, and its "
    "weights were not kept."
)
NO_BASELINE_NOTE = (
    "A baseline without noise and clipping was asked for and there is none: no epsilon covers what it read of the "
    "training and validation data before it ended."
)
_DEVIATIONS = NormalDist().inv_cdf((1 + LEVEL) / 2)


def wilson(correct: int, num: int) -> tuple[float, float]:
    """Wilson's interval of a share, at the level of 95 %: of records that were drawn independently.

    Example:
        >>> [round(end, 4) for end in wilson(9, 10)]
        [0.5958, 0.9821]
    """
    share, weight = correct / num, _DEVIATIONS**2 / num
    middle = share + weight / 2
    reach = math.sqrt(share * (1 - share) * weight + weight**2 / 4)
    low, high = (middle - reach) / (1 + weight), (middle + reach) / (1 + weight)
    # Exactly, what round-off only comes near to.
    return (0.0 if correct == 0 else low), (1.0 if correct == num else high)


class Share(BaseModel):
    """How many of some test records a model tells right."""

    correct: int
    num: int
    accuracy: float
    low: float
    high: float

    @classmethod
    def of(cls, tally: Tally) -> Self:
        """With its interval."""
        low, high = wilson(tally.correct, tally.num)
        accuracy = tally.correct / tally.num
        return cls(correct=tally.correct, num=tally.num, accuracy=accuracy, low=low, high=high)


class PartView(BaseModel):
    """A class or a group."""

    name: str
    """``(other)``: all that have too few test records to be told of one by one, together."""
    private: Share
    baseline: Share | None
    """Of the model without privacy; None: there is none."""


class EvaluationView(BaseModel):
    """The private model by class and by group, beside one that was trained without privacy."""

    covered_by_epsilon: Literal[False] = False
    note: str = NOTE
    level: float = LEVEL
    """Of the intervals, Wilson's: each by itself, as if records were independent."""
    all: PartView
    classes: list[PartView]
    group_column: str | None
    groups: list[PartView]
    baseline_reason: str | None
    """Why there is no baseline, where one was asked for."""


def evaluation_view(result: Mapping[str, Any] | None) -> EvaluationView | None:
    """Of a private run's result as it is stored; None where nothing was asked for."""
    stored = (result or {}).get("evaluation")
    if stored is None:
        return None
    found = Evaluation.model_validate(stored)
    private, baseline = found.private, found.baseline
    return EvaluationView(
        note=note_of(
            has_baseline=baseline is not None, is_missing=found.baseline_reason is not None
        ),
        all=_part(private, baseline),
        classes=_parts(private.classes, baseline, lambda scores: scores.classes),
        group_column=found.group,
        groups=_parts(private.groups, baseline, lambda scores: scores.groups),
        baseline_reason=found.baseline_reason,
    )


def note_of(*, has_baseline: bool, is_missing: bool) -> str:
    """What has to be said beside the counts; of a baseline only where one was trained, or was to be."""
    if has_baseline:
        return f"{NOTE} {BASELINE_NOTE}"
    return f"{NOTE} {NO_BASELINE_NOTE}" if is_missing else NOTE


def notes_of(*, has_baseline: bool, is_missing: bool) -> tuple[str, ...]:
    """What may be said beside the counts: once all were told that there is a baseline, and of records alone."""
    said = note_of(has_baseline=has_baseline, is_missing=is_missing)
    return said, f"{_EARLIER_NOTE} {BASELINE_NOTE}"


def _part(private: Tally, baseline: Tally | None) -> PartView:
    return PartView(
        name=private.name,
        private=Share.of(private),
        baseline=None if baseline is None else Share.of(baseline),
    )


def _parts(
    private: list[Tally], baseline: Scores | None, parts: Callable[[Scores], list[Tally]]
) -> list[PartView]:
    beside = {} if baseline is None else {tally.name: tally for tally in parts(baseline)}
    return [_part(tally, beside.get(tally.name)) for tally in private]
