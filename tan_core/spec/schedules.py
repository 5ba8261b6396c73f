"""The learning rate of each step, as a function of the part of the run that is done."""

import math

from tan_core import _validate
from tan_core.errors import ParameterError
from tan_core.spec.train import Schedule, TrainerConfig


def scheduled_learning_rate(config: TrainerConfig, *, step: int, steps: int) -> float:
    r"""Learning rate of one step.

    With :math:`w` the warm-up, :math:`f` the final fraction and :math:`x = (t + 1/2) / S` the middle of
    step :math:`t`, it is the configured rate times

    .. math::

        x / w \quad (x < w), \qquad f + (1 - f)\, d\Big(\frac{x - w}{1 - w}\Big) \quad (x \ge w),

    where :math:`d(p)` is 1 - p (linear) or (1 + cos πp) / 2 (cosine); a constant rate stays whole.

    Formal guarantees:

    * Above 0 at every step: each step costs epsilon, so none is taken for nothing.
    * At most ``config.learning_rate``, and exactly that when constant and without a warm-up.
    * The mean over the run is that of the curve up to 1/S², so the moves at constant TAN, which keep
      ``learning_rate * steps``, keep it under every schedule.
    * No state: a run that goes on from a checkpoint has the rates of one that never stopped.

    Args:
        config: its ``learning_rate``, ``schedule``, ``warmup_fraction`` and
            ``final_learning_rate_fraction`` are read.
        step: t in [0, steps), steps taken before this one.
        steps: S >= 1, of the whole run.

    Raises:
        ParameterError: ``step`` is not one of the run's.

    Example:
        >>> config = TrainerConfig(learning_rate=4.0, schedule="linear", warmup_fraction=0.5)
        >>> [scheduled_learning_rate(config, step=t, steps=8) for t in range(8)]
        [0.5, 1.5, 2.5, 3.5, 3.5, 2.5, 1.5, 0.5]
    """
    _validate.positive_integer(steps=steps)
    if not 0 <= step < steps:
        raise ParameterError(f"step must be in [0, {steps}), got {step!r}", field="step")
    done = (step + 0.5) / steps
    return config.learning_rate * _factor(config, done)


def _factor(config: TrainerConfig, done: float) -> float:
    warmup, final = config.warmup_fraction, config.final_learning_rate_fraction
    if done < warmup:
        return done / warmup
    progress = (done - warmup) / (1 - warmup)
    match config.schedule:
        case Schedule.CONSTANT:
            return 1.0
        case Schedule.LINEAR:
            return final + (1 - final) * (1 - progress)
        case Schedule.COSINE:
            return final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2
