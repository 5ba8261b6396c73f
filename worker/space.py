"""The search space as Optuna asks it: dimension by dimension, and only those that a candidate reads."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from tan_core.spec import Choices, ModelSpec, Range, Scalar, SearchSpec, TrainerConfig
from tan_core.spec.conditions import Conditions
from tan_core.spec.grid import Grid
from tan_core.spec.space import Dimension

DRAWS = 100
"""Of points that are spread over a finite space, for one in which no combination comes twice."""
LOOKS, FILLS = 10_000, 100
"""Combinations that are looked at for one that takes the place of a repeated one, and those that are compared."""


def distribution(dimension: Dimension) -> BaseDistribution:
    """A dimension of the search space as Optuna sees it; a fixed value is one choice."""
    if isinstance(dimension, Choices):
        return CategoricalDistribution(tuple(dimension.choices))
    if not isinstance(dimension, Range):
        return CategoricalDistribution((dimension,))
    if dimension.is_integer:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def value_at(of: BaseDistribution, share: float) -> Any:
    """The value below which this share of a distribution lies; of choices each has an equal part."""
    if isinstance(of, CategoricalDistribution):
        return of.choices[min(int(share * len(of.choices)), len(of.choices) - 1)]
    assert isinstance(of, FloatDistribution | IntDistribution)  # noqa: S101 - there is no other
    # A whole number is what is rounded to it, as Optuna draws it.
    rim = 0.5 if isinstance(of, IntDistribution) else 0.0
    low, high = of.low - rim, of.high + rim
    value = low * (high / low) ** share if of.log else low + share * (high - low)
    within = min(max(value, of.low), of.high)
    return round(within) if rim else within


class Space:
    """Dimensions in the order in which they are asked: what others depend on comes first.

    A field that another one makes idle, as ``beta2`` under SGD or ``groups`` of whitened features, is left out
    of the candidates that would not read it, so that the sampler does not learn from values without effect.

    Args:
        search: its ``space``.
        trainer: the values of fields that are not searched.
        model: whose options the keys may name.
    """

    def __init__(self, search: SearchSpec, trainer: TrainerConfig, model: ModelSpec) -> None:
        self._space = search.space
        self._conditions = Conditions(search.space, trainer, model)
        self.distributions = {key: distribution(search.space[key]) for key in self._conditions.keys}

    @property
    def is_conditional(self) -> bool:
        """Whether some candidates lack some dimension."""
        return bool(self._conditions.deciding)

    def is_read(self, key: str, chosen: Mapping[str, Scalar]) -> bool:
        """Whether a candidate with these values of earlier keys reads the dimension."""
        return self._conditions.is_read(key, chosen)

    def spread(self, points: Sequence[Mapping[str, Any]], *, seed: int) -> list[dict[str, Any]]:
        """Points with what they leave out, chosen such that all of them look at all of the space: of every dimension the chosen
        values are equally far apart, in an order of its own. A point may leave out everything.

        A Latin hypercube whose points are shifted together, by dimension, so that choices come equally often. Independent draws
        leave to chance what is looked at: in one of four searches three of them are in one half of a range.
        Dimensions that a candidate does not read are left out. Where there are as many combinations none comes twice, for which, where
        nearly all are there, some values come a little more often than others.

        References:
            McKay, Beckman and Conover (1979), "A comparison of three methods for selecting values of input variables".
        """
        rng = np.random.default_rng(seed)
        found = self._hypercube(points, rng)
        grid = Grid.of(self._space, self._conditions)
        if grid is None or grid.size < len(points):
            return found
        for _ in range(DRAWS):
            if len({*map(_mark, found)}) == len(found):
                return found
            found = self._hypercube(points, rng)
        return self._apart(found, points, seed=seed)

    def _hypercube(
        self, points: Sequence[Mapping[str, Any]], rng: np.random.Generator
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [{} for _ in points]
        for key, dimension in self.distributions.items():
            readers = [at for at, chosen in enumerate(found) if self.is_read(key, chosen)]
            free = [at for at in readers if key not in points[at]]
            shares = (rng.permutation(len(free)) + rng.random()) / max(len(free), 1)
            values = {
                at: value_at(dimension, share)
                for at, share in zip(free, shares.tolist(), strict=True)
            }
            for at in readers:
                found[at][key] = values[at] if at in values else points[at][key]
        return found

    def others(self, points: Sequence[Mapping[str, Any]], *, seed: int) -> Iterator[dict[str, Any]]:
        """Each combination of a space that is finite but for these, in an order that is drawn; of another space none."""
        grid = Grid.of(self._space, self._conditions)
        seen = {_mark(point) for point in points}
        if grid is not None:
            yield from (each for each in grid.shuffled(seed=seed) if _mark(each) not in seen)

    def _apart(
        self, found: list[dict[str, Any]], points: Sequence[Mapping[str, Any]], *, seed: int
    ) -> list[dict[str, Any]]:
        """The same with another combination for each that is there already, as far as its point leaves one: of some of these the
        one whose values are there least often. Points that leave least choose first.
        """
        done: list[dict[str, Any]] = []
        for at in sorted(range(len(found)), key=lambda at: len(points[at]), reverse=True):
            if found[at] in done:
                times = Counter(item for each in found for item in each.items())
                others = islice(self.others(done, seed=seed), LOOKS)
                fitting = (each for each in others if _fits(each, points[at]))
                found[at] = min(
                    islice(fitting, FILLS),
                    key=lambda each: (each in found, sum(times[item] for item in each.items())),
                    default=found[at],
                )
            done.append(found[at])
        return found

    def of(self, params: Mapping[str, Scalar]) -> dict[str, BaseDistribution]:
        """The dimensions that these parameters have values of."""
        return {key: self.distributions[key] for key in params if key in self.distributions}


def _mark(point: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    """What equal points share."""
    return frozenset(point.items())


def _fits(candidate: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    """Whether a candidate has the values of a point that it reads."""
    return all(candidate.get(key, value) == value for key, value in point.items())
