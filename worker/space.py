"""The search space as Optuna asks it: dimension by dimension, and only those that a candidate reads."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from tan_core.spec import Choices, ModelSpec, Range, Scalar, SearchSpec, TrainerConfig
from tan_core.spec.fields import Place, field_of, needs_of
from tan_core.spec.needs import Need
from tan_core.spec.space import Dimension


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
        # What a need asks is no part of it: Tune writes its searchers down.
        self._trainer, self._model = trainer, model
        self._places = {key: field_of(key, model) for key in search.space}
        ordered = sorted(search.space, key=lambda key: len([*self._needed(key)]))
        self.distributions = {key: distribution(search.space[key]) for key in ordered}

    @property
    def is_conditional(self) -> bool:
        """Whether some candidates lack some dimension."""
        searched = {place for place in self._places.values() if place is not None}
        return any(other in searched for key in self._places for other, _ in self._needed(key))

    def is_read(self, key: str, chosen: Mapping[str, Scalar]) -> bool:
        """Whether a candidate with these values of earlier keys reads the dimension."""
        return all(need.is_met(self._value(other, chosen)) for other, need in self._needed(key))

    def spread(self, count: int, *, seed: int) -> list[dict[str, Any]]:
        """Candidates that look at all of the space: of every dimension their values are equally far apart, in an order of its own.

        A Latin hypercube whose points are shifted together, by dimension, so that choices come equally often. Independent draws
        leave to chance what is looked at: in one of four searches three of them are in one half of a range.
        Dimensions that a candidate does not read are left out.

        References:
            McKay, Beckman and Conover (1979), "A comparison of three methods for selecting values of input variables".
        """
        rng = np.random.default_rng(seed)
        places = {
            key: (rng.permutation(count) + rng.random()) / count for key in self.distributions
        }
        found: list[dict[str, Any]] = []
        for number in range(count):
            chosen: dict[str, Any] = {}
            for key, dimension in self.distributions.items():
                if self.is_read(key, chosen):
                    chosen[key] = value_at(dimension, float(places[key][number]))
            found.append(chosen)
        return found

    def of(self, params: Mapping[str, Scalar]) -> dict[str, BaseDistribution]:
        """The dimensions that these parameters have values of."""
        return {key: self.distributions[key] for key in params if key in self.distributions}

    def _needed(self, key: str) -> Iterator[tuple[Place, Need]]:
        """The fields that decide whether a dimension is read."""
        place = self._places[key]
        if place is not None:
            for need in needs_of(place, self._model, self._places.values()):
                yield (place[0], need.other), need

    def _value(self, place: Place, chosen: Mapping[str, Scalar]) -> Any:
        for key, value in chosen.items():
            if self._places.get(key) == place:
                return value
        section, field = place
        return getattr(self._trainer if section == "train" else self._model, field)
