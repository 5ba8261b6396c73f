r"""The total amount of noise and its closed forms (Sander et al. 2023, section 3).

NOTE: nothing here is a guarantee. The closed forms forget what happens below a noise multiplier of
about 2, where the true epsilon at the same :math:`\eta` can be forty times larger.
"""

import math

from tan_core import _validate
from tan_core.accounting import gdp_epsilon, price
from tan_core.mechanism import Mechanism, NeighboringRelation


def signal_to_noise(*, sampling_rate: float, noise_multiplier: float, steps: int) -> float:
    r"""The individual signal-to-noise ratio of a whole run.

    .. math:: \eta = \frac{q\sqrt{S}}{\sqrt{2}\,\sigma}.

    Args:
        sampling_rate: :math:`q` in (0, 1].
        noise_multiplier: :math:`\sigma > 0`.
        steps: :math:`S \ge 1`.

    References:
        Sander, Stock and Sablayrolles (2023), Definition 3.1.

    Example:
        >>> eta = signal_to_noise(sampling_rate=0.08192, noise_multiplier=3.0, steps=2500)
        >>> f"{eta:.4f}"
        '0.9654'
    """
    _validate.positive(sampling_rate=sampling_rate, noise_multiplier=noise_multiplier)
    _validate.probability(sampling_rate=sampling_rate)
    _validate.positive_integer(steps=steps)
    return sampling_rate * math.sqrt(steps / 2) / noise_multiplier


def total_noise(*, sampling_rate: float, noise_multiplier: float, steps: int) -> float:
    r"""The total amount of noise, :math:`\Sigma = 1/\eta`: what a simulation keeps."""
    return 1 / signal_to_noise(
        sampling_rate=sampling_rate, noise_multiplier=noise_multiplier, steps=steps
    )


def epsilon_tan(*, signal_to_noise: float, delta: float) -> float:
    r"""The paper's estimate, for plots: neither an upper nor a lower bound of epsilon.

    .. math:: \varepsilon_{\mathrm{TAN}} = \eta^2 + 2\eta\sqrt{\ln(1/\delta)}.

    References:
        Sander, Stock and Sablayrolles (2023), equation 4.

    Example:
        >>> f"{epsilon_tan(signal_to_noise=0.9654, delta=1e-5):.3f}"
        '7.483'
    """
    _validate.positive(signal_to_noise=signal_to_noise)
    _validate.probability(open_ends=True, delta=delta)
    return signal_to_noise**2 + 2 * signal_to_noise * math.sqrt(-math.log(delta))


def overcharge(mechanism: Mechanism, *, delta: float) -> float:
    r"""The exact epsilon over the one that this amount of noise would cost at a huge batch.

    The denominator is the epsilon of the Gaussian mechanism with :math:`\mu = \sqrt{2}\,\eta`, the
    limit of constant TAN as :math:`\sigma \to \infty`. 1.05 means that 5 % of epsilon buys nothing.

    ================================  ========
    Edge case                         Result
    ================================  ========
    delta alone covers the limit      infinity, or 1 where it covers the mechanism too
    ================================  ========

    Raises:
        AccountantError: epsilon could not be computed.
    """
    moved = 2 if mechanism.neighboring_relation is NeighboringRelation.REPLACE_ONE else 1
    eta = signal_to_noise(
        sampling_rate=mechanism.sampling_rate,
        noise_multiplier=mechanism.noise_multiplier,
        steps=mechanism.steps,
    )
    limit = gdp_epsilon(mu=moved * math.sqrt(2) * eta, delta=delta)
    exact = price([mechanism], delta=delta).epsilon
    if limit > 0:
        return exact / limit
    return math.inf if exact > 0 else 1.0
