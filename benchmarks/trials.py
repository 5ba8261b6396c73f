"""What a trial costs beside its steps, in a search by Ray Tune on all cores.

    python benchmarks/trials.py [--quick] [--json FILE]

The worker's own search with one rung and random candidates, all of about the same length. *Between
simulations* is core time from the first trial's beginning to the last one's end that no simulation was
running in, per trial: Tune, the searcher, reports, and cores that wait for the last trial. *Inside*, what a
simulation spends beside its steps (building the trainer, scoring) is timed in this process, alone. Starting
Ray and its worker processes is told apart: it is paid once a study.
"""

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from _report import circumstances, row
from _search_study import Reports, assignment, searched
from _search_tasks import QUICK, TASKS, Params, Task, splits

from tan_core.wire import SearchAssignment, TrialRecord
from worker.rung import Data, RungRun, chosen

RUNG = 32
REPEATS = 5


class Clocked(Reports):
    """Reports with the time at which each arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived: list[float] = []

    def report_trial(self, trial: TrialRecord) -> None:
        """Keep the record and the time."""
        self.arrived.append(time.perf_counter())
        super().report_trial(trial)


def work_of(task: Task, *, trials: int) -> SearchAssignment:
    """A search of one rung over learning rates at which nothing diverges; no finals but the free one."""
    plan = task.plan()
    given: list[Params] = [{"learning_rate": 0.5 + 0.01 * number} for number in range(trials)]
    whole = assignment(task, plan.private_run(), seed=0, given=given)
    search = whole.search.model_copy(update={"trials": trials})
    return whole.model_copy(
        update={
            "search": search,
            "rungs": [RUNG],
            "max_concurrent": os.cpu_count(),
            "max_examples": 0,
        }
    )


def inside(work: SearchAssignment, data: Data) -> tuple[float, float]:
    """Median seconds of a whole simulation, and of its steps alone."""
    candidate = chosen(work, {"learning_rate": 0.5})
    whole, steps = [], []
    for _ in range(REPEATS):
        run = RungRun(work, candidate, 0, data)
        while not run.is_over:
            run.advance()
        whole.append(run.score.seconds)
        trainer = RungRun(work, candidate, 0, data).trainer
        started = time.perf_counter()
        while trainer.steps_done < trainer.mechanism.steps:
            trainer.step()
        steps.append(time.perf_counter() - started)
    return median(whole), median(steps)


def measure(task: Task, *, trials: int, cache_dir: Path) -> dict[str, float]:
    """All figures of one search."""
    work, reports = work_of(task, trials=trials), Clocked()
    torch.set_num_threads(1)
    train, validation, _ = splits(task, cache_dir)
    data = Data(
        train=(train.inputs, train.labels), validation=(validation.inputs, validation.labels)
    )
    one, in_steps = inside(work, data)
    started = time.perf_counter()
    searched(work, cache_dir, reports)
    explored = [trial.scores[0].seconds for trial in reports.trials.values()]
    repeated = [score.seconds for trial in reports.trials.values() for score in trial.repeats]
    cores = work.max_concurrent or 1
    # Reports arrive when trials begin and end; the finals run alone at the end and are left out.
    span = reports.arrived[2 * trials - 1] - reports.arrived[0]
    return {
        "trial seconds": median(explored),
        "between, ms a trial": 1000 * (cores * span - sum(explored)) / trials,
        "inside, ms a trial": 1000 * (one - in_steps),
        "core time in steps": sum(explored) * (in_steps / one) / (cores * span),
        "start and end, s": time.perf_counter() - started - span - sum(repeated),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="digits, within a minute")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    options = parser.parse_args()
    if options.quick:
        tasks = [(replace(QUICK[0], steps=600), 8)]
    else:
        tasks = [(replace(TASKS[0], steps=steps), 24) for steps in (100, 1000)]
    rows: list[dict[str, Any]] = []
    print(circumstances(), end="\n\n")
    for task, trials in tasks:
        if not task.is_there():
            print(f"{task.name}: skipped, its data are not on this machine")
            continue
        with TemporaryDirectory() as folder:
            found = measure(task, trials=trials, cache_dir=Path(folder))
        print(f"{task.name}, {task.steps} steps at batch {RUNG}, {trials} trials")
        for name, value in found.items():
            print(f"  {name}: {value:.3g}")
            rows.append(row(f"{task.name} {task.steps}: {name}", value, name))
    if options.json:
        options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
