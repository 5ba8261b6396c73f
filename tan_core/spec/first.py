"""``search.first``: points that a search tries before any other, and why some cannot be tried."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import InitErrorDetails

from tan_core.spec.base import fault
from tan_core.spec.conditions import Conditions
from tan_core.spec.space import (
    MAX_DIMENSIONS,
    Choices,
    Dimension,
    Range,
    Scalar,
    as_written,
    only_value,
    within,
)

MAX_POINTS = 1000
Point = Annotated[dict[str, Scalar], Field(min_length=1, max_length=MAX_DIMENSIONS)]
"""Values of keys of the space; a key that it lacks is chosen by the search."""


def written(point: Mapping[str, Scalar], space: Mapping[str, Dimension]) -> dict[str, Scalar]:
    """A point of the space with its values as the dimensions write them.

    Example:
        >>> written({"learning_rate": 1}, {"learning_rate": Range(low=0.5, high=2.0)})
        {'learning_rate': 1.0}
    """
    found = {key: within(value, space[key]) for key, value in point.items()}
    return {key: point[key] if value is None else value for key, value in found.items()}


def varied(point: Mapping[str, Scalar], space: Mapping[str, Dimension]) -> dict[str, Scalar]:
    """The part of a point that is not the same in all of the space: what makes it another one.

    Example:
        >>> varied({"momentum": 0.9, "steps": 10}, {"momentum": 0.9, "steps": Range(low=1, high=20)})
        {'steps': 10}
    """
    return {key: value for key, value in point.items() if only_value(space[key]) is None}


def first_faults(
    first: Sequence[Mapping[str, Scalar]],
    space: Mapping[str, Dimension],
    conditions: Conditions,
    *,
    trials: int,
) -> Iterator[InitErrorDetails]:
    """Why points cannot be tried first.

    Args:
        first: as they were given.
        space: each key that it has names a field.
        conditions: of the space.
        trials: how many points are tried at most.
    """
    if len(first) > trials:
        problem = f"each of these points is a trial, and search.trials is {trials}; got {len(first)} points"
        yield _fault((), len(first), problem)
    seen: dict[frozenset[tuple[str, Scalar]], int] = {}
    for index, point in enumerate(first):
        faults = [*_point_faults(index, point, space, conditions)]
        yield from faults
        if faults:
            continue
        earlier = seen.setdefault(frozenset(varied(point, space).items()), index)
        if earlier != index:
            problem = f"the same point as search.first.{earlier}; each is tried once"
            yield _fault((index,), dict(point), problem)


def _point_faults(
    index: int, point: Mapping[str, Scalar], space: Mapping[str, Dimension], conditions: Conditions
) -> Iterator[InitErrorDetails]:
    fixed = {key: only_value(dimension) for key, dimension in space.items()}
    known = {key: value for key, value in fixed.items() if value is not None} | {**point}
    for key, value in point.items():
        if key not in space:
            problem = f"not a key of search.space; accepted: {', '.join(space)}"
        elif within(value, space[key]) is None:
            problem = f"outside search.space.{key}; accepted: {_accepted(space[key])}"
        else:
            problem = _idle(key, known, conditions)
        if problem is not None:
            yield _fault((index, key), value, problem)


def _idle(key: str, known: Mapping[str, Scalar], conditions: Conditions) -> str | None:
    """Why candidates with these values need not read the key."""
    for other, need in conditions.needed(key):
        if not conditions.is_settled(other, known):
            return f"is read for some {need.other} only: give it too, {need.wanted}"
        value = conditions.value(other, known)
        if not need.is_met(value):
            return f"has no effect: {need.other} must be {need.wanted}, got {value}"
    return None


def _accepted(dimension: Dimension) -> str:
    if isinstance(dimension, Choices):
        return json.dumps(dimension.choices)[1:-1]
    if isinstance(dimension, Range):
        kind = "whole numbers" if dimension.is_integer else "numbers"
        return f"{kind} from {dimension.low!r} to {dimension.high!r}"
    return json.dumps(as_written(dimension))


def _fault(path: tuple[int | str, ...], value: Any, message: str) -> InitErrorDetails:
    return fault("spec", ("search", "first", *path), value, message)
