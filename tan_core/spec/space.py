"""The search space: fixed values, choices and ranges over trainer and model fields."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import Discriminator, Field, StrictBool, Tag, model_validator

from tan_core.spec.base import Frozen

Scalar = bool | int | float | str
MAX_DIMENSIONS = 64
MAX_INTEGER = 2**53
"""Of the ends of a range, either way: JSON's numbers tell whole ones apart up to there."""


class Choices(Frozen):
    """One of a list of values, without order."""

    choices: Annotated[list[Scalar], Field(min_length=1, max_length=1000)]
    """The values."""


class Range(Frozen):
    """A number between two ends, both included. Two integer ends make an integer dimension."""

    low: int | float
    """The lower end."""
    high: int | float
    """The upper end."""
    log: StrictBool = False
    """Whether factors are alike and not differences: for learning rates, say."""

    @model_validator(mode="after")
    def _ends_are_in_order(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got low={self.low!r}, high={self.high!r}")
        if self.is_integer and max(-self.low, self.high) > MAX_INTEGER:
            raise ValueError(
                f"whole numbers up to 2^53 are accepted, got low={self.low!r}, high={self.high!r}"
            )
        if self.log and self.low <= 0:
            raise ValueError(f"a log range needs low > 0, got low={self.low!r}")
        return self

    @property
    def is_integer(self) -> bool:
        """Whether both ends were written as integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def inside(self) -> float:
        """A number between the ends that is no integer, to ask a field whether it takes such."""
        return self.low + (self.high - self.low) / math.pi


def _kind(value: Any) -> str | None:
    if isinstance(value, Choices):
        return "choices"
    if isinstance(value, Range):
        return "range"
    if isinstance(value, dict):
        return "choices" if "choices" in value else "range"
    if isinstance(value, bool | int | float | str):
        return "fixed"
    return None


Dimension = Annotated[
    Annotated[Choices, Tag("choices")]
    | Annotated[Range, Tag("range")]
    | Annotated[Scalar, Tag("fixed")],
    Discriminator(
        _kind,
        custom_error_type="dimension",
        custom_error_message="expected a fixed value, {choices: [...]} or {low: .., high: .., log: ..}",
    ),
]


def probes(dimension: Choices | Range | Scalar) -> list[tuple[str, Scalar]]:
    """The values at the edge of a dimension with the sub-path of each, to check a field's domain."""
    if isinstance(dimension, Choices):
        return [(f".choices.{index}", value) for index, value in enumerate(dimension.choices)]
    if isinstance(dimension, Range):
        return [(".low", dimension.low), (".high", dimension.high)]
    return [("", dimension)]


def as_written(dimension: Choices | Range | Scalar) -> Any:
    """The dimension as it stands in the YAML.

    Example:
        >>> as_written(Range(low=0.5, high=2.0)), as_written(4)
        ({'low': 0.5, 'high': 2.0}, 4)
    """
    if isinstance(dimension, Choices | Range):
        return dimension.model_dump(exclude_defaults=True)
    return dimension


def values_of(dimension: Choices | Range | Scalar) -> Sequence[Scalar] | None:
    """The values of a dimension, each once; None where there is no end of them.

    Example:
        >>> values_of(Choices(choices=[8, 16, 8])), values_of(Range(low=1, high=3)), values_of(0.5)
        ([8, 16], range(1, 4), [0.5])
    """
    if isinstance(dimension, Choices):
        return list(dict.fromkeys(dimension.choices))
    if not isinstance(dimension, Range):
        return [dimension]
    return range(int(dimension.low), int(dimension.high) + 1) if dimension.is_integer else None


def only_value(dimension: Choices | Range | Scalar) -> Scalar | None:
    """The value of a dimension where there is nothing to choose.

    Example:
        >>> only_value(Choices(choices=[8])), only_value(0.5), only_value(Range(low=1, high=2))
        (8, 0.5, None)
    """
    values = values_of(dimension)
    return values[0] if values is not None and len(values) == 1 else None


def within(value: Any, dimension: Choices | Range | Scalar) -> Scalar | None:
    """The value as the dimension writes it; None where it is outside.

    Example:
        >>> within(1, Range(low=0.5, high=2.0)), within(True, Choices(choices=[0, 1]))
        (1.0, None)
    """
    if not isinstance(dimension, Range):
        written = dimension.choices if isinstance(dimension, Choices) else [dimension]
        return next((each for each in written if _is_same(each, value)), None)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not dimension.low <= value <= dimension.high:
        return None
    if not dimension.is_integer:
        return float(value)
    return int(value) if value == int(value) else None


def _is_same(one: Scalar, other: Any) -> bool:
    """Equal, and not True for 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
