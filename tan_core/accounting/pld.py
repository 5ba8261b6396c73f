r"""Epsilon by privacy loss distributions (dp-accounting, connect-the-dots): tight and never below.

The grid of privacy losses is fitted to the mechanism: a fraction of the standard deviation of one
step's loss. A fixed grid is either slow or, at small sampling rates, far above the truth.
Connect-the-dots rounds up on any grid, so a coarse one costs tightness and nothing else.
"""

import math
from collections.abc import Sequence

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant

from tan_core.errors import AccountantError
from tan_core.mechanism import Mechanism, NeighboringRelation

CONVERSION = "pld connect-the-dots"
MIN_NOISE_MULTIPLIER = 1e-3

_GRID_FRACTION = 0.05  # of one step's standard deviation: epsilon is 0.024 % above its limit
_FINEST_GRID, _COARSEST_GRID = 1e-6, 1e-2  # below: round-off; above: visible in small epsilons
_MAX_STEP_POINTS = 2**17  # of one step's distribution
_MAX_RUN_POINTS = 2**20  # of the composed one; both bound time to about a second

_RELATIONS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    NeighboringRelation.REPLACE_ONE: dp_accounting.NeighboringRelation.REPLACE_ONE,
}


def pld_epsilon(mechanisms: Sequence[Mechanism], delta: float) -> float:
    """An upper bound on the epsilon of the composition."""
    for mechanism in mechanisms:
        if mechanism.noise_multiplier < MIN_NOISE_MULTIPLIER:
            raise AccountantError(
                f"pld needs noise_multiplier >= {MIN_NOISE_MULTIPLIER:g}, "
                f"got {mechanism.noise_multiplier:g}"
            )
    accountant = PLDAccountant(
        neighboring_relation=_RELATIONS[mechanisms[0].neighboring_relation],
        value_discretization_interval=_grid(mechanisms),
    )
    try:
        with np.errstate(all="ignore"):
            for mechanism in mechanisms:
                accountant.compose(dp_event(mechanism), mechanism.steps)
            return float(accountant.get_epsilon(delta))
    except (ArithmeticError, MemoryError, ValueError) as error:
        raise AccountantError(f"pld failed: {error or type(error).__name__}") from error


def dp_event(mechanism: Mechanism) -> dp_accounting.DpEvent:
    """One step in the words of dp-accounting."""
    return dp_accounting.PoissonSampledDpEvent(
        mechanism.sampling_rate, dp_accounting.GaussianDpEvent(mechanism.noise_multiplier)
    )


def _grid(mechanisms: Sequence[Mechanism]) -> float:
    """The distance between two losses: as fine as the finest mechanism asks, as coarse as needed."""
    fine = min(_GRID_FRACTION * _step_deviation(mechanism) for mechanism in mechanisms)
    step_range = max(_step_range(mechanism) for mechanism in mechanisms)
    run_range = 12 * math.sqrt(sum(m.steps * _step_variance_bound(m) for m in mechanisms))
    return max(
        min(max(fine, _FINEST_GRID), _COARSEST_GRID),
        step_range / _MAX_STEP_POINTS,
        run_range / _MAX_RUN_POINTS,
    )


def _step_deviation(mechanism: Mechanism) -> float:
    """Standard deviation of one step's loss in the limit of small steps: q sqrt(e^(1/sigma^2) - 1)."""
    exponent = mechanism.noise_multiplier**-2
    return mechanism.sampling_rate * math.sqrt(math.expm1(exponent)) if exponent < 700 else math.inf


def _shift(mechanism: Mechanism) -> float:
    """How far one unit moves the mean, in noise deviations."""
    moved = 2 if mechanism.neighboring_relation is NeighboringRelation.REPLACE_ONE else 1
    return moved / mechanism.noise_multiplier


def _step_range(mechanism: Mechanism) -> float:
    """The losses that one step's distribution spans, tails of e^-50 cut off."""
    shift = _shift(mechanism)
    return shift * shift / 2 + 12 * shift


def _step_variance_bound(mechanism: Mechanism) -> float:
    """The second moment of one step's loss, where it is largest."""
    shift = _shift(mechanism)
    return min(
        _step_deviation(mechanism) ** 2,
        mechanism.sampling_rate * (shift**4 / 4 + shift**2),
    )
