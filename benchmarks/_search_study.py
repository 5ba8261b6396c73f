"""A study's search without a service: the worker's own code on a Ray of its own, reports in memory."""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from _search_tasks import Params, Task, splits
from pydantic import SecretStr
from torch import Tensor

from tan_core.data import Split
from tan_core.engine.inputs import as_tensor
from tan_core.execution import PrivateRun
from tan_core.wire import (
    HeartbeatReply,
    MechanismMessage,
    SearchAssignment,
    TrialRecord,
    TrialState,
)
from worker.driver import Driver
from worker.report import Heartbeats
from worker.rung import Data, chosen, run_rung
from worker.settings import WorkerSettings, quieten_ray


class Reports:
    """A control plane as far as a search needs one."""

    def __init__(self) -> None:
        self.trials: dict[int, TrialRecord] = {}

    def report_trial(self, trial: TrialRecord) -> None:
        """Keep the newest record of a trial."""
        self.trials[trial.number] = trial

    def heartbeat(self, **progress: Any) -> HeartbeatReply:
        """Nobody cancels."""
        return HeartbeatReply(desired="run")


def assignment(
    task: Task, reference: PrivateRun, *, seed: int, given: Iterable[Params]
) -> SearchAssignment:
    """The search of a study; ``given`` are trials that it has to begin with."""
    study, plan = task.study(seed), task.plan()
    private_run = task.batch_size * task.steps
    return SearchAssignment(
        run_id=f"{study.name}-{seed}",
        study_id=study.name,
        study_name=study.name,
        attempt=1,
        fence=1,
        search=study.search,
        model=task.spec,
        trainer=study.train.trainer(),
        reference=MechanismMessage(event=reference.mechanism.to_json()),
        target=None,
        num_examples=reference.num_examples,
        rungs=plan.rungs,
        heat=plan.heat is not None,
        confirmation=plan.confirmation_batch,
        max_concurrent=1,
        max_examples=round(study.search.budget * private_run),
        dataset=task.ref,
        trials=[
            TrialRecord(number=number, state=TrialState.INTERRUPTED, params=params)
            for number, params in enumerate(given)
        ],
    )


def scored(
    task: Task,
    work: SearchAssignment,
    params: Params,
    rung: int,
    cache_dir: Path,
    *,
    seed: int = 0,
) -> dict[str, float]:
    """What a trial scores at a rung, and after its first part: by means of weights; 0 where it was given up.

    ``released`` is what the weights that it would release score.
    """
    train, validation, _ = (tensors(split) for split in splits(task, cache_dir))
    data = Data(train=train, validation=validation)
    run = run_rung(work, chosen(work, params), rung, data, seed=seed)
    curve = run.score.curve
    return {
        "score": run.score.accuracy or 0.0,
        "first": curve[0].accuracy if curve else 0.0,
        "released": run.score.released or 0.0,
    }


def tensors(split: Split) -> tuple[Tensor, Tensor]:
    """What a trial reads of a split."""
    return as_tensor(split.inputs), as_tensor(split.labels)


def searched(
    work: SearchAssignment, cache_dir: Path, books: Reports | None = None
) -> dict[str, Any]:
    """Run it; every trial's record and the seconds by the clock on the wall."""
    quieten_ray()
    # A Ray that ends with this process; read when it is imported.
    os.environ |= {"RAY_ADDRESS": "local", "RAY_AUTH_MODE": "disabled"}
    import ray

    from worker.search import search

    reports: Any = books or Reports()
    settings = WorkerSettings(
        api_url="", run_id=work.run_id, fence=1, run_token=SecretStr(""), cache_dir=cache_dir
    )
    driver = Driver(settings=settings, control=reports, heartbeats=Heartbeats(reports))
    started = time.perf_counter()
    outcome = search(work, driver)
    seconds = time.perf_counter() - started
    ray.shutdown()
    if outcome.outcome != "succeeded":
        raise SystemExit(f"{work.run_id}: {outcome.reason}")
    trials = sorted(reports.trials.values(), key=lambda trial: trial.number)
    return {"seconds": seconds, "trials": [trial.model_dump(mode="json") for trial in trials]}
