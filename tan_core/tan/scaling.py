r"""The four moves that leave :math:`\eta` unchanged, and what training does with each.

At constant :math:`\eta` the noise that training accumulates depends on the step sizes through
``learning_rate * steps`` alone, so every move keeps that product, and with it both the distance that
gradients can carry the weights and the distance that noise does. Each move takes the new value that is
freely chosen (a factor, or whole steps) and solves for the rest, so nothing is rounded.

=========================  =======  =======  ===================  ===========  ================
Move                       B        sigma    learning rate        EMA, warm-up  examples seen
=========================  =======  =======  ===================  ===========  ================
scale_batch                B/k      sigma/k  kept                 kept         1/k
trade_steps_for_batch      1/√S     kept     1/S                  follow S     √S
trade_steps_for_noise      kept     √S       1/S                  follow S     S
keep_epochs                1/S      1/√S     1/S                  follow S     kept
=========================  =======  =======  ===================  ===========  ================

Whatever is counted in steps follows S, so that it covers the same part of the run: warm-up goes in
proportion to S, and an averaging of weights with decay d, whose memory is 1/(1 - d) steps, keeps
(1 - d) S. A learning-rate schedule is a function of step / S here and needs no rule of its own.

References:
    Sander, Stock and Sablayrolles (2023), sections 3.4 and 4.3, Table 3. The rules for the EMA and the
    warm-up are this library's: the paper has none.
"""

import math
from dataclasses import dataclass, fields, replace

from tan_core import _validate


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the moves act on.

    Args:
        expected_batch_size: B > 0, examples.
        noise_multiplier: sigma > 0.
        steps: S >= 1.
        learning_rate: > 0, per clipped gradient.
        ema_decay: d in [0, 1), per step; 0 or None: the weights are not averaged.
        warmup_steps: in [0, steps], steps until the learning rate is whole. A real number, so that a
            move and its inverse cancel; None: no warm-up.

    Raises:
        ParameterError: an argument is outside the domain above.
    """

    expected_batch_size: float
    noise_multiplier: float
    steps: int
    learning_rate: float
    ema_decay: float | None = None
    warmup_steps: float | None = None

    def __post_init__(self) -> None:
        _validate.make_plain(self, *(each.name for each in fields(self)))
        _validate.positive(
            expected_batch_size=self.expected_batch_size,
            noise_multiplier=self.noise_multiplier,
            learning_rate=self.learning_rate,
        )
        _validate.positive_integer(steps=self.steps)
        if self.ema_decay is not None:
            _validate.fraction(ema_decay=self.ema_decay)
        if self.warmup_steps is not None:
            _validate.in_range(0, self.steps, warmup_steps=self.warmup_steps)


@_validate.plainly
def scale_batch(setting: Setting, *, scale_factor: float) -> Setting:
    """(B/k, sigma/k) and all else untouched: the simulation, at 1/k of the cost.

    NOTE: epsilon is kept only while the noise multiplier stays above 2; see :mod:`tan_core.tan.wall`.

    Args:
        setting: the reference.
        scale_factor: k > 0; below 1 the batch grows.

    Example:
        >>> reference = Setting(
        ...     expected_batch_size=4096, noise_multiplier=3.0, steps=2500, learning_rate=4.0
        ... )
        >>> simulation = scale_batch(reference, scale_factor=16)
        >>> simulation.expected_batch_size, simulation.noise_multiplier
        (256.0, 0.1875)
    """
    _validate.instance(Setting, setting=setting)
    _validate.positive(scale_factor=scale_factor)
    return replace(
        setting,
        expected_batch_size=setting.expected_batch_size / scale_factor,
        noise_multiplier=setting.noise_multiplier / scale_factor,
    )


@_validate.plainly
def trade_steps_for_batch(setting: Setting, *, steps: int) -> Setting:
    """Other steps at equal noise multiplier: B goes with 1/sqrt(S), the learning rate with 1/S.

    Example:
        >>> long = Setting(
        ...     expected_batch_size=256,
        ...     noise_multiplier=2.5,
        ...     steps=72_000,
        ...     learning_rate=8.0,
        ...     ema_decay=0.999,
        ...     warmup_steps=1000,
        ... )
        >>> short = trade_steps_for_batch(long, steps=18_000)
        >>> short.expected_batch_size, short.learning_rate, short.warmup_steps
        (512.0, 32.0, 250.0)
        >>> f"{short.ema_decay:.3f}"
        '0.996'
    """
    _validate.instance(Setting, setting=setting)
    _validate.positive_integer(steps=steps)
    return replace(
        _with_steps(setting, steps),
        expected_batch_size=setting.expected_batch_size * math.sqrt(setting.steps / steps),
    )


@_validate.plainly
def trade_steps_for_noise(setting: Setting, *, steps: int) -> Setting:
    """Other steps at equal batch: sigma goes with sqrt(S), the learning rate with 1/S.

    Example:
        >>> short = Setting(
        ...     expected_batch_size=4096, noise_multiplier=3.0, steps=2500, learning_rate=4.0
        ... )
        >>> long = trade_steps_for_noise(short, steps=10_000)
        >>> long.noise_multiplier, long.learning_rate
        (6.0, 1.0)
    """
    _validate.instance(Setting, setting=setting)
    _validate.positive_integer(steps=steps)
    return replace(
        _with_steps(setting, steps),
        noise_multiplier=setting.noise_multiplier * math.sqrt(steps / setting.steps),
    )


@_validate.plainly
def keep_epochs(setting: Setting, *, steps: int) -> Setting:
    """Other steps over equally many examples: B with 1/S, sigma with 1/sqrt(S), learning rate with 1/S.

    Example:
        >>> small = Setting(
        ...     expected_batch_size=2048, noise_multiplier=2.0, steps=10_000, learning_rate=1.0
        ... )
        >>> large = keep_epochs(small, steps=2500)
        >>> large.expected_batch_size, large.noise_multiplier, large.learning_rate
        (8192.0, 4.0, 4.0)
    """
    _validate.instance(Setting, setting=setting)
    _validate.positive_integer(steps=steps)
    fewer = setting.steps / steps
    return replace(
        _with_steps(setting, steps),
        expected_batch_size=setting.expected_batch_size * fewer,
        noise_multiplier=setting.noise_multiplier * math.sqrt(fewer),
    )


def _with_steps(setting: Setting, steps: int) -> Setting:
    """Other steps, and all that is counted in them."""
    return replace(
        setting,
        steps=steps,
        learning_rate=setting.learning_rate * setting.steps / steps,
        ema_decay=_decay_over(setting, steps),
        warmup_steps=_warmup_over(setting, steps),
    )


def _decay_over(setting: Setting, steps: int) -> float | None:
    """The decay that keeps (1 - decay) S: 0 where less than one step is remembered, or none was."""
    if not setting.ema_decay:
        return setting.ema_decay
    return max(0.0, 1 - (1 - setting.ema_decay) * setting.steps / steps)


def _warmup_over(setting: Setting, steps: int) -> float | None:
    """The same part of the run; at most the run, whatever the rounding."""
    if setting.warmup_steps is None:
        return None
    return min(setting.warmup_steps * steps / setting.steps, float(steps))
