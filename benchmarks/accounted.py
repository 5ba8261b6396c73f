"""What a search that is paid for is worth: the same target, searched, searched for nothing, and not searched.

    python benchmarks/accounted.py [--quick] [--json FILE] [--state FILE]

On MNIST and CIFAR-10 (JPEG) with tanh-cnn, B = 2048 for 200 steps, delta 1e-5, eight learning rates are all there is to choose from, evenly
by ratio from 0.25 to 16.

*not searched*: each rate is trained at the noise of a study without a search. The mean over them is what a rate that
is picked blindly reaches, the best one what a rate that somebody knew would.

*accounted*: eight charged trials, by the worker's own code: each a private run at the planned batch, scored by a noisy
count. The first three begin anew with rates that are drawn among the eight, each later one goes on from the best before it, and the
private run from the trial that is worth most: all at the noise that is left for the run, as the service does.

*all anew*: each rate is a charged trial that begins anew, as it was before trials went on. The best score is trained from the weights that
its trial left, at half of its rate, and *run anew* for comparison. Two searches of each kind, each with noise of its own.

*unaccounted*: each rate is simulated at B/16 with the noise of constant TAN, scored without noise, and the best is
trained as if nothing had been searched: what papers do, and what the owner of the data has to waive.

Every unit of work is kept in the state file, so a killed benchmark goes on where it was. Accuracies are of the test split;
private runs draw noise that can be drawn again.
"""

import argparse
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from _report import circumstances, row
from _search_study import assignment, tensors
from _search_tasks import Params, Task, splits, trained
from _units import Result, Units

from tan_core.engine import checkpoint
from tan_core.engine.memory import keep_freed_memory
from tan_core.execution import PrivateRun
from tan_core.planner import Plan, plan_study
from tan_core.planner.candidates import GOES_ON_LEARNING_RATE
from tan_core.planner.lineage import factor_of, start_of, trials_anew, worth_of
from tan_core.spec import StudySpec
from tan_core.wire import (
    ChargedTrials,
    MechanismMessage,
    TrialRecord,
    TrialStart,
    TrialState,
    TrialWeights,
)
from worker.charged import ChargedRun
from worker.rung import Data, chosen

EPSILONS = (3.0, 8.0)
TRIALS = 8
SEARCHES = 2
RATES = [float(rate) for rate in np.geomspace(0.25, 16.0, TRIALS)]
FIXED: Params = {"ema_decay": 0.9}
CLIP_NORM = 0.1


def study(task: Task, accounting: str) -> StudySpec:
    """As a user would submit it."""
    search: dict[str, Any] = {"accounting": accounting}
    if accounting != "no_search":
        search |= {"trials": TRIALS, "space": {"learning_rate": {"choices": RATES}}}
    given = task.study().model_dump(mode="json")
    train = {
        "batch_size": task.batch_size,
        "steps": task.steps,
        "workers": 1,
        "clip_norm": CLIP_NORM,
    }
    return StudySpec.model_validate({**given, "search": search, "train": {**train, **FIXED}})


def plan(task: Task, accounting: str) -> Plan:
    """What the planner makes of it."""
    ref = task.ref
    return plan_study(
        study(task, accounting), num_examples=ref.num_train, num_validation=ref.num_validation
    )


