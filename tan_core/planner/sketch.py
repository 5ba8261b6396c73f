"""A plan at a glance: within milliseconds, for whoever turns a dial. What is promised is planned anew."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from tan_core import _validate
from tan_core.accounting import calibrate_noise_multiplier, price
from tan_core.accounting.events import sampled_gaussian
from tan_core.accounting.loss_distribution import (
    COARSE,
    FINE,
    MIN_NOISE_MULTIPLIER,
    loss_profile,
)
from tan_core.errors import AccountantError
from tan_core.mechanism import Mechanism, NeighboringRelation
from tan_core.planner.cost import Workload, planned_cost
from tan_core.planner.plan import PlannedCost
from tan_core.planner.segments import segment_rule
from tan_core.planner.shape import refuse_batch_above
from tan_core.spec import SearchSpec
from tan_core.tan import epsilon_tan, eta_of, limit_epsilon

TOLERANCE = 1.10
"""The wall begins where epsilon is a tenth above what the same total noise costs at a huge batch."""

_LEAST_NOISE, _FLAT_FROM, _MOST_NOISE = 0.45, 4.0, 16.0
_BENT_POINTS, _FLAT_POINTS = 11, 4
_COARSE_EXCESS = 1.006  # what a coarse grid adds to epsilon
_DOUBLINGS = 4
"""Of the batch, each way, that the cost is shown for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dials:
    """What is turned.

    Args:
        num_examples: N.
        expected_batch_size: B, at most N.
        steps: S.
        epsilon: the target, kept with the slack that is reserved.
        delta: in [1e-10, 1).
        trials: of the search.
        neighboring_relation: which datasets are neighbours.
    """

    num_examples: int
    expected_batch_size: int
    steps: int
    epsilon: float
    delta: float
    trials: int = 24
    neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCost:
    """What a study with another batch and the same steps would process."""

    expected_batch_size: int
    cost: PlannedCost


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The run's total noise at another noise multiplier, on a coarse grid: epsilon is up to 0.7 % above."""

    noise_multiplier: float
    sampling_rate: float
    epsilon: float
    overcharge: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """The run that the dials ask for. No accountant has confirmed it.

    Args:
        run: the planned steps, with the least noise that meets the target.
        epsilon: of those steps, without the slack.
        signal_to_noise: eta.
        epsilon_tan: the paper's estimate, neither an upper nor a lower bound.
        overcharge: epsilon over its limit at a huge batch.
        wall: about the noise multiplier below which the overcharge is above :data:`TOLERANCE`; 0 where
            the curve does not reach so far down, infinity where all of it lies behind.
        curve: the same total noise at other noise multipliers, rising; empty where our own grid has none,
            as of a unit that is replaced.
        costs: at batches around the run's own, rising.
    """

    run: Mechanism
    epsilon: float
    signal_to_noise: float
    epsilon_tan: float
    overcharge: float
    wall: float
    curve: tuple[CurvePoint, ...]
    costs: tuple[BatchCost, ...]


@lru_cache(maxsize=512)
def sketch(dials: Dials) -> Sketch:
    """What a study with these dials would run and cost: noise and epsilon to 0.1 % of ``plan_study``'s.

    Raises:
        ParameterError: a dial is out of its domain.
        UnreachableTargetError: no noise meets the target.

    Example:
        >>> found = sketch(
        ...     Dials(
        ...         num_examples=50_000,
        ...         expected_batch_size=4096,
        ...         steps=2500,
        ...         epsilon=8.0,
        ...         delta=1e-5,
        ...     )
        ... )
        >>> f"sigma = {found.run.noise_multiplier:.2f}, the wall is at {found.wall:.2f}"
        'sigma = 2.62, the wall is at 1.96'
    """
    _validate.positive_integer(num_examples=dials.num_examples, steps=dials.steps)
    refuse_batch_above(dials.num_examples, dials.expected_batch_size)
    run = _calibrated(dials)
    eta = eta_of(run)
    limit = _Limit(run, dials.delta, limit_epsilon(run, delta=dials.delta))
    curve = limit.points(_around(run))
    epsilon = limit.epsilon_at(run.noise_multiplier)
    return Sketch(
        run=run,
        epsilon=epsilon,
        signal_to_noise=eta,
        epsilon_tan=epsilon_tan(signal_to_noise=eta, delta=dials.delta),
        overcharge=limit.ratio(epsilon),
        wall=_wall(limit, curve),
        curve=tuple(curve),
        costs=_costs(dials),
    )


