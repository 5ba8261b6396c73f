"""When a simulation is not worth its next rung: Tune's ASHA, one milestone per rung of batch size, and one for a heat."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler

from tan_core.planner import in_parts, reduction_factor
from tan_core.wire import RungScore, TrialRecord
from worker.searcher import METRIC

RESOURCE = "resource"


def resource(cut: int, cuts: Sequence[float]) -> float:
    """ASHA's time axis: it cuts at powers of its reduction factor, and the end of each rung, or of a heat, is one."""
    return reduction_factor(cuts) ** cut


def cut_of(score: RungScore, *, has_heat: bool) -> int:
    """Which cut this score is at, or was given up before."""
    if not has_heat:
        return score.rung
    went_on = score.rung > 0 or (len(score.curve) > 0 and score.steps > score.curve[0].step)
    return score.rung + went_on


def name_of(config: Mapping[str, Any]) -> str:
    """What is run of a trial, by its config: no two at a time have the same."""
    number, seed = config["number"], config["seed"]
    return f"trial {number} with seed {seed}" if seed else f"trial {number}"


def build_scheduler(
    cuts: Sequence[float], known: Sequence[TrialRecord], *, has_heat: bool = False
) -> TrialScheduler:
    """ASHA over the cuts, remembering the scores of earlier attempts; one rung without a heat needs none.

    Args:
        cuts: as ``SearchAssignment.cuts``.
        known: trials of earlier attempts.
        has_heat: whether the first cut ends a heat.
    """
    if len(cuts) < 2:
        return FIFOScheduler()
    scheduler = ASHAScheduler(
        time_attr=RESOURCE,
        metric=METRIC,
        mode="max",
        max_t=resource(len(cuts) - 1, cuts),  # pyright: ignore[reportArgumentType] - any number
        reduction_factor=reduction_factor(cuts),
    )
    for trial in known:
        if trial.state.is_finished:
            _remember(scheduler, in_parts(trial) if has_heat else trial, cuts)
    return scheduler


def _remember(scheduler: ASHAScheduler, trial: TrialRecord, cuts: Sequence[float]) -> None:
    # ASHA reads nothing of a trial but its id.
    past: Any = SimpleNamespace(trial_id=f"known-{trial.number}")
    nobody: Any = None
    scheduler.on_trial_add(nobody, past)
    for score in trial.scores:
        reached = score.curve[-1].accuracy if score.curve else score.accuracy or 0.0
        result = {RESOURCE: resource(score.rung, cuts), METRIC: reached}
        scheduler.on_trial_result(nobody, past, result)
