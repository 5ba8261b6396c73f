r"""The exact trade-off of one Gaussian mechanism, :math:`\mu`-GDP, in both directions.

.. math:: \delta = \Phi(\mu/2 - \varepsilon/\mu) - e^\varepsilon\,\Phi(-\mu/2 - \varepsilon/\mu).

A subsampled, composed mechanism is only *near* some :math:`\mu` (a central limit), and its true cost
is above it: use these for warm starts, plots and ratios, never for a promise.
"""

import math
from collections.abc import Callable

from scipy import optimize, special

from tan_core import _validate

_LARGEST_EPSILON = 1e9


def gdp_delta(*, mu: float, epsilon: float) -> float:
    """The smallest delta at which a mu-GDP mechanism is (epsilon, delta)-private."""
    _validate.positive(mu=mu)
    return math.exp(_log_delta(mu, epsilon))


def gdp_epsilon(*, mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 at which a mu-GDP mechanism is (epsilon, delta)-private.

    ==========================  ======
    Edge case                   Result
    ==========================  ======
    delta covers mu by itself   0
    ==========================  ======
    """
    _validate.positive(mu=mu)
    _validate.probability(open_ends=True, delta=delta)
    log_target = math.log(delta)
    if _log_delta(mu, 0.0) <= log_target:
        return 0.0
    high = _first(lambda epsilon: _log_delta(mu, epsilon) < log_target, start=mu * mu + mu)
    return _root(lambda epsilon: _log_delta(mu, epsilon) - log_target, 0.0, high)


def gdp_mu(*, epsilon: float, delta: float) -> float:
    """The largest mu that is (epsilon, delta)-private."""
    _validate.positive(epsilon=epsilon)
    _validate.probability(open_ends=True, delta=delta)
    log_target = math.log(delta)
    high = _first(lambda mu: _log_delta(mu, epsilon) > log_target, start=0.1)
    low = 1 / _first(lambda inverse: _log_delta(1 / inverse, epsilon) < log_target, start=10.0)
    return _root(lambda mu: _log_delta(mu, epsilon) - log_target, low, high)


def _log_delta(mu: float, epsilon: float) -> float:
    """Log of the delta, without cancellation in the exponentials."""
    log_kept = float(special.log_ndtr(mu / 2 - epsilon / mu))
    log_taken = epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu))
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
        optimize.brentq(lambda x: max(function(x), -1e6), low, high, xtol=1e-14, rtol=1e-12)
    )
