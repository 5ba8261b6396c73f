"""DP-SGD: one file per station, none of which knows the planner or the cluster.

    randomness.mask -> randomness.cut -> gather -> augment -> gradients.clipped_sum -> audit now and
    then -> noise once -> all-reduce -> divide by the expected batch -> optimiser -> average

:class:`Trainer` walks them, :class:`LinearEnsemble` for many simulations of linear models at once;
:mod:`tan_core.engine.checkpoint` keeps a trainer's state. Before any data are read,
:func:`check_model`, :mod:`tan_core.engine.independence` and :mod:`tan_core.engine.coverage` refuse
models that cannot be private.
"""

from tan_core.engine.ensemble import LinearEnsemble
from tan_core.engine.gradients import ClippedSum, check_model, clipped_sum
from tan_core.engine.randomness import PrivateRandomness, Randomness, SeededRandomness
from tan_core.engine.trainer import StepStats, Trainer, TrainerState

__all__ = [
    "ClippedSum",
    "LinearEnsemble",
    "PrivateRandomness",
    "Randomness",
    "SeededRandomness",
    "StepStats",
    "Trainer",
    "TrainerState",
    "check_model",
    "clipped_sum",
]
