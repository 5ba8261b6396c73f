"""What ``search.py`` searches: tasks, their 24 candidates, and one run of a candidate at any batch."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tan_core import data
from tan_core.data import Split
from tan_core.engine import SeededRandomness, Trainer
from tan_core.engine.features import load_inputs
from tan_core.execution import PrivateRun
from tan_core.models import build_head, extractor_of
from tan_core.planner import Candidate, Plan, candidate, plan_study, simulation
from tan_core.spec import ModelSpec, Scalar, StudySpec
from tan_core.wire import DatasetRef

DATA = Path(os.environ.get("TAN_DATA_DIR", Path(__file__).parents[2] / "shared" / "data"))
DELTA = 1e-5
NUM_CANDIDATES = 24
RANGES = {"learning_rate": (0.25, 16.0), "clip_norm": (0.05, 1.0)}
CHOICES = {"momentum": [0.0, 0.5, 0.9], "ema_decay": [0.0, 0.9]}
SPACE: dict[str, Any] = {
    **{key: {"low": low, "high": high, "log": True} for key, (low, high) in RANGES.items()},
    **{key: {"choices": values} for key, values in CHOICES.items()},
}
"""Wide enough that some of it is bad: at the largest rates with momentum nothing is learnt."""

_FINITE_CHECKED_EVERY = 16

Params = dict[str, Scalar]


@dataclass(frozen=True)
class Task:
    """A model on a dataset, to be trained privately with batch B and S steps."""

    dataset: str
    model: str
    epsilon: float
    batch_size: int = 2048
    steps: int = 200

    @property
    def name(self) -> str:
        """As in the table and before each unit."""
        return f"{self.dataset}/{self.model}/eps{self.epsilon:g}"

    @property
    def spec(self) -> ModelSpec:
        """The model without options."""
        return self.study().model

    @property
    def ref(self) -> DatasetRef:
        """The dataset as it would be registered."""
        return _reference(self.dataset)

    def study(self, seed: int = 0) -> StudySpec:
        """As a user would submit it."""
        return StudySpec.model_validate(
            {
                "name": self.name.replace("/", "-"),
                "privacy": {"epsilon": self.epsilon, "delta": DELTA},
                "dataset": self.dataset,
                "model": {"name": self.model},
                "search": {
                    "accounting": "declared_unaccounted",
                    "trials": NUM_CANDIDATES,
                    "seed": seed,
                    "space": SPACE,
                },
                "train": {"batch_size": self.batch_size, "steps": self.steps, "workers": 1},
            }
        )

    def plan(self) -> Plan:
        """What the planner makes of it: noise, rungs, cost."""
        return plan_study(self.study(), num_examples=self.ref.num_train)

    def is_there(self) -> bool:
        """Whether its data are on this machine."""
        return self.dataset == "digits" or (DATA / self.dataset).is_dir()


TASKS = [
    Task("mnist", "tanh-cnn", 3.0),
    Task("mnist", "scatter-linear", 3.0),
    Task("cifar10-jpeg", "scatter-linear", 3.0),
    Task("mnist", "tanh-cnn", 1.0),
    Task("mnist", "scatter-linear", 1.0),
    Task("cifar10-jpeg", "scatter-linear", 1.0),
    Task("cifar10-jpeg", "tanh-cnn", 3.0),
    Task("cifar10-jpeg", "tanh-cnn", 1.0),
]
QUICK = [Task("digits", "linear", 3.0, batch_size=512, steps=40)]


@cache
def _reference(dataset: str) -> DatasetRef:
    path = None if dataset == "digits" else str(DATA / dataset)
    facts = data.inspect(path, source="digits" if path is None else None)
    known = {name: getattr(facts, name) for name in DatasetRef.model_fields if hasattr(facts, name)}
    return DatasetRef.model_validate({"name": dataset, "path": path, **known})


@lru_cache(maxsize=1)
def splits(task: Task, cache_dir: Path) -> tuple[Split, Split, Split]:
    """Train, validation and test, as the head of the model reads them."""
    train, validation, test = (
        load_inputs(task.ref, role, extractor_of(task.spec), cache_dir=cache_dir)
        for role in ("train", "validation", "test")
    )
    return train, validation, test


def candidates() -> list[Params]:
    """24 points of the space at random, the same for every task."""
    rng = np.random.default_rng(24)
    drawn: list[Params] = []
    for _ in range(NUM_CANDIDATES):
        point: Params = {
            key: float(np.exp(rng.uniform(*np.log(ends)))) for key, ends in RANGES.items()
        }
        drawn.append(point | {key: float(rng.choice(each)) for key, each in CHOICES.items()})
    return drawn


def complete(task: Task, reference: PrivateRun, params: Mapping[str, Scalar]) -> Candidate:
    """The candidate exactly as a worker would run it."""
    return candidate(
        trainer=task.study().train.trainer(),
        model=task.spec,
        reference=reference,
        params=params,
        target=None,
    )


def trained(
    task: Task,
    reference: PrivateRun,
    params: Mapping[str, Scalar],
    *,
    batch_size: float,
    seed: int,
    cache_dir: Path,
) -> dict[str, Any]:
    """One run at this batch and constant TAN, its accuracies and its CPU seconds.

    At ``batch_size`` = B it is the private run's own law, with noise that can be drawn again. All
    candidates of a seed share initial weights, draws and noise.
    """
    train, validation, test = splits(task, cache_dir)
    chosen = complete(task, reference, params)
    started = time.process_time()
    trainer = Trainer(
        model=build_head(
            chosen.model,
            shape=task.ref.shape,
            num_classes=task.ref.num_classes,
            generator=torch.Generator().manual_seed(seed),
        ),
        execution=simulation(chosen, expected_batch_size=batch_size, num_examples=len(train)),
        config=chosen.trainer,
        inputs=train.inputs,
        labels=train.labels,
        randomness=SeededRandomness(seed),
    )
    while trainer.steps_done < trainer.mechanism.steps:
        trainer.step()
        if trainer.steps_done % _FINITE_CHECKED_EVERY == 0 and trainer.is_diverged:
            break
    seconds = time.process_time() - started
    return {
        "validation": trainer.evaluate(validation.inputs, validation.labels),
        "test": trainer.evaluate(test.inputs, test.labels),
        "is_diverged": trainer.is_diverged,
        "cpu_seconds": seconds,
        "examples": round(batch_size * trainer.steps_done),
    }
