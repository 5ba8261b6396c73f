"""Spaces of finitely many candidates: how many there are, and each of them once."""

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import InitErrorDetails

from tan_core.spec.base import fault
from tan_core.spec.conditions import Conditions
from tan_core.spec.space import Dimension, Range, Scalar, as_written, values_of


class Grid:
    """All combinations that differ of the values of a space. What a combination does not read is no part of it.

    They are counted and found by their place without being listed: there may be more of them than a computer holds.

    Args:
        values: of each key.
        conditions: of these keys.
    """

    def __init__(self, values: Mapping[str, Sequence[Scalar]], conditions: Conditions) -> None:
        self._values, self._conditions = values, conditions
        self._deciding = {*conditions.deciding}
        self._sizes: dict[tuple[Any, ...], int] = {}
        self.size = self._rest(0, {})
        """How many there are."""

    @classmethod
    def of(cls, space: Mapping[str, Dimension], conditions: Conditions) -> "Grid | None":
        """The grid of a space; None where a dimension has no end of values."""
        values = {key: values_of(dimension) for key, dimension in space.items()}
        finite = {key: each for key, each in values.items() if each is not None}
        return cls(finite, conditions) if len(finite) == len(values) else None

    def at(self, place: int) -> dict[str, Scalar]:
        """The combination at this place, of ``size``."""
        chosen: dict[str, Scalar] = {}
        for depth, key in enumerate(self._conditions.keys, start=1):
            if not self._conditions.is_read(key, chosen):
                continue
            if key not in self._deciding:
                at, place = divmod(place, self._rest(depth, chosen))
                chosen[key] = self._values[key][at]
                continue
            for value in self._values[key]:
                chosen[key] = value
                size = self._rest(depth, chosen)
                if place < size:
                    break
                place -= size
        return chosen

    def shuffled(self, *, seed: int) -> Iterator[dict[str, Scalar]]:
        """All of them in an order that is random, and the same for the same seed."""
        draw = random.Random(seed)  # noqa: S311 - what is proposed is no secret
        # Fisher and Yates, who swap places on demand.
        moved: dict[int, int] = {}
        for at in range(self.size):
            drawn = draw.randrange(at, self.size)
            place = moved.get(drawn, drawn)
            moved[drawn] = moved.pop(at, at)
            yield self.at(place)

    def _rest(self, depth: int, chosen: Mapping[str, Scalar]) -> int:
        """How many combinations have these values of the first keys."""
        state = (depth, *(chosen.get(key) for key in self._deciding))
        if state not in self._sizes:
            self._sizes[state] = self._counted(depth, chosen)
        return self._sizes[state]

    def _counted(self, depth: int, chosen: Mapping[str, Scalar]) -> int:
        if depth == len(self._conditions.keys):
            return 1
        key = self._conditions.keys[depth]
        if not self._conditions.is_read(key, chosen):
            return self._rest(depth + 1, chosen)
        values = self._values[key]
        if key not in self._deciding:
            return len(values) * self._rest(depth + 1, chosen)
        return sum(self._rest(depth + 1, {**chosen, key: value}) for value in values)


def grid_faults(
    space: Mapping[str, Dimension], conditions: Conditions, *, trials: int | None
) -> Iterator[InitErrorDetails]:
    """Why the combinations of a space cannot be tried one after another; ``trials``: so many different ones, None: any."""
    grid = Grid.of(space, conditions)
    if grid is None:
        for key, dimension in space.items():
            if isinstance(dimension, Range) and not dimension.is_integer:
                few = json.dumps(_few_of(dimension))
                problem = f"a grid is made of values that are written down; write choices: {few}, or others"
                yield fault("spec", ("search", "space", key), as_written(dimension), problem)
    elif trials is not None and trials > grid.size:
        problem = (
            f"search.space has {grid.size} combinations, and a grid tries each once; "
            f"accepted: 1 to {grid.size}, got {trials}"
        )
        yield fault("spec", ("search", "trials"), trials, problem)


def _few_of(dimension: Range) -> list[float]:
    """The ends and the middle."""
    low, high = dimension.low, dimension.high
    middle = math.exp((math.log(low) + math.log(high)) / 2) if dimension.log else (low + high) / 2
    return list(dict.fromkeys([low, min(max(float(f"{middle:.3g}"), low), high), high]))
