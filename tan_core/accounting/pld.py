r"""Epsilon by privacy loss distributions (dp-accounting, connect-the-dots): tight and never below.

The grid of privacy losses is fitted to the mechanism: a fraction of the standard deviation of one
step's loss. A fixed grid is either slow or, at small sampling rates, far above the truth.
Connect-the-dots rounds up on any grid, so a coarse one costs tightness and nothing else.
"""

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant

from tan_core.accounting.events import RELATIONS, pld_event
from tan_core.errors import AccountantError
from tan_core.mechanism import Mechanism, NeighboringRelation

CONVERSION = "pld connect-the-dots"
MIN_NOISE_MULTIPLIER = 1e-3

_GRID_FRACTION = 0.05  # of one step's standard deviation: epsilon is 0.024 % above its limit
_FINEST_GRID, _COARSEST_GRID = 1e-9, 1e-2  # below: round-off; above: visible in small epsilons
_MAX_STEP_POINTS = 2**17  # of one step's distribution
_MAX_RUN_POINTS = 2**20  # of the composed one; both bound time to about a second


@dataclass(frozen=True, slots=True)
class PldProfile:
    """The profile of a composition, by dp-accounting. Made by :func:`pld_profile`."""

    _accountant: PLDAccountant

    def delta(self, epsilon: float) -> float:
        """The least delta known to hold at an epsilon >= 0."""
        with _as_accountant_error():
            return float(self._accountant.get_delta(epsilon))

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 known to hold at a delta."""
        with _as_accountant_error():
            return float(self._accountant.get_epsilon(delta))


def pld_profile(mechanisms: Sequence[Mechanism]) -> PldProfile:
    """The privacy profile of a composition; it bounds the true one from above everywhere.

    Raises:
        UnsupportedEventError: batches of fixed size, or truncated ones under add-or-remove-one.
        AccountantError: less noise than the accountant can take, or it failed.
    """
    for mechanism in mechanisms:
        if mechanism.noise_multiplier < MIN_NOISE_MULTIPLIER:
            raise AccountantError(
                f"pld needs noise_multiplier >= {MIN_NOISE_MULTIPLIER:g}, "
                f"got {mechanism.noise_multiplier:g}"
            )
    events = [pld_event(mechanism) for mechanism in mechanisms]
    accountant = PLDAccountant(
        neighboring_relation=RELATIONS[mechanisms[0].neighboring_relation],
        value_discretization_interval=_grid(mechanisms),
    )
    with _as_accountant_error():
        for event, count in events:
            accountant.compose(event, count)
    return PldProfile(accountant)


@contextmanager
def _as_accountant_error() -> Generator[None]:
    try:
        with np.errstate(all="ignore"):
            yield
    except (ArithmeticError, MemoryError, ValueError) as error:
        raise AccountantError(f"pld failed: {error or type(error).__name__}") from error


def _grid(mechanisms: Sequence[Mechanism]) -> float:
    """The distance between two losses: as fine as the finest mechanism asks, as coarse as needed."""
    loads = [_load(mechanism) for mechanism in mechanisms]
    fine = min(_GRID_FRACTION * load.deviation for load in loads)
    run_range = 12 * math.sqrt(sum(load.steps * load.variance_bound for load in loads))
    return max(
        min(max(fine, _FINEST_GRID), _COARSEST_GRID),
        max(load.loss_range for load in loads) / _MAX_STEP_POINTS,
        run_range / _MAX_RUN_POINTS,
    )


@dataclass(frozen=True, slots=True)
class _Load:
    """What a mechanism asks of the grid; ``shift`` is how far one unit moves the mean, in sigmas."""

    sampling_rate: float
    shift: float
    steps: int

    @property
    def deviation(self) -> float:
        """Standard deviation of a step's loss, where steps are small: q sqrt(e^(1/sigma^2) - 1)."""
        exponent = self.shift**2
        return self.sampling_rate * math.sqrt(math.expm1(exponent)) if exponent < 700 else math.inf

    @property
    def loss_range(self) -> float:
        """The losses that a step's distribution spans, tails of e^-50 cut off."""
        unsampled = self.shift * self.shift / 2 + 12 * self.shift
        if unsampled > 700:
            return unsampled
        return math.log1p(self.sampling_rate * math.expm1(unsampled))

    @property
    def variance_bound(self) -> float:
        """The second moment of a step's loss, where it is largest."""
        return min(self.deviation**2, self.sampling_rate * (self.shift**4 / 4 + self.shift**2))


def _load(mechanism: Mechanism) -> _Load:
    event, count = pld_event(mechanism)
    moved = 2 if mechanism.neighboring_relation is NeighboringRelation.REPLACE_ONE else 1
    if isinstance(event, dp_accounting.GaussianDpEvent):  # composed in one, as one larger shift
        return _Load(1.0, moved * math.sqrt(count) / mechanism.noise_multiplier, 1)
    return _Load(mechanism.sampling_rate, moved / mechanism.noise_multiplier, count)
