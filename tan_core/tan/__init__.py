"""TAN, the total amount of noise: what it is, what it hides, and what leaves it unchanged."""

from tan_core.tan.law import Law, LawMethod, Observation, Prediction, counted, fit_law
from tan_core.tan.noise import epsilon_tan, eta_of, signal_to_noise, total_noise
from tan_core.tan.pairs import paired_runs_needed
from tan_core.tan.scaling import (
    Setting,
    keep_epochs,
    scale_batch,
    trade_steps_for_batch,
    trade_steps_for_noise,
)
from tan_core.tan.wall import WallPoint, constant_tan_curve, limit_epsilon, overcharge, wall

__all__ = [
    "Law",
    "LawMethod",
    "Observation",
    "Prediction",
    "Setting",
    "WallPoint",
    "constant_tan_curve",
    "counted",
    "epsilon_tan",
    "eta_of",
    "fit_law",
    "keep_epochs",
    "limit_epsilon",
    "overcharge",
    "paired_runs_needed",
    "scale_batch",
    "signal_to_noise",
    "total_noise",
    "trade_steps_for_batch",
    "trade_steps_for_noise",
    "wall",
]
