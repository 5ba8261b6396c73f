r"""Epsilon by privacy loss distributions (dp-accounting, connect-the-dots): tight and never below.

The grid of privacy losses is fitted to the mechanism: a fraction of the standard deviation of one
step's loss. A fixed grid is either slow or, at small sampling rates, far above the truth.
Connect-the-dots rounds up on any grid, so a coarse one costs tightness and nothing else.

A fine one may cost tightness, too: the library takes a step's probabilities as differences of deltas
over the width of a cell, and what is round-off in them and positive is kept. Over millions of steps of
small sampling rates that adds up to a mass above one. There, coarser grids are asked as well: each gives
an upper bound, and the least of them is the answer.
"""

import math
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tan_core.accounting.effort import check_effort
from tan_core.accounting.events import loss_variance, pld_event, relation_of
from tan_core.accounting.sums import FEW, Counted, Sums, coarsened
from tan_core.errors import AccountantError
from tan_core.mechanism import Mechanism, NeighboringRelation

if TYPE_CHECKING:
    import dp_accounting
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

CONVERSION = "pld connect-the-dots"
MIN_NOISE_MULTIPLIER = 1e-3
ROUND_OFF_PER_STEP = 2.0**-52
"""Of delta: a power of S in Fourier space carries S roundings of its base."""
_CUT_OFF = 2e-15
"""Of delta: twice what the library cuts off a sum of two and takes for certain, which depends on their order."""

_GRID_FRACTION = 0.05  # of one step's standard deviation: epsilon is 0.024 % above its limit
_FINEST_GRID, _COARSEST_GRID = (
    2.0**-40,
    2e-3,
)  # below: all is 0; above: visible where noise is small
_STEP_ROUND_OFF = (
    2.0**-54
)  # measured: mass above one of a step, times cell^2 over its losses' range
_NEGLIGIBLE_ROUND_OFF = 0.01  # mass above one of the sum: 0.06 % of epsilon
_MOST_ROUND_OFF = 40.0  # log of the sum's mass: above, the library's bounds on its tails are none
_GRID_COST = 0.1  # of epsilon, relative, times the square of the grid's fraction: measured
_ROUND_OFF_COST = 1 / 16  # of epsilon, relative, for each mass above one: about, at small deltas
_MAX_STEP_POINTS = 2**19  # of one step's distribution
_MAX_RUN_POINTS = 2**20  # of the composed one; both bound time to a few seconds
_MAX_WINDOW_POINTS = 2**23  # that the library would look at for it
_MANY = 100  # steps: below it the library may choose how it keeps them