class Bench:
    """A task and what is known of it."""

    def __init__(self, task: Task, units: Units) -> None:
        self._task, self._units = task, units
        self._cache = units.folder / "features"

    def run(
        self,
        rate: float,
        reference: PrivateRun,
        kind: str,
        seed: int,
        batch: float,
        begin_from: Mapping[str, torch.Tensor] | None = None,
    ) -> Result:
        """One run at this batch and constant TAN."""
        return self._units.once(
            f"{self._task.name}/{kind}/{rate:.4g}/{seed}",
            lambda: trained(
                self._task,
                reference,
                {"learning_rate": rate, "clip_norm": CLIP_NORM, **FIXED},
                batch_size=batch,
                seed=seed,
                cache_dir=self._cache,
                begin_from=begin_from,
            ),
        )

    def trial(self, charged: Plan, rate: float, seed: int) -> Result:
        """A charged trial by the worker's own code: all that is seen of it."""
        return self._units.once(
            f"{self._task.name}/trial/{rate:.4g}/{seed}", lambda: self._charged(charged, rate)
        )

    def searched(self, charged: Plan, seed: int) -> tuple[TrialRecord, float]:
        """The trial that a search of ours promotes, and how accurate it is worth being."""
        search = charged.charged_search
        assert search is not None
        std, found = search.score_std or 0.0, list[TrialRecord]()
        anew = [float(rate) for rate in np.random.default_rng(seed).permutation(RATES)]
        for number in range(TRIALS):
            begun = start_of(number, found, anew=trials_anew(TRIALS), score_std=std)
            start = None if begun is None else begun[1]
            params = {"learning_rate": anew[number]} if begun is None else begun[0].params
            rate = float(params["learning_rate"])
            unit = self._units.once(
                f"{self._task.name}/relay-{seed}/{number}",
                lambda rate=rate, start=start: self._charged(charged, rate, start),
            )
            found.append(
                TrialRecord(
                    number=number,
                    state=TrialState.COMPLETED,
                    params=params,
                    value=unit["score"],
                    weights_sha256=unit.get("sha256"),
                    began_from=start,
                )
            )
        worth = worth_of(found, std)
        best = max(found, key=lambda trial: worth[trial.number].accuracy)
        return best, worth[best.number].accuracy

    def _charged(self, planned: Plan, rate: float, start: TrialStart | None = None) -> Result:
        task, search = self._task, planned.charged_search
        assert search is not None
        train, validation, _ = splits(task, self._cache)
        relation = planned.privacy.neighboring_relation
        charged = ChargedTrials(
            mechanism=MechanismMessage(event=search.trial(relation).to_json()),
            score_noise_multiplier=search.score_noise_multiplier,
        )
        spec = study(task, "accounted")
        work = assignment(task, planned.private_run(), seed=0, given=[]).model_copy(
            update={"trainer": spec.train.trainer(), "search": spec.search}
        )
        data = Data(train=tensors(train), validation=tensors(validation))
        candidate, begin_from = chosen(work, {"learning_rate": rate}), None
        if start is not None:
            sha256 = start.weights_sha256
            candidate = candidate.at_learning_rate(start.learning_rate_factor)
            path = str(self._left(sha256))
            begin_from = TrialWeights(trial=start.trial, path=path, sha256=sha256)
        run = ChargedRun(
            work, charged, candidate, data, charge=lambda steps: steps, begin_from=begin_from
        )
        while not run.is_over:
            run.advance()
        weights = run.weights
        if weights is None:
            return {"score": 0.0}
        sha256 = checkpoint.keep_weights(weights, self._left)
        return {"score": run.score.accuracy or 0.0, "sha256": sha256}

    def _left(self, sha256: str) -> Path:
        """The file with the weights of a trial."""
        return self._units.folder / f"weights-{sha256}"

    def found(self) -> dict[str, Any]:
        """Everything, in percent of the test split."""
        task = self._task
        free, paid = plan(task, "no_search"), plan(task, "accounted")
        search = paid.charged_search
        assert search is not None
        alone = [
            self.run(rate, free.private_run(), "full", 0, task.batch_size)["test"] for rate in RATES
        ]
        simulated = [
            self.run(rate, free.private_run(), "simulated", 0, task.batch_size / 16)["validation"]
            for rate in RATES
        ]
        accounted, worth, all_anew, anew = [], [], [], []
        for seed in range(SEARCHES):
            best, accuracy = self.searched(paid, seed)
            left = checkpoint.load_weights(
                self._left(best.weights_sha256 or ""), best.weights_sha256 or ""
            )
            reached = self.run(
                GOES_ON_LEARNING_RATE * factor_of(best) * float(best.params["learning_rate"]),
                paid.private_run(),
                f"relay-{seed}",
                seed,
                task.batch_size,
                begin_from=left,
            )
            accounted.append(reached["test"])
            worth.append(accuracy)
            trials = [self.trial(paid, rate, seed) for rate in RATES]
            chosen = int(np.argmax([trial["score"] for trial in trials]))
            rate, sha256 = RATES[chosen], trials[chosen]["sha256"]
            left = checkpoint.load_weights(self._left(sha256), sha256)
            run = paid.private_run()
            reached = self.run(rate, run, f"paid-{seed}", seed, task.batch_size)
            on = self.run(
                GOES_ON_LEARNING_RATE * rate,
                run,
                f"paid-on-{seed}",
                seed,
                task.batch_size,
                begin_from=left,
            )
            anew.append(reached["test"])
            all_anew.append((rate, on["test"]))
        return {
            "task": task.name,
            "sigma": free.reference.noise_multiplier,
            "sigma_accounted": paid.reference.noise_multiplier,
            "trial": f"{paid.rungs[0]}, {search.noise_multiplier:.2f}",
            "score_std": 100 * (search.score_std or 0.0),
            "blind": 100 * fmean(alone),
            "worst": 100 * min(alone),
            "best": 100 * max(alone),
            "unaccounted": 100 * alone[int(np.argmax(simulated))],
            "accounted": [100 * test for test in accounted],
            "worth": [100 * each for each in worth],
            "all_anew": [100 * test for _, test in all_anew],
            "anew": [100 * test for test in anew],
            "rates": [rate for rate, _ in all_anew],
            "best_rate": RATES[int(np.argmax(alone))],
        }