@dataclass(frozen=True, slots=True)
class _Limit:
    """The run's total noise: its price at any noise multiplier, against that at a huge one."""

    run: Mechanism
    delta: float
    epsilon: float

    def ratio(self, epsilon: float) -> float:
        return epsilon / self.epsilon if self.epsilon > 0 else math.inf

    def epsilon_at(self, noise_multiplier: float) -> float:
        """By our own loss distribution on a fine grid; by the accountant where that does not fit."""
        epsilon = self._own(noise_multiplier, FINE)
        if epsilon is not None:
            return epsilon
        return price([self._moved(noise_multiplier)], delta=self.delta).epsilon

    def points(self, noise_multipliers: Sequence[float]) -> list[CurvePoint]:
        """On a coarse grid; what it does not fit is left out, for the accountant takes seconds there."""
        return [
            CurvePoint(
                noise_multiplier=noise_multiplier,
                sampling_rate=self._moved(noise_multiplier).sampling_rate,
                epsilon=epsilon,
                overcharge=self.ratio(epsilon),
            )
            for noise_multiplier in noise_multipliers
            if (epsilon := self._own(noise_multiplier, COARSE)) is not None
        ]

    def _own(self, noise_multiplier: float, fraction: float) -> float | None:
        event = sampled_gaussian(self._moved(noise_multiplier))
        if event is None:
            return None
        try:
            profile = loss_profile([event], delta=self.delta, fraction=fraction, tight=False)
        except AccountantError:
            return None
        return profile.epsilon(self.delta)

    def _moved(self, noise_multiplier: float) -> Mechanism:
        rate = self.run.sampling_rate * (noise_multiplier / self.run.noise_multiplier)
        return replace(self.run, noise_multiplier=noise_multiplier, sampling_rate=min(rate, 1.0))


def _wall(limit: _Limit, curve: Sequence[CurvePoint]) -> float:
    """Where the curve crosses the tolerance: between two of its points, then a step on a fine grid."""
    excesses = [_excess(point.overcharge / _COARSE_EXCESS) for point in curve]
    if not excesses or excesses[0] <= 0:
        return 0.0
    for (left, high), (right, low) in pairwise(zip(curve, excesses, strict=True)):
        if low > 0:
            continue
        width = math.log(right.noise_multiplier / left.noise_multiplier)
        slope = (low - high) / width
        crossing = left.noise_multiplier * math.exp(-high / slope)
        missed = _excess(limit.ratio(limit.epsilon_at(crossing)))
        return crossing * math.exp(-missed / slope)
    return math.inf


def _excess(ratio: float) -> float:
    """How far an overcharge is above the tolerance, by the logarithm of what it is above 1."""
    return math.log(max(ratio - 1, 1e-6) / (TOLERANCE - 1))


def _calibrated(dials: Dials) -> Mechanism:
    rate = dials.expected_batch_size / dials.num_examples
    noise_multiplier = calibrate_noise_multiplier(
        sampling_rate=rate,
        steps=dials.steps + segment_rule(dials.steps).slack_steps,
        epsilon=dials.epsilon,
        delta=dials.delta,
        neighboring_relation=dials.neighboring_relation,
        certified=False,
    )
    return Mechanism(
        sampling_rate=rate,
        noise_multiplier=noise_multiplier,
        clip_norm=1.0,
        steps=dials.steps,
        neighboring_relation=dials.neighboring_relation,
    )


def _around(run: Mechanism) -> list[float]:
    """Noise multipliers from behind the wall to the flat part or the full batch, the run's among them."""
    sigma = run.noise_multiplier
    full_batch = sigma / run.sampling_rate
    low = min(max(min(_LEAST_NOISE, 0.8 * sigma), MIN_NOISE_MULTIPLIER), sigma, full_batch)
    high = min(max(_MOST_NOISE, 2 * sigma), full_batch)
    flat_from = min(max(_FLAT_FROM, low), high)
    return sorted(
        {*_spread(low, flat_from, _BENT_POINTS), *_spread(flat_from, high, _FLAT_POINTS), sigma}
    )


def _spread(low: float, high: float, count: int) -> list[float]:
    """Both ends and what lies between, evenly by ratio."""
    between = [low * (high / low) ** (i / (count - 1)) for i in range(1, count - 1)]
    return [low, *between, high]


def _costs(dials: Dials) -> tuple[BatchCost, ...]:
    workload = Workload(
        trials=dials.trials,
        rungs="auto",
        views=1,
        search_num_examples=dials.num_examples,
        workers=1,
        budget=SearchSpec.model_fields["budget"].default,
    )
    batch = dials.expected_batch_size
    sizes = {batch} | {round(batch * 2.0**k) for k in range(-_DOUBLINGS, _DOUBLINGS + 1)}
    return tuple(
        BatchCost(
            expected_batch_size=size,
            cost=planned_cost(
                workload, batch=size, steps=dials.steps, rates=None, memory_bytes=None
            ),
        )
        for size in sorted(sizes)
        if 1 <= size <= dials.num_examples
    )
