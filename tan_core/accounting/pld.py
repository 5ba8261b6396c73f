r"""Epsilon by privacy loss distributions (dp-accounting, connect-the-dots): tight and never below.

The grid of privacy losses is fitted to the mechanism: a fraction of the standard deviation of one
step's loss. A fixed grid is either slow or, at small sampling rates, far above the truth.
Connect-the-dots rounds up on any grid, so a coarse one costs tightness and nothing else.
"""

import math
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tan_core.accounting.effort import check_effort
from tan_core.accounting.events import loss_variance, pld_event, relation_of
from tan_core.errors import AccountantError
from tan_core.mechanism import Mechanism

if TYPE_CHECKING:
    import dp_accounting
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

CONVERSION = "pld connect-the-dots"
MIN_NOISE_MULTIPLIER = 1e-3
ROUND_OFF_PER_STEP = 2.0**-52
"""Of delta: a power of S in Fourier space carries S roundings of its base."""

_GRID_FRACTION = 0.05  # of one step's standard deviation: epsilon is 0.024 % above its limit
_FINEST_GRID, _COARSEST_GRID = 1e-9, 2e-3  # below: round-off; above: visible where noise is small
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
    def _losses(self) -> "PrivacyLossDistribution":
        return _composed(self._mechanisms)

    def delta(self, epsilon: float) -> float:
        """The least delta known to hold at an epsilon >= 0."""
        with _as_accountant_error():
            return min(float(self._losses.get_delta_for_epsilon(epsilon)) + self._lost, 1.0)

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 known to hold at a delta.

        Raises:
            AccountantError: round-off is no longer small against delta.
        """
        if self._lost > delta / 10:
            raise AccountantError(
                f"so many steps lose {self._lost:.1g} of delta to round-off: no epsilon at "
                f"delta = {delta:.3g}; a larger delta, or accountant rdp, has one"
            )
        with _as_accountant_error():
            return float(self._losses.get_epsilon_for_delta(delta - self._lost))


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
    steps = sum(pld_event(mechanism)[1] for mechanism in mechanisms)
    return PldProfile(mechanisms, ROUND_OFF_PER_STEP * steps)


def _composed(mechanisms: Sequence[Mechanism]) -> "PrivacyLossDistribution":
    from dp_accounting.pld import privacy_loss_distribution  # see the note in events.py

    loads = [_load(mechanism) for mechanism in mechanisms]
    grid = _grid(loads)
    _refuse_wide(loads, grid)
    relation = relation_of(mechanisms)
    events: Counter[dp_accounting.DpEvent] = Counter()  # equal steps are composed at once
    for mechanism in mechanisms:
        event, count = pld_event(mechanism)
        events[event] += count
    with _as_accountant_error():
        losses = privacy_loss_distribution.identity(value_discretization_interval=grid)
        for event, count in events.items():
            check_effort("pld")
            losses = losses.compose(_of_event(event, count, grid=grid, relation=relation))
    return losses


def _of_event(
    event: "dp_accounting.DpEvent",
    count: int,
    *,
    grid: float,
    relation: "dp_accounting.NeighboringRelation",
) -> "PrivacyLossDistribution":
    """The loss of so many equal steps, as dp-accounting's own accountant composes them."""
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
    return (step if count < _MANY else _dense(step)).self_compose(count)


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


def _refuse_wide(loads: Sequence["_Load"], grid: float) -> None:
    """Refuse a composition that the library would need minutes and gigabytes for.

    It cuts the tails of a sum by Chernoff's bound at tilts of at least one over the length of a step's
    distribution: so its window is no narrower than the variance of the sum over that length.
    """
    points = sum(load.steps * load.variance / load.loss_range for load in loads) / grid
    if points > _MAX_WINDOW_POINTS:
        steps = sum(load.steps for load in loads)
        raise AccountantError(
            f"pld would need {points:.2g} points for {steps:,} steps, and takes {_MAX_WINDOW_POINTS:,} "
            "at most; fewer steps, more noise, or accountant rdp"
        )


@contextmanager
def _as_accountant_error() -> Generator[None]:
    try:
        with np.errstate(all="ignore"):
            yield
    except (ArithmeticError, MemoryError, ValueError) as error:
        raise AccountantError(f"pld failed: {error or type(error).__name__}") from error


def _grid(loads: Sequence["_Load"]) -> float:
    """The distance between two losses: as fine as the sum of all steps asks, as coarse as needed.

    Every step adds the square of a cell to the variance of the sum, so it is their mean that counts.
    """
    steps = sum(load.steps for load in loads)
    deviation = math.sqrt(sum(load.steps * load.variance for load in loads))
    return max(
        min(max(_GRID_FRACTION * deviation / math.sqrt(steps), _FINEST_GRID), _COARSEST_GRID),
        max(load.loss_range for load in loads) / _MAX_STEP_POINTS,
        12 * deviation / _MAX_RUN_POINTS,
    )


@dataclass(frozen=True, slots=True)
class _Load:
    """What a mechanism asks of the grid; ``shift`` is how far one unit moves the mean, in sigmas."""

    sampling_rate: float
    shift: float
    steps: int

    @property
    def variance(self) -> float:
        """A bound on the variance of a step's loss; its value without sampling, and in small steps."""
        return loss_variance(self.sampling_rate, self.shift)

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
    moved = mechanism.neighboring_relation.sensitivity
    if isinstance(event, GaussianDpEvent):  # composed in one, as one larger shift
        return _Load(1.0, moved * math.sqrt(count) / mechanism.noise_multiplier, 1)
    return _Load(mechanism.sampling_rate, moved / mechanism.noise_multiplier, count)