def table(found: Iterable[dict[str, Any]]) -> str:
    """For people."""
    lines = [
        "| task | σ, not searched and accounted | a trial: batch, σ | noise of a score | not searched: blind (worst to best) "
        "| accounted | all anew | all anew, run anew | unaccounted |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines.extend(
        f"| {one['task']} | {one['sigma']:.2f}, {one['sigma_accounted']:.2f} | {one['trial']} | ± {one['score_std']:.2f} | "
        f"{one['blind']:.1f} ({one['worst']:.1f} to {one['best']:.1f}) | "
        f"{_percent(one['accounted'])} | {_percent(one['all_anew'])} | {_percent(one['anew'])} | {one['unaccounted']:.1f} |"
        for one in found
    )
    return "\n".join(lines)


def _percent(values: Iterable[float]) -> str:
    return ", ".join(f"{each:.1f}" for each in values)


def main() -> None:
    """Run what is left of it and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="digits, within a minute")
    parser.add_argument("--json", type=Path, help="rows for scripts")
    parser.add_argument("--state", type=Path, help="units that are done; default: none is kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    tasks = [
        Task(dataset, "tanh-cnn", epsilon)
        for dataset in ("mnist", "cifar10-jpeg")
        for epsilon in EPSILONS
    ]
    if options.quick:
        tasks = [Task("digits", "linear", 8.0, batch_size=256, steps=100)]
    print(circumstances())
    missing = [task.name for task in tasks if not task.is_there()]
    if missing:
        print(f"not there, and left out: {', '.join(missing)} (TAN_DATA_DIR)")
    with tempfile.TemporaryDirectory() as folder:
        units = Units(options.state or Path(folder) / "units.jsonl")
        found = [Bench(task, units).found() for task in tasks if task.is_there()]
    print(table(found))
    if options.json is not None:
        rows = [
            row(
                f"{one['task']}: accounted",
                fmean(one["accounted"]),
                "%",
                "blind",
                fmean(one["accounted"]) / one["blind"],
            )
            for one in found
        ]
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
