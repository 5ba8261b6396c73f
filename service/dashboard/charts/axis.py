"""A dimension of a search space as an axis: where a parameter's value lies on it, from 0 to 1."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tan_core.spec import Choices, Range, Scalar
from tan_core.spec.space import Dimension

ACCURACY = "accuracy"
"""The axis beside those of the parameters."""
SAME_PLACE = 0.01
"""Of an axis: what is nearer looks the same."""
MOST_BANDS = 10
"""More integers than that are a range like any other."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One searched parameter.

    Args:
        name: its key in the space.
        labels: evenly spaced, from the low end: of the choices, or of both ends and the middle, empty
            where that is between two integers.
        low: end of a range; its logarithm where ``log``.
        high: the other end.
        log: whether the range is logarithmic.
        integers: how many integers a range of integers has; None for any other axis.
        choices: of an axis without order; empty for a range.
    """

    name: str
    labels: tuple[str, ...]
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    integers: int | None = None
    choices: tuple[Scalar, ...] = ()

    def place(self, value: Any) -> float | None:
        """Where a value lies; None where it is not on the axis."""
        if self.choices:
            return _rank(self.choices, value)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        if self.log and value <= 0:
            return None
        along = math.log(value) if self.log else float(value)
        share = (along - self.low) / (self.high - self.low)
        return share if -1e-9 <= share <= 1 + 1e-9 else None

    @property
    def bands(self) -> tuple[str, ...]:
        """Labels of what stands side by side on it, the choices or a few integers; none where any number may stand."""
        if self.choices:
            return self.labels
        if self.integers is None or self.log or self.integers > MOST_BANDS:
            return ()
        return tuple(str(round(self.low) + rank) for rank in range(self.integers))

    def num_places(self, most: int) -> int:
        """Places of a grid on the axis: its choices, or at most so many of its numbers."""
        if self.choices:
            return len(self.choices)
        if self.integers is None:
            return most
        return min(most, math.ceil(math.log2(self.integers)) + 1 if self.log else self.integers)


def axes_of(space: Mapping[str, Dimension]) -> list[Axis]:
    """The dimensions of a space that have more than one value, in its order."""
    made = (_axis(name, dimension) for name, dimension in space.items())
    return [axis for axis in made if axis is not None]


def _axis(name: str, dimension: Dimension) -> Axis | None:
    if isinstance(dimension, Choices):
        choices = _in_order(dimension.choices)
        labels = tuple(_label(each) for each in choices)
        return Axis(name, labels, choices=choices) if len(choices) > 1 else None
    if isinstance(dimension, Range):
        ends = [float(dimension.low), float(dimension.high)]
        low, high = map(math.log, ends) if dimension.log else ends
        integers = int(dimension.high - dimension.low) + 1 if dimension.is_integer else None
        middle = math.exp((low + high) / 2) if dimension.log else (low + high) / 2
        is_value = integers is None or abs(middle - round(middle)) < SAME_PLACE * integers
        labels = (_label(dimension.low), _label(middle) if is_value else "", _label(dimension.high))
        return Axis(name, labels, low=low, high=high, log=dimension.log, integers=integers)
    return None


def _in_order(choices: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """Numbers rise along their axis; words stay as they were written."""
    numbers = [each for each in choices if isinstance(each, int | float)]
    return tuple(sorted(numbers)) if len(numbers) == len(choices) else tuple(choices)


def _rank(choices: Sequence[Scalar], value: Any) -> float | None:
    for rank, each in enumerate(choices):
        if each == value and isinstance(each, bool) == isinstance(value, bool):
            return rank / (len(choices) - 1)
    return None


def _label(value: Scalar) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