@dataclass(frozen=True)
class PldProfile:
    """The profile of a composition, by dp-accounting. Made by :func:`pld_profile`.

    Both answers take what a long composition loses of delta in Fourier space for lost. Composed when it
    is first asked for an answer that it can have.
    """

    _mechanisms: Sequence[Mechanism]
    _lost: float

    @cached_property
    def _bounds(self) -> "_Bounds":
        return _bounds(self._mechanisms)

    def delta(self, epsilon: float) -> float:
        """The least delta known to hold at an epsilon >= 0."""
        least = self._bounds.least(lambda losses: float(losses.get_delta_for_epsilon(epsilon)))
        return min(least + self._lost, 1.0)

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 known to hold at a delta.

        Raises:
            AccountantError: round-off is no longer small against delta.
        """
        if self._lost > delta / 10:
            raise AccountantError(
                f"so many steps lose {self._lost:.1g} of delta to round-off: no epsilon at "
                f"delta = {delta:.3g}; fewer steps have one"
            )
        spendable = delta - self._lost
        return self._bounds.least(lambda losses: float(losses.get_epsilon_for_delta(spendable)))


def pld_profile(mechanisms: Sequence[Mechanism]) -> PldProfile:
    """The privacy profile of a composition; it bounds the true one from above everywhere.

    Raises:
        UnsupportedEventError: batches of fixed size; truncated or unamplified ones between datasets of
            unlike size.
        AccountantError: less noise than the accountant can take, or it failed.
    """
    for mechanism in mechanisms:
        if mechanism.noise_multiplier < MIN_NOISE_MULTIPLIER:
            raise AccountantError(
                f"pld needs noise_multiplier >= {MIN_NOISE_MULTIPLIER:g}, "
                f"got {mechanism.noise_multiplier:g}"
            )
    loads = [_load(mechanism) for mechanism in mechanisms]
    lost = ROUND_OFF_PER_STEP * sum(load.steps for load in loads)
    if _are_many(loads):
        lost += _CUT_OFF * len(loads)
    return PldProfile(mechanisms, lost)


@dataclass(frozen=True, slots=True)
class Excess:
    """What an answer of :class:`PldProfile` may be above the truth by, beyond its usual 0.03 %.

    Args:
        relative: of epsilon, by the width of the cells.
        mass: of all losses above one, by round-off: delta is up to ``exp(mass)`` times the true one.
    """

    relative: float
    mass: float


def pld_excess(mechanisms: Sequence[Mechanism]) -> Excess:
    """How loose PLD may be: next to nothing but for millions of steps of small sampling rates."""
    loads = [_load(mechanism) for mechanism in mechanisms]
    spread, round_off = _spread(loads), _round_off(loads)

    def cost(grid: float) -> float:
        return _GRID_COST * (grid / spread) ** 2 + _ROUND_OFF_COST * round_off / grid**2

    best = min(_grids(loads), key=cost)
    return Excess(relative=_GRID_COST * (best / spread) ** 2, mass=round_off / best**2)


@dataclass
class _Bounds:
    """The loss of a composition on each of some grids, finest first; composed when asked for."""

    events: "Counter[dp_accounting.DpEvent]"
    relation: "dp_accounting.NeighboringRelation"
    grids: list[float]
    _known: "dict[float, PrivacyLossDistribution | None]" = field(default_factory=dict)

    def least(self, ask: "Callable[[PrivacyLossDistribution], float]") -> float:
        """The least answer: what cells and round-off cost together falls and then rises with the grid.

        Raises:
            AccountantError: the library failed, or round-off leaves nothing on any grid.
        """
        least = math.inf
        with _as_accountant_error():
            for grid in self.grids:
                losses = self.on(grid)
                found = math.inf if losses is None else ask(losses)
                if found >= least < math.inf:
                    break
                least = found
        if math.isinf(least) and all(losses is None for losses in self._known.values()):
            raise AccountantError(
                f"pld loses its digits over {sum(self.events.values()):,} steps of so small a sampling "
                "rate; fewer steps keep them"
            )
        return least

    def on(self, grid: float) -> "PrivacyLossDistribution | None":
        """None where round-off leaves nothing of it."""
        if grid not in self._known:
            self._known[grid] = _composed(self.events, grid=grid, relation=self.relation)
        return self._known[grid]


def _bounds(mechanisms: Sequence[Mechanism]) -> _Bounds:
    events: Counter[dp_accounting.DpEvent] = Counter()  # equal steps are composed at once
    for mechanism in mechanisms:
        event, count = pld_event(mechanism)
        events[event] += count
    loads = [_load(mechanism) for mechanism in mechanisms]
    return _Bounds(events, relation_of(mechanisms), _narrow_enough(loads, _grids(loads)))


def _composed(
    events: "Counter[dp_accounting.DpEvent]",
    *,
    grid: float,
    relation: "dp_accounting.NeighboringRelation",
) -> "PrivacyLossDistribution | None":
    from dp_accounting.pld import privacy_loss_distribution  # see the note in events.py

    if len(events) > FEW:
        return _sum_of_many(events, grid=grid, relation=relation)
    losses = privacy_loss_distribution.identity(value_discretization_interval=grid)
    for event, count in events.items():
        check_effort("pld")
        of_event = _of_event(event, count, grid=grid, relation=relation)
        if of_event is None:
            return None
        losses = losses.compose(of_event)
    return losses


_Losses: "TypeAlias" = "PrivacyLossDistribution | None"


def _sum_of_many(
    events: "Counter[dp_accounting.DpEvent]",
    *,
    grid: float,
    relation: "dp_accounting.NeighboringRelation",
) -> "_Losses":
    """The same, branch by branch: the library adds each two of them, and cuts as much off, as it would in a row."""

    def leaf(event: "Counted[dp_accounting.DpEvent]") -> "_Losses":
        check_effort("pld")
        return _of_event(event.part, event.count, grid=grid, relation=relation)

    def add(one: "_Losses", other: "_Losses") -> "_Losses":
        check_effort("pld")
        return None if one is None or other is None else one.compose(other)

    counted = [Counted(event, count) for event, count in events.items()]
    return _sums.of(counted, on=(grid, relation), leaf=leaf, add=add)


def _size(losses: "_Losses") -> int:
    """With what the library has cut off, and holds as well."""
    if losses is None:
        return 1
    return 3 * (losses._pmf_remove.size + losses._pmf_add.size) // 2  # pyright: ignore[reportPrivateUsage]


_sums: "Sums[dp_accounting.DpEvent, _Losses]" = Sums(_size)


def _of_event(
    event: "dp_accounting.DpEvent",
    count: int,
    *,
    grid: float,
    relation: "dp_accounting.NeighboringRelation",
) -> "PrivacyLossDistribution | None":
    """The loss of so many equal steps, as dp-accounting's own accountant composes them.

    None where the mass that round-off adds would grow beyond what the library can bound a window for.
    """
    import dp_accounting
    from dp_accounting.pld import privacy_loss_distribution as pld

    match event:
        case dp_accounting.GaussianDpEvent():
            deviation = event.noise_multiplier / math.sqrt(count)
            return pld.from_gaussian_mechanism(
                standard_deviation=deviation,
                value_discretization_interval=grid,
                neighboring_relation=relation,
            )
        case dp_accounting.PoissonSampledDpEvent(event=dp_accounting.GaussianDpEvent() as gaussian):
            step = pld.from_gaussian_mechanism(
                standard_deviation=gaussian.noise_multiplier,
                value_discretization_interval=grid,
                sampling_prob=event.sampling_probability,
                neighboring_relation=relation,
            )
        case dp_accounting.TruncatedSubsampledGaussianDpEvent():
            step = pld.from_truncated_subsampled_gaussian_mechanism(
                dataset_size=event.dataset_size,
                sampling_probability=event.sampling_probability,
                truncated_batch_size=event.truncated_batch_size,
                noise_multiplier=event.noise_multiplier,
                value_discretization_interval=grid,
                neighboring_relation=relation,
            )
        case _:
            raise AccountantError(f"pld does not know {event}")
    if count < _MANY:
        return step.self_compose(count)
    dense = _dense(step)
    return None if count * _mass_above_one(dense) > _MOST_ROUND_OFF else dense.self_compose(count)


def _mass_above_one(step: "PrivacyLossDistribution") -> float:
    """Of the worse direction."""
    return max(
        float(np.sum(pmf._probs)) - 1  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
        for pmf in (step._pmf_remove, step._pmf_add)  # pyright: ignore[reportPrivateUsage]
    )


def _dense(step: "PrivacyLossDistribution") -> "PrivacyLossDistribution":
    """The same loss, its points in an array.

    The library would make it so itself, but decides that from the number of points to the power of steps,
    as an exact integer: for ten million steps a minute in one call, which nobody can stop and which lets
    no other thread of the process run.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    remove, add = step._pmf_remove, step._pmf_add  # pyright: ignore[reportPrivateUsage]
    return PrivacyLossDistribution(
        remove.to_dense_pmf(), None if add is remove else add.to_dense_pmf()
    )


