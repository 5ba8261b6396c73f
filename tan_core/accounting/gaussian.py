r"""The exact trade-off of one Gaussian mechanism, :math:`\mu`-GDP, in both directions.

.. math:: \delta = \Phi(\mu/2 - \varepsilon/\mu) - e^\varepsilon\,\Phi(-\mu/2 - \varepsilon/\mu).

A subsampled, composed mechanism is only *near* some :math:`\mu` (a central limit), and its true cost
is above it: use these for warm starts, plots and ratios, never for a promise.

References:
    Dong, Roth and Su (2022), "Gaussian Differential Privacy", corollary 2.13; Bu, Dong, Long and Su
    (2020) for the limit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import scipy

from tan_core import _validate
from tan_core.accounting.events import SampledGaussian, sampled_gaussian_event, shared_relation
from tan_core.errors import ParameterError
from tan_core.mechanism import Mechanism, NeighboringRelation

_LARGEST_EPSILON = 1e9
_LARGEST_MU = 3e4  # its epsilon is half of the square


@dataclass(frozen=True, slots=True, kw_only=True)
class GdpEstimate:
    """A central-limit estimate. Not a :class:`Price`: it may be far below the true cost.

    Args:
        epsilon: the estimate, nats.
        delta: what it was asked at.
        mu: of the Gaussian mechanism that the composition is near.
        neighboring_relation: which datasets it tells apart.
        note: says so wherever it is shown.
    """

    epsilon: float
    delta: float
    mu: float
    neighboring_relation: NeighboringRelation
    note: str = "central-limit estimate: under-estimates, not a guarantee"


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianProfile:
    """The exact profile of one Gaussian mechanism of sensitivity mu and noise 1."""

    mu: float

    def delta(self, epsilon: float) -> float:
        """The smallest delta at an epsilon."""
        return gdp_delta(mu=self.mu, epsilon=epsilon)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 at a delta."""
        return gdp_epsilon(mu=self.mu, delta=delta)


@_validate.plainly
def gdp_estimate(mechanisms: Sequence[Mechanism], *, delta: float) -> GdpEstimate:
    r"""The central-limit estimate of a composition: for warm starts.

    .. math:: \mu^2 = \sum_i q_i^2 S_i \left(e^{1/\sigma_i^2} - 1\right).

    NOTE: it under-estimates, by up to 95 % of epsilon where steps are few; below a noise multiplier of
    about 0.5 it may be far above instead. No bound on its error is known in closed form.

    Raises:
        ParameterError: no mechanism, unlike neighbouring relations, or noise so small that mu is above 30,000.
        UnsupportedEventError: a mechanism is not a Poisson-sampled Gaussian.

    Example:
        >>> run = Mechanism(
        ...     sampling_rate=4096 / 50_000, noise_multiplier=3.0, clip_norm=1.0, steps=2500
        ... )
        >>> estimate = gdp_estimate([run], delta=1e-5)
        >>> f"{estimate.epsilon:.2f}: {estimate.note}"
        '6.52: central-limit estimate: under-estimates, not a guarantee'
    """
    mechanisms = _validate.sequence(Mechanism, mechanisms=mechanisms)
    relation = shared_relation(mechanisms)
    events = [sampled_gaussian_event(mechanism, "gdp") for mechanism in mechanisms]
    mu = math.sqrt(sum(map(_squared_mu, events)))
    if mu > _LARGEST_MU:
        raise ParameterError(
            f"mechanisms have so little noise that mu is {mu:.3g}, and the estimate goes up to {_LARGEST_MU:,.0f}; "
            "price has an epsilon of them where there is one",
            field="mechanisms",
        )
    return GdpEstimate(
        epsilon=gdp_epsilon(mu=mu, delta=delta),
        delta=delta,
        mu=mu,
        neighboring_relation=relation,
    )


def _squared_mu(event: SampledGaussian) -> float:
    if event.sampling_rate == 1:
        return event.steps / event.noise_multiplier**2
    exponent = min(event.noise_multiplier**-2, 700)
    return event.sampling_rate**2 * event.steps * math.expm1(exponent)


@_validate.plainly
def gdp_delta(*, mu: float, epsilon: float) -> float:
    """The smallest delta at which a mu-GDP mechanism is (epsilon, delta)-private.

    Raises:
        ParameterError: mu is not a finite number > 0, or epsilon none >= 0.

    Example:
        >>> f"{gdp_delta(mu=1.0, epsilon=1.0):.4f}"
        '0.1269'
    """
    _validate.positive(mu=mu)
    _validate.in_range(0, math.inf, epsilon=epsilon)
    return math.exp(_log_delta(mu, epsilon))


@_validate.plainly
def gdp_epsilon(*, mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 at which a mu-GDP mechanism is (epsilon, delta)-private.

    ==========================  ======
    Edge case                   Result
    ==========================  ======
    delta covers mu by itself   0
    ==========================  ======

    Raises:
        ParameterError: mu is not in (0, 3e4], or delta not in (0, 1).

    Example:
        >>> f"{gdp_epsilon(mu=1.0, delta=1e-5):.3f}"
        '4.377'
    """
    _validate.positive(mu=mu)
    _validate.in_range(0, _LARGEST_MU, mu=mu)
    _validate.probability(open_ends=True, delta=delta)
    log_target = math.log(delta)
    if _log_delta(mu, 0.0) <= log_target:
        return 0.0
    high = _first(lambda epsilon: _log_delta(mu, epsilon) < log_target, start=mu * mu + mu)
    return _root(lambda epsilon: _log_delta(mu, epsilon) - log_target, 0.0, high)


@_validate.plainly
def gdp_mu(*, epsilon: float, delta: float) -> float:
    """The largest mu that is (epsilon, delta)-private.

    Args:
        epsilon: nats, in (0, 1e9].
        delta: in (0, 1).

    Raises:
        ParameterError: an argument is outside the domain above.

    Example:
        >>> f"{gdp_mu(epsilon=8.0, delta=1e-5):.3f}"
        '1.666'
    """
    _validate.positive(epsilon=epsilon)
    _validate.in_range(0, _LARGEST_EPSILON, epsilon=epsilon)
    _validate.probability(open_ends=True, delta=delta)
    log_target = math.log(delta)
    high = _first(lambda mu: _log_delta(mu, epsilon) > log_target, start=0.1)
    low = 1 / _first(lambda inverse: _log_delta(1 / inverse, epsilon) < log_target, start=10.0)
    return _root(lambda mu: _log_delta(mu, epsilon) - log_target, low, high)


def _log_delta(mu: float, epsilon: float) -> float:
    """Log of the delta, without cancellation in the exponentials."""
    log_kept = float(scipy.special.log_ndtr(mu / 2 - epsilon / mu))
    log_taken = epsilon + float(scipy.special.log_ndtr(-mu / 2 - epsilon / mu))
    gap = log_taken - log_kept
    return log_kept + math.log1p(-math.exp(gap)) if gap < 0 else -math.inf


def _first(holds: Callable[[float], bool], *, start: float) -> float:
    """The first of start, 2 start, 4 start ... at which a claim holds."""
    value = start
    while not holds(value) and value < _LARGEST_EPSILON:
        value *= 2
    return value


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """A zero in a bracket; minus infinity counts as very negative."""
    return float(
        scipy.optimize.brentq(lambda x: max(function(x), -1e6), low, high, xtol=1e-14, rtol=1e-12)
    )
