"""What ``search.py`` searches: tasks, their 24 candidates, and one run of a candidate at any batch."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tan_core import data
from tan_core.data import Split
from tan_core.engine import LinearEnsemble, SeededRandomness, Trainer
from tan_core.engine.features import load_inputs
from tan_core.engine.inputs import as_floats, as_tensor
from tan_core.execution import PrivateRun
from tan_core.models import build_head, extractor_of
from tan_core.planner import Candidate, Plan, candidate, plan_study, simulation
from tan_core.spec import ModelSpec, Scalar, StudySpec
from tan_core.wire import DatasetRef

DATA = Path(os.environ.get("TAN_DATA_DIR", Path(__file__).parents[2] / "shared" / "data"))
DELTA = 1e-5
NUM_CANDIDATES = 24
BATCH_SIZE = 2048
"""Small, so that all 24 can be trained at it; who searches for a cluster has one of 8,192 and more."""
RANGES = {"learning_rate": (0.25, 16.0), "clip_norm": (0.05, 1.0)}
CHOICES = {"momentum": [0.0, 0.5, 0.9], "ema_decay": [0.0, 0.9]}
SPACE: dict[str, Any] = {
    **{key: {"low": low, "high": high, "log": True} for key, (low, high) in RANGES.items()},
    **{key: {"choices": values} for key, values in CHOICES.items()},
}
"""Wide enough that some of it is bad: at the largest rates with momentum nothing is learnt."""

_FINITE_CHECKED_EVERY = 16
_CHUNK = 1024
_LINEAR = ("linear", "scatter-linear")

Params = dict[str, Scalar]


@dataclass(frozen=True)
class Task:
    """A model on a dataset, to be trained privately with batch B and S steps."""

    dataset: str
    model: str
    epsilon: float
    batch_size: int = BATCH_SIZE
    steps: int = 200

    @property
    def name(self) -> str:
        """As in the table and before each unit."""
        batch = "" if self.batch_size == BATCH_SIZE else f"/b{self.batch_size}"
        return f"{self.dataset}/{self.model}/eps{self.epsilon:g}{batch}"

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
        return _plan(self)

    @property
    def is_linear(self) -> bool:
        """Whether one linear layer is all that is trained, so that many candidates share each draw."""
        return self.model in _LINEAR

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
LARGE = [
    Task("cifar10-jpeg", "tanh-cnn", 3.0, batch_size=8192),
    Task("cifar10-jpeg", "tanh-cnn", 1.0, batch_size=8192),
]
"""The hardest tasks with the batch of a cluster, whose first rung is 128."""
QUICK = [Task("digits", "linear", 3.0, batch_size=512, steps=24)]


@cache
def _plan(task: Task) -> Plan:
    return plan_study(task.study(), num_examples=task.ref.num_train)


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


@lru_cache(maxsize=1)
def _normed(task: Task, cache_dir: Path) -> tuple[Split, Split, Split]:
    """What the linear layer reads: the same splits behind all that is not trained."""
    fixed = _parts(_head(task, task.spec, seed=0))[0]
    train, validation, test = (_through(fixed, split) for split in splits(task, cache_dir))
    return train, validation, test


def _through(fixed: nn.Module, split: Split) -> Split:
    chunks = as_tensor(split.inputs).split(_CHUNK)
    with torch.inference_mode():
        passed = [fixed(as_floats(chunk, torch.float32)) for chunk in chunks]
    return Split(inputs=torch.cat(passed).numpy(), labels=split.labels)


def _head(task: Task, spec: ModelSpec, *, seed: int) -> nn.Module:
    return build_head(
        spec,
        shape=task.ref.shape,
        num_classes=task.ref.num_classes,
        generator=torch.Generator().manual_seed(seed),
    )


def _parts(head: nn.Module) -> tuple[nn.Sequential, nn.Sequential]:
    """What is not trained, and the flattening and linear layer behind it."""
    layers = list(head.children())
    return nn.Sequential(*layers[:-2]), nn.Sequential(*layers[-2:])


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
    begin_from: Mapping[str, torch.Tensor] | None = None,
) -> dict[str, Any]:
    """One run at this batch and constant TAN, its accuracies and its CPU seconds.

    At ``batch_size`` = B it is the private run's own law, with noise that can be drawn again. All
    candidates of a seed share initial weights, draws and noise; ``begin_from`` takes the place of the first.
    """
    train, validation, test = splits(task, cache_dir)
    chosen = complete(task, reference, params)
    model = _head(task, chosen.model, seed=seed)
    if begin_from is not None:
        model.load_state_dict(begin_from)
    started = time.process_time()
    trainer = Trainer(
        model=model,
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


def trained_together(
    task: Task,
    reference: PrivateRun,
    many: Sequence[Mapping[str, Scalar]],
    *,
    batch_size: float,
    seed: int,
    cache_dir: Path,
) -> list[dict[str, Any]]:
    """:func:`trained` of many candidates of a linear head: the same up to rounding, in a part of the time.

    What each would have taken by itself is not known; one that diverged has the accuracy of guessing.
    """
    train, validation, test = _normed(task, cache_dir)
    chosen = [complete(task, reference, params) for params in many]
    ensemble = LinearEnsemble(
        models=[_parts(_head(task, each.model, seed=seed))[1] for each in chosen],
        simulations=[
            simulation(each, expected_batch_size=batch_size, num_examples=len(train))
            for each in chosen
        ],
        configs=[each.trainer for each in chosen],
        inputs=train.inputs,
        labels=train.labels,
        randomness=SeededRandomness(seed),
    )
    for _ in range(task.steps):
        ensemble.step()
    chance = 1 / task.ref.num_classes
    validated, tested = (
        [chance if each is None else each for each in ensemble.evaluate(split.inputs, split.labels)]
        for split in (validation, test)
    )
    return [
        {"validation": own, "test": other, "is_diverged": at in ensemble.diverged}
        for at, (own, other) in enumerate(zip(validated, tested, strict=True))
    ]