def _narrow_enough(loads: Sequence["_Load"], grids: Sequence[float]) -> list[float]:
    """The grids on which the library would not need minutes and gigabytes for the composition.

    It cuts the tails of a sum by Chernoff's bound at tilts of at least one over the length of a step's
    distribution: so its window is no narrower than the variance of the sum over that length.
    """
    window = sum(load.steps * load.variance / load.loss_range for load in loads)
    fitting = [grid for grid in grids if window <= _MAX_WINDOW_POINTS * grid]
    if not fitting:
        steps = sum(load.steps for load in loads)
        raise AccountantError(
            f"pld would need {window / grids[-1]:.2g} points for {steps:,} steps, and takes "
            f"{_MAX_WINDOW_POINTS:,} at most; fewer steps need fewer"
        )
    return fitting


@contextmanager
def _as_accountant_error() -> Generator[None]:
    try:
        with np.errstate(all="ignore"):
            yield
    except (ArithmeticError, MemoryError, ValueError) as error:
        raise AccountantError.of_library("pld", error) from error


def _grids(loads: Sequence["_Load"]) -> list[float]:
    """Distances between two losses: as fine as the sum of all steps asks, as coarse as needed.

    Mostly one; and doubles of it until round-off is negligible, where it may not be. One of few widths where
    there are many unlike steps: a coarser one, so that epsilon is no less.
    """
    spread, round_off = _spread(loads), _round_off(loads)
    deviation = spread * math.sqrt(sum(load.steps for load in loads))
    grids = [
        max(
            min(max(_GRID_FRACTION * spread, _FINEST_GRID), _COARSEST_GRID),
            max(load.loss_range for load in loads) / _MAX_STEP_POINTS,
            12 * deviation / _MAX_RUN_POINTS,
        )
    ]
    # Where round-off counts, a coarser grid may be the tighter one.
    if _are_many(loads) and round_off / grids[0] ** 2 < _NEGLIGIBLE_ROUND_OFF / 10:
        grids[0] = coarsened(grids[0], coarsest=_COARSEST_GRID)
    while round_off / grids[-1] ** 2 > _NEGLIGIBLE_ROUND_OFF and grids[-1] < _COARSEST_GRID:
        grids.append(2 * grids[-1])
    return grids


