r"""The four moves that leave :math:`\eta` unchanged, and what the learning rate does with each.

At constant :math:`\eta` the noise that training accumulates depends on the step sizes through
``learning_rate * steps`` alone, so every move keeps that product. Each takes the new value that is
freely chosen (a factor, or whole steps) and solves for the rest, so nothing is rounded.
"""

import math
from dataclasses import dataclass, replace

from tan_core import _validate


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the moves act on.

    Args:
        expected_batch_size: B > 0, examples.
        noise_multiplier: sigma > 0.
        steps: S >= 1.
        learning_rate: > 0, per clipped gradient.
    """

    expected_batch_size: float
    noise_multiplier: float
    steps: int
    learning_rate: float

    def __post_init__(self) -> None:
        _validate.positive(
            expected_batch_size=self.expected_batch_size,
            noise_multiplier=self.noise_multiplier,
            learning_rate=self.learning_rate,
        )
        _validate.positive_integer(steps=self.steps)


def scale_batch(setting: Setting, *, scale_factor: float) -> Setting:
    """(B/k, sigma/k) at equal steps and learning rate: the simulation, at 1/k of the cost.

    NOTE: epsilon is kept only while the noise multiplier stays above 2.
    """
    _validate.positive(scale_factor=scale_factor)
    return replace(
        setting,
        expected_batch_size=setting.expected_batch_size / scale_factor,
        noise_multiplier=setting.noise_multiplier / scale_factor,
    )


def trade_steps_for_batch(setting: Setting, *, steps: int) -> Setting:
    """Other steps at equal noise: B goes with 1/sqrt(S), the learning rate with 1/S.

    Example:
        >>> long = Setting(
        ...     expected_batch_size=256, noise_multiplier=2.5, steps=72_000, learning_rate=8.0
        ... )
        >>> short = trade_steps_for_batch(long, steps=18_000)
        >>> short.expected_batch_size, short.learning_rate
        (512.0, 32.0)
    """
    _validate.positive_integer(steps=steps)
    return replace(
        _with_steps(setting, steps),
        expected_batch_size=setting.expected_batch_size * math.sqrt(setting.steps / steps),
    )


def trade_steps_for_noise(setting: Setting, *, steps: int) -> Setting:
    """Other steps at equal batch: sigma goes with sqrt(S), the learning rate with 1/S."""
    _validate.positive_integer(steps=steps)
    return replace(
        _with_steps(setting, steps),
        noise_multiplier=setting.noise_multiplier * math.sqrt(steps / setting.steps),
    )


def keep_epochs(setting: Setting, *, steps: int) -> Setting:
    """Other steps over equally many examples: B with 1/S, sigma with 1/sqrt(S), learning rate with 1/S."""
    _validate.positive_integer(steps=steps)
    fewer = setting.steps / steps
    return replace(
        _with_steps(setting, steps),
        expected_batch_size=setting.expected_batch_size * fewer,
        noise_multiplier=setting.noise_multiplier * math.sqrt(fewer),
    )


def _with_steps(setting: Setting, steps: int) -> Setting:
    """Other steps, and the learning rate that keeps their product."""
    return replace(
        setting, steps=steps, learning_rate=setting.learning_rate * setting.steps / steps
    )
