"""The search space as Optuna asks it: dimension by dimension, and only those that a candidate reads."""

from collections.abc import Mapping, Sequence
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
        Dimensions that a candidate does not read are left out.

        References:
            McKay, Beckman and Conover (1979), "A comparison of three methods for selecting values of input variables".
        """
        rng = np.random.default_rng(seed)
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

    def of(self, params: Mapping[str, Scalar]) -> dict[str, BaseDistribution]:
        """The dimensions that these parameters have values of."""
        return {key: self.distributions[key] for key in params if key in self.distributions}
