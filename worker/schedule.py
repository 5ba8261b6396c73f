"""When a simulation is not worth its next rung: Tune's ASHA, one milestone per rung of batch size."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler

from tan_core.wire import TrialRecord
from worker.searcher import METRIC

RESOURCE = "resource"


def reduction_factor(rungs: Sequence[int]) -> float:
    """How many trials enter a rung for each one that leaves it.

    The ratio of two neighbouring batch sizes, so that every rung costs about the same in all; within
    [2, 4], so that neither hardly anything nor nearly everything is cut.
    """
    if len(rungs) < 2:
        return 2.0
    ratio = (rungs[-1] / rungs[0]) ** (1 / (len(rungs) - 1))
    return min(4.0, max(2.0, ratio))


def resource(rung: int, rungs: Sequence[int]) -> float:
    """ASHA's time axis: it cuts at powers of its reduction factor, and each rung is one."""
    return reduction_factor(rungs) ** rung


def build_scheduler(rungs: Sequence[int], known: Sequence[TrialRecord]) -> TrialScheduler:
    """ASHA over the rungs, remembering the scores of earlier attempts; one rung needs no cut."""
    if len(rungs) < 2:
        return FIFOScheduler()
    scheduler = ASHAScheduler(
        time_attr=RESOURCE,
        metric=METRIC,
        mode="max",
        max_t=resource(len(rungs) - 1, rungs),  # pyright: ignore[reportArgumentType] - any number
        reduction_factor=reduction_factor(rungs),
    )
    for trial in known:
        if trial.state.is_finished:
            _remember(scheduler, trial, rungs)
    return scheduler


def _remember(scheduler: ASHAScheduler, trial: TrialRecord, rungs: Sequence[int]) -> None:
    # ASHA reads nothing of a trial but its id.
    past: Any = SimpleNamespace(trial_id=f"known-{trial.number}")
    nobody: Any = None
    scheduler.on_trial_add(nobody, past)
    for score in trial.scores:
        result = {RESOURCE: resource(score.rung, rungs), METRIC: score.accuracy or 0.0}
        scheduler.on_trial_result(nobody, past, result)
