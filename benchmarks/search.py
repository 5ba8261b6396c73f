"""Is the search worth its name: what it saves, what it finds, and whether its predictions hold.

    python benchmarks/search.py [--quick | --large] [--json FILE] [--state FILE] [--task NAME] [--stage NAME]

Per task (dataset, model, epsilon; delta 1e-5) 24 candidates are drawn at random, some of them bad, and go
through the stages:

*truth*: each is trained at full batch, B = 2048 for 200 steps: the private run's own law, with noise that can
be drawn again. The 8 best by test accuracy of seed 0 get two seeds more; the others are below them already.
Linear heads share each draw; the first one is trained by itself too, for the time that a run takes.

*search*: the worker's own search (Tune, ASHA over the planner's rungs, finals, promotion) one trial at a
time, over those very candidates in an order of the study's seed, and over candidates of Optuna's own choice.

*reached*: what is promoted is trained at full batch, with seeds that the search never saw.

*rank*: all 24 are simulated at every rung with one seed by the worker's own trial, and scored as it scores
them; nothing is cut.

*pairs*: the 8 best once more at the last rung and at a quarter of the batch, with two fresh seeds of each, by their scores and
by what they would release: how far off the law is, and how much of what released weights are ahead of a score should count.

*finals* (only when asked for, with a table of its own): the 8 best of each heat that was run so far at B/16, B/8 and B/4, with three fresh seeds,
and at full batch; over these, rules for who is confirmed are replayed.

*peer*: Optuna and Opacus at full batch, for as long as our search and private run took. Their clock counts
their own CPU seconds and ours all that passes, so a busy machine favours them; a trial that has begun is finished.

Predictions know, as those of a service do, how studies before them on the same dataset ended.

In the tables *cost* is examples and *time* seconds, over one private run's; *ceiling* is what validation and test
accuracy of the very same runs agree to; *full batch* is what our own engine would find at full batch in that time.

Every unit of work is kept in the state file when it is done, so a killed benchmark goes on where it was; two
processes may share the file if their tasks differ. What follows from the units, predictions too, is worked out
anew each time.
"""

import argparse
import json
import os
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _report import circumstances
from _search_finals import PLACES, Records, print_replays, replays
from _search_report import GUESSING, Findings, Pair, StudyResult, overall, print_pairs, print_tables
from _search_tasks import LARGE, QUICK, TASKS, Params, Task, candidates, trained, trained_together
from _units import Result, Units

from tan_core.engine.memory import keep_freed_memory
from tan_core.execution import PrivateRun
from tan_core.mechanism import Mechanism
from tan_core.planner import Evaluation, choose_winner
from tan_core.wire import TrialRecord

SEEDS = 3
"""Of the candidates that could be the best."""

REPEATED = 8
"""Candidates that are trained with all seeds."""

GIVEN, FREE = (0, 1), (2, 3)
"""Seeds of the studies over the 24 candidates, and of those that choose their own; quickly, one of each."""

PAIRED, FINAL = (1, 2), (1, 2, 3)
"""Seeds of the pairs, and of those that could be confirmed."""

_FULL_SEED, _RANK_SEED, _PEER_SEED, _PAIR_SEED, _FINAL_SEED = 1000, 2000, 3000, 4000, 7000
"""Apart from each other and from the studies'."""


