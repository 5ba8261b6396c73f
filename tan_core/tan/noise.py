r"""The total amount of noise and its closed forms (Sander et al. 2023, section 3).

NOTE: nothing here is a guarantee. The closed forms forget what happens below a noise multiplier of
about 2, where the true epsilon at the same :math:`\eta` can be forty times larger.
"""

import math

from tan_core import _validate
from tan_core.mechanism import Mechanism

_MOST = 1e100
"""Of a signal-to-noise ratio: its square is a float too."""


@_validate.plainly
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
    _validate.rate(sampling_rate=sampling_rate)
    _validate.positive(noise_multiplier=noise_multiplier)
    _validate.positive_integer(steps=steps)
    return sampling_rate * math.sqrt(steps / 2) / noise_multiplier


def eta_of(mechanism: Mechanism) -> float:
    """The :func:`signal_to_noise` ratio of a mechanism.

    Example:
        >>> run = Mechanism(
        ...     sampling_rate=0.08192, noise_multiplier=3.0, clip_norm=1.0, steps=2500
        ... )
        >>> f"{eta_of(run):.4f}"
        '0.9654'
    """
    _validate.instance(Mechanism, mechanism=mechanism)
    return signal_to_noise(
        sampling_rate=mechanism.sampling_rate,
        noise_multiplier=mechanism.noise_multiplier,
        steps=mechanism.steps,
    )


@_validate.plainly
def total_noise(*, sampling_rate: float, noise_multiplier: float, steps: int) -> float:
    r"""The total amount of noise, :math:`\Sigma = 1/\eta`: what a simulation keeps.

    Example:
        >>> reference = total_noise(sampling_rate=0.08192, noise_multiplier=3.0, steps=2500)
        >>> simulation = total_noise(sampling_rate=0.00512, noise_multiplier=0.1875, steps=2500)
        >>> f"{reference:.4f}", f"{simulation:.4f}"
        ('1.0358', '1.0358')
    """
    return 1 / signal_to_noise(
        sampling_rate=sampling_rate, noise_multiplier=noise_multiplier, steps=steps
    )


@_validate.plainly
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
    _validate.in_range(0, _MOST, signal_to_noise=signal_to_noise)
    _validate.probability(open_ends=True, delta=delta)
    return signal_to_noise**2 + 2 * signal_to_noise * math.sqrt(-math.log(delta))
