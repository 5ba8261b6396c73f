r"""The privacy wall: where epsilon stops following the total amount of noise.

Along a curve of constant :math:`\eta` (equal steps, equal :math:`\sigma/q`) the exact epsilon falls as
the noise multiplier grows and settles at the epsilon of the Gaussian mechanism with
:math:`\mu = \sqrt{2}\,\eta`. To the left of a noise multiplier of about 2 it surges: simulations live
there, private runs should not. All epsilons of this module but ``epsilon_tan`` and that of the limit are
upper bounds by the PLD accountant; the ratios are advice.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tan_core import _validate
from tan_core.accounting import gdp_epsilon, price
from tan_core.errors import AccountantError, ParameterError, UnsupportedEventError
from tan_core.mechanism import Mechanism, Sampling
from tan_core.tan.noise import epsilon_tan, eta_of

MIN_TOLERANCE, MAX_TOLERANCE = 1.002, 1000.0  # the accountant itself may be 0.1 % above the truth
_ROUND_OFF = 1e-12
_WALL_PRECISION = 1e-3  # relative, of a noise multiplier
_USUAL_NOISE = 4.0  # right of most walls: where the search for one starts


@dataclass(frozen=True, slots=True, kw_only=True)
class WallPoint:
    """One mechanism of a constant-TAN curve.

    Args:
        scale_factor: k: this point's batch is 1/k of the reference's, and so is its noise.
        noise_multiplier: sigma > 0.
        sampling_rate: q in (0, 1].
        epsilon: the exact price; None where the accountant finds none.
        epsilon_tan: the estimate, the same all along the curve: neither an upper nor a lower bound.
        overcharge: see :func:`overcharge`; infinity where the limit costs nothing, None where there is
            no epsilon.
    """

    scale_factor: float
    noise_multiplier: float
    sampling_rate: float
    epsilon: float | None
    epsilon_tan: float
    overcharge: float | None


@_validate.plainly
def overcharge(mechanism: Mechanism, *, delta: float) -> float:
    r"""The exact epsilon over the one that this amount of noise would cost at a huge batch.

    The denominator is the epsilon of the Gaussian mechanism with :math:`\mu = \sqrt{2}\,\eta`, the
    limit of constant TAN as :math:`\sigma \to \infty`; replacing a unit moves the sum twice as far,
    so :math:`\mu` doubles. 1.05 means that 5 % of epsilon buys nothing.

    ================================  ========
    Edge case                         Result
    ================================  ========
    delta alone covers the limit      infinity, or 1 where it covers the mechanism too
    ================================  ========

    Args:
        mechanism: drawn by Poisson sampling: the limit is that of its amplification. What a cap costs
            on top, where there is one, is part of the ratio.
        delta: in [1e-10, 1).

    Raises:
        UnsupportedEventError: the sampling is not Poisson, or its cap has no price.
        AccountantError: epsilon could not be computed.

    Example:
        >>> run = Mechanism(
        ...     sampling_rate=4096 / 50_000, noise_multiplier=3.0, clip_norm=1.0, steps=2500
        ... )
        >>> f"{overcharge(run, delta=1e-5):.3f}"
        '1.044'
    """
    _require_amplified(mechanism)
    return _ratio(price([mechanism], delta=delta).epsilon, limit_epsilon(mechanism, delta=delta))


@_validate.plainly
def limit_epsilon(mechanism: Mechanism, *, delta: float) -> float:
    """What the total noise of a mechanism costs at an infinitely large batch: see :func:`overcharge`.

    Args:
        mechanism: drawn by Poisson sampling; a cap, where there is one, is not looked at.
        delta: in (0, 1).

    Raises:
        ParameterError: delta is outside the domain above.
        UnsupportedEventError: the sampling is not Poisson.

    Example:
        >>> run = Mechanism(
        ...     sampling_rate=4096 / 50_000, noise_multiplier=3.0, clip_norm=1.0, steps=2500
        ... )
        >>> f"{limit_epsilon(run, delta=1e-5):.2f}"
        '6.30'
    """
    _require_amplified(mechanism)
    moved = mechanism.neighboring_relation.sensitivity
    return gdp_epsilon(mu=moved * math.sqrt(2) * eta_of(mechanism), delta=delta)


@_validate.plainly
def constant_tan_curve(
    mechanism: Mechanism, *, delta: float, noise_multipliers: Iterable[float]
) -> list[WallPoint]:
    """The price of this mechanism's total noise at other noise multipliers, in the order given.

    Each point has the steps, the clipping norm and the sigma/q of ``mechanism``, and so its
    signal-to-noise ratio. A point whose sampling rate would exceed 1 is left out.

    Args:
        mechanism: the reference, drawn by Poisson sampling.
        delta: in [1e-10, 1).
        noise_multipliers: sigma > 0 of the points: a list, an array or a tensor of one dimension.

    Raises:
        ParameterError: an argument is outside the domain above.
        UnsupportedEventError: the sampling is not Poisson.

    References:
        Sander, Stock and Sablayrolles (2023), Figure 2.

    Example:
        >>> run = Mechanism(
        ...     sampling_rate=4096 / 50_000, noise_multiplier=3.0, clip_norm=1.0, steps=2500
        ... )
        >>> for point in constant_tan_curve(run, delta=1e-5, noise_multipliers=[0.75, 1.5, 6, 60]):
        ...     print(f"{point.scale_factor:g} {point.epsilon:.2f} {point.epsilon_tan:.2f}")
        4 12.45 7.48
        2 7.40 7.48
        0.5 6.38 7.48
    """
    _require_poisson(mechanism)
    limit = limit_epsilon(mechanism, delta=delta)
    estimate = epsilon_tan(signal_to_noise=eta_of(mechanism), delta=delta)
    points: list[WallPoint] = []
    for noise_multiplier in map(_validate.plain, _each(noise_multipliers)):
        moved = _at_noise(mechanism, noise_multiplier)
        if moved is None:
            continue
        epsilon = _epsilon_or_none(moved, delta)
        points.append(
            WallPoint(
                scale_factor=mechanism.noise_multiplier / noise_multiplier,
                noise_multiplier=noise_multiplier,
                sampling_rate=moved.sampling_rate,
                epsilon=epsilon,
                epsilon_tan=estimate,
                overcharge=None if epsilon is None else _ratio(epsilon, limit),
            )
        )
    return points


@_validate.plainly
def wall(mechanism: Mechanism, *, delta: float, tolerance: float = 1.10) -> float:
    r"""The smallest noise multiplier from which constant TAN is overcharged by at most ``tolerance``.

    At constant steps and :math:`\sigma/q` the exact epsilon never rises with :math:`\sigma`, so there
    is one such point. It is found to 0.1 % from above: the overcharge at the value returned is within
    the tolerance.

    ==========================================  ==================================================
    Edge case                                   Result
    ==========================================  ==================================================
    within tolerance only at the full batch     sigma / q of the mechanism
    within tolerance however small sigma is     the smallest noise multiplier that can be priced
    delta covers the limit, not the full batch  infinity: no point of the curve is within tolerance
    ==========================================  ==================================================

    Args:
        mechanism: the reference, drawn by Poisson sampling.
        delta: in [1e-10, 1).
        tolerance: accepted overcharge, in [1.002, 1000].

    Raises:
        ParameterError: tolerance is outside its domain.
        UnsupportedEventError: the sampling is not Poisson.

    References:
        Sander, Stock and Sablayrolles (2023), section 3.3. Kalinin (2024), "Notes on Sampled Gaussian
        Mechanism": at equal epsilon sigma/q falls as q grows, hence one wall.

    Example:
        >>> run = Mechanism(
        ...     sampling_rate=4096 / 50_000, noise_multiplier=3.0, clip_norm=1.0, steps=2500
        ... )
        >>> f"{wall(run, delta=1e-5):.2f}"
        '1.96'
    """
    _require_poisson(mechanism)
    _validate.in_range(MIN_TOLERANCE, MAX_TOLERANCE, tolerance=tolerance)
    limit = limit_epsilon(mechanism, delta=delta)

    def is_within(noise_multiplier: float) -> bool:
        moved = _at_noise(mechanism, noise_multiplier)
        epsilon = None if moved is None else _epsilon_or_none(moved, delta)
        return epsilon is not None and _ratio(epsilon, limit) <= tolerance

    return _smallest(is_within, highest=mechanism.noise_multiplier / mechanism.sampling_rate)


def _each(noise_multipliers: Iterable[float]) -> Iterable[float]:
    try:
        return iter(noise_multipliers)
    except TypeError:
        raise ParameterError(
            f"noise_multipliers must hold numbers, got {noise_multipliers!r}: put a single one into a list",
            field="noise_multipliers",
        ) from None


def _smallest(is_within: Callable[[float], bool], *, highest: float) -> float:
    """The smallest noise multiplier up to ``highest`` at which a claim that stays true is true."""
    high = min(_USUAL_NOISE, highest)
    while not is_within(high):
        if high >= highest:
            return math.inf
        high = min(2 * high, highest)
    low = high / 2
    while is_within(low):  # ends: no accountant prices a noise multiplier near 0
        low, high = low / 2, low
    while high > low * (1 + _WALL_PRECISION):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_within(middle) else (middle, high)
    return high


def _at_noise(mechanism: Mechanism, noise_multiplier: float) -> Mechanism | None:
    """The mechanism of equal steps and sigma/q, if it samples at most everything."""
    _validate.positive(noise_multiplier=noise_multiplier)
    rate = mechanism.sampling_rate * (noise_multiplier / mechanism.noise_multiplier)
    if rate > 1 + _ROUND_OFF:
        return None
    return replace(mechanism, noise_multiplier=noise_multiplier, sampling_rate=min(rate, 1.0))


def _epsilon_or_none(mechanism: Mechanism, delta: float) -> float | None:
    """The exact epsilon, where the accountant finds one."""
    try:
        return price([mechanism], delta=delta).epsilon
    except AccountantError:
        return None


def _ratio(epsilon: float, limit: float) -> float:
    """The overcharge, where both may be nothing."""
    if limit > 0:
        return epsilon / limit
    return math.inf if epsilon > 0 else 1.0


def _require_amplified(mechanism: Mechanism) -> None:
    """Drawn by Poisson sampling, with or without a cap."""
    _validate.instance(Mechanism, mechanism=mechanism)
    if mechanism.sampling is not Sampling.TRUNCATED_POISSON:
        _require_poisson(mechanism)


def _require_poisson(mechanism: Mechanism) -> None:
    _validate.instance(Mechanism, mechanism=mechanism)
    if mechanism.sampling is not Sampling.POISSON:
        raise UnsupportedEventError(
            f"the privacy wall is that of sampling {Sampling.POISSON.value}, "
            f"got {mechanism.sampling.value}"
        )
