"""The least noise, or the most steps, that a target allows."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from tan_core import _validate
from tan_core.accounting.gaussian import gdp_mu
from tan_core.accounting.price import price
from tan_core.errors import AccountantError, UnreachableTargetError
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation

RELATIVE_TOLERANCE = 1e-3
"""A calibrated epsilon lies in ``[(1 - RELATIVE_TOLERANCE) * target, target]``."""

_MAX_EVALUATIONS = 60
_STRIDE = 1.1  # log cost falls by more than 1 per unit of log noise, so this crosses over
_WIDEST_GAP = 3.0
_MAX_STEPS = 10_000_000


def calibrate_noise_multiplier(
    *,
    sampling_rate: float,
    steps: int,
    epsilon: float,
    delta: float,
    accountant: Accountant = Accountant.PLD,
    clip_norm: float = 1.0,
    neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
    low: float = 0.02,
    high: float = 10_000.0,
) -> float:
    r"""The smallest noise multiplier whose epsilon does not exceed the target.

    Formal guarantees:

    * ``price(...).epsilon`` at the result is at most ``epsilon``, and at least 0.999 times it.
    * The same arguments give the same float.

    Args:
        sampling_rate: :math:`q` in (0, 1].
        steps: :math:`S \ge 1`.
        epsilon: the target, > 0.
        delta: in [1e-12, 1).
        accountant: who must agree that the target is met.
        clip_norm: does not influence the result.
        neighboring_relation: which datasets are neighbours.
        low: the smallest noise multiplier to consider.
        high: the largest.

    Raises:
        UnreachableTargetError: no noise multiplier in [low, high] meets the target; the message says
            which epsilons can be reached.
        AccountantError: the accountant failed.

    Example:
        >>> sigma = calibrate_noise_multiplier(
        ...     sampling_rate=4096 / 50_000, steps=2500, epsilon=8.0, delta=1e-5
        ... )
        >>> f"{sigma:.2f}"
        '2.58'
    """
    _validate.positive(epsilon=epsilon, low=low, clip_norm=clip_norm)
    probe = Mechanism(
        sampling_rate=sampling_rate,
        noise_multiplier=high,
        clip_norm=1.0,
        steps=steps,
        neighboring_relation=neighboring_relation,
    )
    return _calibrated(probe, epsilon, delta, accountant, low)


@lru_cache(maxsize=1024)
def _calibrated(
    probe: Mechanism, epsilon: float, delta: float, accountant: Accountant, low: float
) -> float:
    """The least noise in [low, the probe's own]."""

    def cost(noise_multiplier: float) -> float:
        mechanism = replace(probe, noise_multiplier=noise_multiplier)
        return price([mechanism], delta=delta, accountant=accountant).epsilon

    if accountant is Accountant.PRV:  # each of its answers is a process: start where PLD ends
        guess = _calibrated(probe, epsilon, delta, Accountant.PLD, low)
    else:
        guess = _central_limit_guess(probe, epsilon, delta)
    return _cheapest(cost, target=epsilon, guess=guess, low=low, high=probe.noise_multiplier)


def _central_limit_guess(probe: Mechanism, epsilon: float, delta: float) -> float:
    """The noise at which the composition's limit, a Gaussian mechanism, would meet the target."""
    one_step = gdp_mu(epsilon=epsilon, delta=delta) ** 2 / (probe.sampling_rate**2 * probe.steps)
    moved = 2 if probe.neighboring_relation is NeighboringRelation.REPLACE_ONE else 1
    return moved / math.sqrt(math.log1p(one_step))


def calibrate_steps(
    *,
    sampling_rate: float,
    noise_multiplier: float,
    epsilon: float,
    delta: float,
    accountant: Accountant = Accountant.PLD,
    neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> int:
    """The most steps whose epsilon does not exceed the target.

    Raises:
        UnreachableTargetError: already one step exceeds it.
    """

    def fits(steps: int) -> bool:
        mechanism = Mechanism(
            sampling_rate=sampling_rate,
            noise_multiplier=noise_multiplier,
            clip_norm=1.0,
            steps=steps,
            neighboring_relation=neighboring_relation,
        )
        return price([mechanism], delta=delta, accountant=accountant).epsilon <= epsilon

    if not fits(1):
        raise UnreachableTargetError(
            f"one step at noise multiplier {noise_multiplier:g} costs more than epsilon = {epsilon:g}",
            field="privacy.epsilon",
        )
    low, high = 1, 2
    while high <= _MAX_STEPS and fits(high):
        low, high = high, 2 * high
    if high > _MAX_STEPS:
        return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _cheapest(
    cost: Callable[[float], float], *, target: float, guess: float, low: float, high: float
) -> float:
    """The noise at which a falling cost meets the target from below.

    False position in (log noise, log cost) with Illinois' rule: an end that stays put counts half.
    """
    floor, ceiling = math.log(low), math.log(high)
    aim = math.log(target * (1 - RELATIVE_TOLERANCE / 4))
    ends: dict[bool, tuple[float, float]] = {}  # too dear? -> (log noise, log cost - aim)
    last: bool | None = None
    x = min(max(math.log(guess), floor), ceiling)

    for _ in range(_MAX_EVALUATIONS):
        epsilon = cost(math.exp(x))
        if target * (1 - RELATIVE_TOLERANCE) <= epsilon <= target:
            return math.exp(x)
        gap = min(max(math.log(max(epsilon, 1e-300)) - aim, -_WIDEST_GAP), _WIDEST_GAP)
        too_dear = gap > 0
        if too_dear and x >= ceiling:
            raise _unreachable(target, f"the smallest is {epsilon:g}, at noise multiplier {high:g}")
        if not too_dear and x <= floor:
            raise _unreachable(target, f"the largest is {epsilon:g}, at noise multiplier {low:g}")
        if too_dear is last and (not too_dear) in ends:
            stale_x, stale_gap = ends[not too_dear]
            ends[not too_dear] = (stale_x, stale_gap / 2)
        ends[too_dear], last = (x, gap), too_dear
        x = _between(*ends.values()) if len(ends) == 2 else x + _STRIDE * gap
        x = min(max(x, floor), ceiling)
    raise AccountantError(f"calibration to epsilon = {target:g} did not settle")


def _between(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Where the line through two points of opposite sign is zero."""
    (a, gap_a), (b, gap_b) = one, other
    return a + (b - a) * gap_a / (gap_a - gap_b)


def _unreachable(target: float, reach: str) -> UnreachableTargetError:
    return UnreachableTargetError(
        f"no noise multiplier gives epsilon = {target:g}: {reach}", field="privacy.epsilon"
    )