@dataclass(frozen=True)
class Bench:
    """A task and what is known of it."""

    task: Task
    units: Units
    given: tuple[int, ...] = GIVEN
    free: tuple[int, ...] = FREE

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of all studies."""
        return self.given + self.free

    @property
    def reference(self) -> PrivateRun:
        """The private run with the planner's noise."""
        planned = self._once(
            "plan", lambda: {"noise_multiplier": self.task.plan().reference.noise_multiplier}
        )
        num_examples = self.task.ref.num_train
        return PrivateRun(
            mechanism=Mechanism(
                sampling_rate=self.task.batch_size / num_examples,
                noise_multiplier=planned["noise_multiplier"],
                clip_norm=1.0,
                steps=self.task.steps,
            ),
            num_examples=num_examples,
        )

    @property
    def cache_dir(self) -> Path:
        """Of features."""
        return Path(os.environ.get("TAN_CACHE_DIR", self.units.folder / "features"))

    def full(self, index: int, seed: int) -> Result:
        """A candidate at full batch."""
        return self._once(
            f"full/{index}/{seed}", lambda: self._trained(candidates()[index], _FULL_SEED + seed)
        )

    @property
    def seconds(self) -> float:
        """CPU seconds of one run at full batch by itself."""
        alone = self._once("alone", lambda: self._trained(candidates()[0], _FULL_SEED))
        return alone["cpu_seconds"]

    def truth(self) -> list[Result]:
        """All candidates with seed 0, by number."""
        everyone = range(len(candidates()))
        self._train_together(everyone, 0)
        return [self.full(index, 0) for index in everyone]

    def contenders(self) -> dict[int, list[float]]:
        """Test accuracies of those that could be the best, one for each seed."""
        first = self.truth()
        best = sorted(range(len(first)), key=lambda index: -first[index]["test"])[:REPEATED]
        for seed in range(1, SEEDS):
            self._train_together(best, seed)
        return {index: self.tests(index) for index in best}

    def tests(self, index: int) -> list[float]:
        """Test accuracies of a candidate, one for each seed."""
        return [self.full(index, seed)["test"] for seed in range(SEEDS)]

    def rung(self, batch_size: int) -> dict[str, list[float]]:
        """What trials of all candidates score at this batch, and after its heat; 0 for one that is given up."""
        scores = [
            self._once(f"rung/{batch_size}/{index}", lambda at=index: self._scored(at, batch_size))
            for index in range(len(candidates()))
        ]
        found = {str(batch_size): [score["score"] for score in scores]}
        plan = self.task.plan()
        if plan.heat is None or batch_size != plan.rungs[0]:
            return found
        heat = f"{batch_size}, first {plan.heat.steps}"
        return {heat: [score["first"] for score in scores], **found}

    def pairs(self) -> list[Pair]:
        """The contenders at the last rung and at the confirmation, each seed of one with each of the other."""
        plan = self.task.plan()
        small, large = plan.rungs[-1], plan.confirmation_batch
        if large is None:
            return []
        return [
            Pair(
                expected_batch_size=self.task.batch_size,
                batches=(small, large),
                scores=(low["score"], high["score"]),
                released=(low["released"], high["released"]),
                reached=float(
                    np.mean([self.full(index, seed)["validation"] for seed in range(SEEDS)])
                ),
            )
            for index in self.contenders()
            for low in self._fresh(index, small)
            for high in self._fresh(index, large)
            if low["score"] and high["score"]
        ]

    def _fresh(self, index: int, batch_size: int) -> list[Result]:
        return [
            self._once(
                f"pair/{index}/{batch_size}/{seed}",
                lambda seed=seed: self._scored(
                    index, batch_size, seed=seed, search_seed=_PAIR_SEED
                ),
            )
            for seed in PAIRED
        ]

    def finals(self) -> Records | None:
        """What rules for who is confirmed are replayed over; None where no search begins with a heat."""
        plan = self.task.plan()
        if plan.heat is None:
            return None
        (first, *_) = self.rung(plan.rungs[0]).values()
        heats = [dict(enumerate(first)), *(self._heats(seed) for seed in self.given)]
        best = {one for heat in heats for one in sorted(heat, key=lambda one: -heat[one])[:PLACES]}
        full = {one: [self.full(one, seed) for seed in range(SEEDS)] for one in sorted(best)}
        return Records(
            batch_size=self.task.batch_size,
            guessing=GUESSING,
            heats=heats,
            simulated={
                self.task.batch_size // factor: {one: self._final(one, factor) for one in full}
                for factor in (16, 8, 4)
            },
            tests={
                one: float(np.mean([run["test"] for run in runs])) for one, runs in full.items()
            },
            validated={
                one: float(np.mean([run["validation"] for run in runs]))
                for one, runs in full.items()
            },
        )

    def _heats(self, seed: int) -> dict[int, float]:
        """What each candidate has after its heat in a study; 0 for one that is given up."""
        order = _order(seed)
        trials = [TrialRecord.model_validate(trial) for trial in self.study(seed)["trials"]]
        curves = {order[trial.number]: trial.scores[0].curve for trial in trials}
        return {one: curve[0].accuracy if curve else 0.0 for one, curve in curves.items()}

    def _final(self, index: int, factor: int) -> list[tuple[float, float]]:
        """A candidate's scores at this part of the batch, and what it would release, by seed."""
        from _search_study import assignment, scored

        batch = self.task.batch_size // factor
        work = assignment(self.task, self.reference, seed=_FINAL_SEED, given=[]).model_copy(
            update={
                "rungs": [self.task.batch_size // each for each in (64, 32, 16, 8)],
                "confirmation": self.task.batch_size // 4,
            }
        )
        found = [
            self._once(
                f"finals/{index}/{batch}/{seed}",
                lambda seed=seed: scored(
                    self.task,
                    work,
                    candidates()[index],
                    work.levels.index(batch),
                    self.cache_dir,
                    seed=seed,
                ),
            )
            for seed in FINAL
        ]
        return [(each["score"], each["released"]) for each in found]

    def study(self, seed: int) -> Result:
        """The trials of one search over the planner's rungs."""
        rungs = "-".join(map(str, self.task.plan().rungs))
        # Files of before know given candidates in one order for all studies.
        order = "ordered/" if seed in self.given else ""
        return self._once(f"study/{rungs}/{order}{seed}", lambda: self._searched(seed))

    def result(self, seed: int, errors: Sequence[float] = ()) -> StudyResult:
        """What a study promoted, and what became of it; ``errors`` are those of studies before it on its dataset."""
        found = self.study(seed)
        trials = [TrialRecord.model_validate(trial) for trial in found["trials"]]
        ref = self.task.ref
        promotion = choose_winner(
            trials,
            expected_batch_size=self.task.batch_size,
            evaluation=Evaluation(
                num_validation=ref.num_validation,
                num_test=ref.num_test,
                num_classes=ref.num_classes,
                errors=errors,
            ),
        )
        assert promotion is not None
        winner = promotion.winner
        if seed in self.given:
            promoted = _order(seed)[winner.trial]
            reached = self.tests(promoted)
        else:
            promoted = winner.trial
            params = next(each.params for each in trials if each.number == winner.trial)
            run = self._once(
                f"reached/{seed}/{winner.trial}", lambda: self._trained(params, _FULL_SEED)
            )
            reached = [run["test"]]
        return StudyResult(
            name=f"{self.task.name}, {'given' if seed in self.given else 'free'} {seed}",
            is_given=seed in self.given,
            promoted=promoted,
            prediction=winner.prediction,
            reached=reached,
            examples=sum(trial.examples for trial in trials),
            seconds=found["seconds"],
            private_run_examples=self.task.batch_size * self.task.steps,
        )

    def peer(self) -> Result:
        """Optuna and Opacus in the time of the first study and its private run."""
        from _search_peer import tuned

        first = self.result(self.given[0])
        seconds = first.seconds + self.seconds
        return self._once(
            "peer",
            lambda: tuned(
                self.task,
                self.reference,
                seconds=seconds,
                seed=_PEER_SEED,
                cache_dir=self.cache_dir,
            ),
        )

    def findings(self, errors: list[float]) -> Findings:
        """All stages, in figures; ``errors`` are those on the dataset so far, and get the new ones."""
        truth = self.truth()
        rungs = self.task.plan().rungs
        return Findings(
            task=self.task.name,
            truth=[each["test"] for each in truth],
            validated=[each["validation"] for each in truth],
            seconds=self.seconds,
            contenders=self.contenders(),
            studies=[self._learning(seed, errors) for seed in self.seeds],
            simulated={name: scores for rung in rungs for name, scores in self.rung(rung).items()},
            peer=self.peer(),
        )

    def _learning(self, seed: int, errors: list[float]) -> StudyResult:
        """A study that knows of those before it, and is known to those after it."""
        found = self.result(seed, tuple(errors))
        plain = self.result(seed)
        errors.append(plain.reached[0] - plain.prediction.accuracy)
        return found

    def _once(self, name: str, work: Callable[[], Result]) -> Result:
        return self.units.once(f"{self.task.name}/{name}", work)

    def _trained(self, params: Params, seed: int) -> Result:
        return trained(
            self.task,
            self.reference,
            params,
            batch_size=self.task.batch_size,
            seed=seed,
            cache_dir=self.cache_dir,
        )

    def _train_together(self, indices: Sequence[int], seed: int) -> None:
        """Those at full batch that are not done, where they can share their draws."""
        names = {index: f"full/{index}/{seed}" for index in indices}
        missing = [at for at in indices if not self.units.get(f"{self.task.name}/{names[at]}")]
        if not missing or not self.task.is_linear:
            return
        made = trained_together(
            self.task,
            self.reference,
            [candidates()[index] for index in missing],
            batch_size=self.task.batch_size,
            seed=_FULL_SEED + seed,
            cache_dir=self.cache_dir,
        )
        for index, result in zip(missing, made, strict=True):
            self._once(names[index], lambda result=result: result)

    def _scored(
        self, index: int, batch_size: int, *, seed: int = 0, search_seed: int = _RANK_SEED
    ) -> Result:
        from _search_study import assignment, scored

        work = assignment(self.task, self.reference, seed=search_seed, given=[])
        rung = work.levels.index(batch_size)
        return scored(self.task, work, candidates()[index], rung, self.cache_dir, seed=seed)

    def _searched(self, seed: int) -> Result:
        from _search_study import assignment, searched

        given = [candidates()[index] for index in _order(seed)] if seed in self.given else []
        work = assignment(self.task, self.reference, seed=seed, given=given)
        return searched(work, self.cache_dir)


def _order(seed: int) -> list[int]:
    """Of the candidates of a study: the first trial always climbs, and must not be the same one every time."""
    return np.random.default_rng(seed).permutation(len(candidates())).tolist()


STAGES: dict[str, Callable[[Bench], object]] = {
    "truth": Bench.contenders,
    "search": lambda bench: [bench.study(seed) for seed in bench.seeds],
    "reached": lambda bench: [bench.result(seed) for seed in bench.seeds],
    "rank": lambda bench: [bench.rung(rung) for rung in bench.task.plan().rungs],
    "pairs": Bench.pairs,
    "peer": Bench.peer,
}
ASKED = "finals"
"""A stage that is run when it is asked for."""


def chosen_tasks(options: argparse.Namespace) -> Iterator[Task]:
    """Those that were asked for and have their data."""
    for task in QUICK if options.quick else LARGE if options.large else TASKS:
        if options.task and task.name not in options.task:
            continue
        if task.is_there():
            yield task
        else:
            print(f"{task.name}: skipped, {task.dataset} is not in TAN_DATA_DIR")


def main() -> None:
    """Run, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="digits alone, within a minute")
    size.add_argument(
        "--large", action="store_true", help="batches of 8,192; about two hours a task"
    )
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    parser.add_argument("--state", type=Path, help="what was done so far; not kept with --quick")
    parser.add_argument("--task", action="append", help="only this one; may be repeated")
    parser.add_argument(
        "--stage", action="append", choices=[*STAGES, ASKED], help="only this one, no table"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    warnings.simplefilter("ignore")
    print(f"torch {torch.__version__}, 1 thread; {circumstances()}\n", flush=True)
    with ExitStack() as stack:
        if options.quick and not options.state:
            options.state = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "units.jsonl"
        state = options.state or Path(tempfile.gettempdir()) / "tan-search" / "state.jsonl"
        units = Units(state)
        stages = options.stage or list(STAGES)
        seeds = (GIVEN[:1], FREE[:1]) if options.quick else (GIVEN, FREE)
        benches = [Bench(task, units, *seeds) for task in chosen_tasks(options)]
        for bench in benches:
            for stage in stages:
                if stage != ASKED:
                    STAGES[stage](bench)
        if ASKED in stages:
            found = {bench.task.name: bench.finals() for bench in benches}
            print_replays({name: replays(each) for name, each in found.items() if each})
        rows: list[dict[str, Any]] = []
        if not options.stage:
            errors: dict[str, list[float]] = defaultdict(list)
            findings = [bench.findings(errors[bench.task.dataset]) for bench in benches]
            print_tables(findings)
            print_pairs({bench.task.name: bench.pairs() for bench in benches})
            rows = overall(findings)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
