"""How columns of a table become numbers: stated by whoever registers it, and never read off the records.

A range or a list of values that was read off private records would be a release of its own.
"""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from tan_core.spec.base import Frozen

Column = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00]+$")]
Choice = Annotated[
    str,
    StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00]+$", strip_whitespace=True),
]

_LEAST_HALF = 1e-300
"""Of a range: numbers are divided by half of it."""


class RangeColumn(Frozen):
    """A column of numbers between two that are publicly known, which become -1 and 1.

    What lies outside becomes the nearer end, and an empty cell the middle, 0.
    """

    column: Column
    low: Annotated[float, Field(ge=-1e300, le=1e300)]
    high: Annotated[float, Field(ge=-1e300, le=1e300)]

    @model_validator(mode="after")
    def _low_is_below_high(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got {self.low:g} and {self.high:g}")
        if self.high / 2 - self.low / 2 < _LEAST_HALF:
            raise ValueError(
                f"low and high must be {2 * _LEAST_HALF:g} apart, got {self.low:g} and {self.high:g}"
            )
        return self


class ChoiceColumn(Frozen):
    """A column of texts, whole numbers or truth values, each of which becomes a column of 0 and 1.

    They are compared letter by letter, without blanks around them. Any other value, and an empty cell, is 0 in all of them.
    """

    column: Column
    choices: Annotated[list[Choice], Field(min_length=1, max_length=1000)]

    @model_validator(mode="after")
    def _choices_differ(self) -> Self:
        twice = next((each for each in self.choices if self.choices.count(each) > 1), None)
        if twice is not None:
            raise ValueError(f"choices must differ, got {twice!r} more than once")
        return self


Feature = Column | RangeColumn | ChoiceColumn
"""The name of a column of numbers that is taken as it is; or how a column is read."""


def column_of(feature: Feature) -> str:
    """Its name in the table."""
    return feature if isinstance(feature, str) else feature.column


def names_of(features: Sequence[Feature]) -> tuple[str, ...]:
    """What a model reads, in order.

    Example:
        >>> names_of(["height", RangeColumn(column="age", low=0, high=100), ChoiceColumn(column="sex", choices=["f", "m"])])
        ('height', 'age', 'sex=f', 'sex=m')
    """
    return tuple(
        name
        for feature in features
        for name in (
            [f"{feature.column}={choice}" for choice in feature.choices]
            if isinstance(feature, ChoiceColumn)
            else [column_of(feature)]
        )
    )


def as_json(features: Sequence[Feature] | None) -> list[object] | None:
    """As it was stated.

    Example:
        >>> as_json(["height", RangeColumn(column="age", low=0, high=100)])
        ['height', {'column': 'age', 'low': 0.0, 'high': 100.0}]
    """
    if features is None:
        return None
    return [each if isinstance(each, str) else each.model_dump(mode="json") for each in features]