def _are_many(loads: Sequence["_Load"]) -> bool:
    return len({(load.sampling_rate, load.shift) for load in loads}) > FEW


def _spread(loads: Sequence["_Load"]) -> float:
    """The root mean square deviation of a step: each adds the square of a cell to the sum's variance."""
    variance = sum(load.steps * load.variance for load in loads)
    return max(math.sqrt(variance / sum(load.steps for load in loads)), 1e-30)


def _round_off(loads: Sequence["_Load"]) -> float:
    """The mass above one of all steps together, times the square of a cell. None where no step is sampled."""
    return _STEP_ROUND_OFF * sum(load.steps * load.loss_range for load in loads)


@dataclass(frozen=True, slots=True)
class _Load:
    """What a mechanism asks of the grid; ``shift`` is how far one unit moves the mean, in sigmas."""

    sampling_rate: float
    shift: float
    steps: int
    is_replaced: bool

    @property
    def variance(self) -> float:
        """A bound on the variance of a step's loss; its value without sampling, and in small steps."""
        return loss_variance(self.sampling_rate, self.shift, is_replaced=self.is_replaced)

    @property
    def loss_range(self) -> float:
        """The losses that a step's distribution spans, tails of e^-50 cut off."""
        unsampled = self.shift * self.shift / 2 + 12 * self.shift
        if unsampled > 700:
            return unsampled
        return math.log1p(self.sampling_rate * math.expm1(unsampled))


def _load(mechanism: Mechanism) -> _Load:
    from dp_accounting import GaussianDpEvent

    event, count = pld_event(mechanism)
    relation = mechanism.neighboring_relation
    shift = relation.sensitivity / mechanism.noise_multiplier
    is_replaced = relation is NeighboringRelation.REPLACE_ONE
    if isinstance(event, GaussianDpEvent):  # composed in one, as one larger shift
        return _Load(1.0, math.sqrt(count) * shift, 1, is_replaced)
    return _Load(mechanism.sampling_rate, shift, count, is_replaced)
