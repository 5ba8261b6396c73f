"""When a simulation is not worth its next rung: Tune's ASHA, one milestone per rung of batch size."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler

from tan_core.planner import reduction_factor
from tan_core.wire import TrialRecord
from worker.searcher import METRIC

RESOURCE = "resource"


def resource(rung: int, rungs: Sequence[int]) -> float:
    """ASHA's time axis: it cuts at powers of its reduction factor, and each rung is one."""
    return reduction_factor(rungs) ** rung


def name_of(config: Mapping[str, Any]) -> str:
    """What is run of a trial, by its config: no two at a time have the same."""
    number, seed = config["number"], config["seed"]
    return f"trial {number} with seed {seed}" if seed else f"trial {number}"


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
        reached = score.curve[-1].accuracy if score.curve else score.accuracy or 0.0
        result = {RESOURCE: resource(score.rung, rungs), METRIC: reached}
        scheduler.on_trial_result(nobody, past, result)
