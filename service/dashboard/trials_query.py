"""Which trials a table shows, in which order and with which columns: what an address says, and the form above it."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Self
from urllib.parse import urlencode

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, field_validator

from service.dashboard.charts.axis import ACCURACY, Axis
from service.errors import InvalidInputError
from tan_core.spec import Scalar, field_problems
from tan_core.wire import TrialState

_LISTS = frozenset({"trial_state", "hide"})
_BY_NAME = frozenset({"low", "high", "one_of"})
_ORDER = re.compile(r"-?(number|best|seconds|rung\.\d|param\.[A-Za-z0-9_.-]{1,100})")
_Choice = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=200)]
ParamName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=100)]


class TrialsQuery(BaseModel):
    """What the address of a study says about its table."""

    model_config = ConfigDict(frozen=True)

    order: Annotated[str, Field(max_length=120)] = "-number"
    """``number``, ``best``, ``seconds``, ``rung.0`` or ``param.NAME``; a minus puts the largest first."""
    trials: Annotated[int, Field(ge=1, le=100_000, description="Page")] = 1
    trial_state: Annotated[list[TrialState], Field(max_length=10)] = []
    rung: Annotated[int, Field(ge=0, le=7)] | None = None
    """Only those that were scored there."""
    low: Annotated[dict[ParamName, FiniteFloat], Field(max_length=100)] = {}
    """Only those whose parameter, or accuracy, is this or more: ``low.NAME`` in the address."""
    high: Annotated[dict[ParamName, FiniteFloat], Field(max_length=100)] = {}
    """Only those where it is this or less."""
    one_of: Annotated[
        dict[ParamName, Annotated[list[_Choice], Field(max_length=100)]], Field(max_length=100)
    ] = {}
    """Only those whose parameter is one of these, as they are written."""
    hide: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=70)] = []
    chart_rung: Annotated[int, Field(ge=0, le=7)] | None = None
    """Of the charts above the table, where one was chosen."""
    curves_rung: Annotated[int, Field(ge=0, le=7)] | None = None
    """Of the learning curves, likewise."""
    across: ParamName | None = None
    """The parameter from left to right where two are shown at once, if one was chosen."""
    up: ParamName | None = None
    """The other one."""

    @field_validator("order")
    @classmethod
    def _is_known(cls, order: str) -> str:
        if not _ORDER.fullmatch(order):
            raise ValueError("order is number, best, seconds, rung.0 or param.NAME, - before it")
        return order

    @classmethod
    def read(cls, fields: Iterable[tuple[str, str]]) -> Self:
        """The query of an address. A field that is empty says nothing.

        Raises:
            InvalidInputError: a field means nothing here.
        """
        given: dict[str, Any] = {}
        for name, value in fields:
            kind, dot, key = name.partition(".")
            if not value:
                continue
            if kind == "one_of" and dot:
                given.setdefault(kind, {}).setdefault(key, []).append(value)
            elif kind in _BY_NAME and dot:
                given.setdefault(kind, {})[key] = value
            elif name in _LISTS:
                given.setdefault(name, []).append(value)
            elif name not in _BY_NAME:
                given[name] = value
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise InvalidInputError.of(field_problems(error, cls)) from None

    @property
    def chosen_by(self) -> set[str]:
        """Names of what trials are chosen by, beside their state and rung."""
        return {*self.low, *self.high, *self.one_of}

    @property
    def is_filter(self) -> bool:
        """Whether it shows less than every trial."""
        return bool(self.trial_state or self.rung is not None or self.chosen_by)

    def text(self, **changes: Any) -> str:
        """As a query; what is as usual is left out."""
        changed = self.model_copy(update=changes)
        fields: dict[str, Any] = {}
        for name, value in changed.model_dump(mode="json", exclude_defaults=True).items():
            named = isinstance(value, Mapping)
            fields |= {f"{name}.{key}": each for key, each in value.items()} if named else {name: value}  # fmt: skip
        return urlencode(fields, doseq=True)

    @property
    def of_charts(self) -> str:
        """What the charts above the table are asked for with, as a query."""
        asked = {"rung": self.chart_rung, "across": self.across, "up": self.up}
        return urlencode({name: value for name, value in asked.items() if value is not None})

    def turned(self, key: str) -> str:
        """The order by a column; the other way round where it is the order already."""
        return f"-{key}" if self.order == key else key

    def direction(self, key: str) -> str | None:
        """What ``aria-sort`` says of a column."""
        if self.order.removeprefix("-") != key:
            return None
        return "descending" if self.order.startswith("-") else "ascending"


def written(value: Scalar) -> str:
    """A choice as ``one_of.NAME`` has it."""
    return value if isinstance(value, str) else json.dumps(value)


def ranges_of(axes: Sequence[Axis]) -> list[tuple[str, tuple[str, str], str]]:
    """What can be chosen between two numbers: its name, the ends of what there is, and the step of a field."""
    searched = [
        (axis.name, (axis.labels[0], axis.labels[-1]), "any" if axis.integers is None else "1")
        for axis in axes
        if not axis.choices
    ]
    return [(ACCURACY, ("0", "1"), "any"), *searched]


def read_query(request: Request) -> TrialsQuery:
    """The query of a request."""
    return TrialsQuery.read(request.query_params.multi_items())
