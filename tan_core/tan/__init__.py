"""TAN, the total amount of noise: what it is, what it hides, and what leaves it unchanged."""

from tan_core.tan.noise import epsilon_tan, signal_to_noise, total_noise
from tan_core.tan.scaling import (
    Setting,
    keep_epochs,
    scale_batch,
    trade_steps_for_batch,
    trade_steps_for_noise,
)
from tan_core.tan.wall import WallPoint, constant_tan_curve, overcharge, wall

__all__ = [
    "Setting",
    "WallPoint",
    "constant_tan_curve",
    "epsilon_tan",
    "keep_epochs",
    "overcharge",
    "scale_batch",
    "signal_to_noise",
    "total_noise",
    "trade_steps_for_batch",
    "trade_steps_for_noise",
    "wall",
]
