"""Ray Tune as it comes: a function, an actor of its own per trial, the default loggers; the same simulations."""

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from _search_tasks import Task, splits

from tan_core.wire import SearchAssignment
from worker.rung import Data, RungRun, chosen
from worker.settings import quieten_ray


def default_trials(
    work: SearchAssignment, task: Task, *, trials: int, cache_dir: Path
) -> dict[str, float]:
    """Core time beside the simulations, milliseconds per trial, from the first begin to the last end."""
    quieten_ray()
    os.environ |= {"RAY_ADDRESS": "local", "RAY_AUTH_MODE": "disabled"}
    import ray
    from ray import tune

    train, validation, _ = splits(task, cache_dir)
    data = Data(
        train=(train.inputs, train.labels), validation=(validation.inputs, validation.labels)
    )

    def simulate(config: dict[str, Any], data: Data) -> None:
        import torch

        torch.set_num_threads(1)
        started = time.time()
        run = RungRun(work, chosen(work, config), 0, data)
        while not run.is_over:
            run.advance()
        tune.report({"accuracy": run.score.accuracy, "from": started, "to": time.time()})

    ray.init(num_cpus=work.max_concurrent, include_dashboard=False, log_to_driver=False)
    began = time.time()
    with TemporaryDirectory() as folder:
        found = tune.Tuner(
            tune.with_resources(tune.with_parameters(simulate, data=data), {"cpu": 1}),
            param_space={
                "learning_rate": tune.grid_search([0.5 + 0.01 * number for number in range(trials)])
            },
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()
    spans = [(result.metrics["from"], result.metrics["to"]) for result in found if result.metrics]
    ray.shutdown()
    if len(spans) != trials:
        raise RuntimeError(f"{trials - len(spans)} of {trials} trials failed: {found.errors[:1]}")
    cores = work.max_concurrent or 1
    busy = sum(end - start for start, end in spans)
    # A trial is not paid for until its actor is there: the first one's start-up is left out, as in ours.
    whole = max(end for _, end in spans) - min(start for start, _ in spans)
    return {
        "between, ms a trial": 1000 * (cores * whole - busy) / trials,
        "trial seconds": busy / trials,
        "start and end, s": time.time() - began - whole,
    }
