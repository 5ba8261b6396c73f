"""Single runs of the engine for figures: a model, a batch, its noise per example, and an accuracy."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _report import origin
from _search_tasks import Task, splits
from torch import nn

from tan_core.accounting import calibrate_noise_multiplier
from tan_core.data import Split
from tan_core.engine import SeededRandomness, Trainer
from tan_core.execution import Simulation
from tan_core.mechanism import Mechanism
from tan_core.models import build
from tan_core.spec.models import Model
from tan_core.spec.train import TrainerConfig

_FINITE_CHECKED_EVERY = 16


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A private run's law: what its simulations keep."""

    dataset: str
    epsilon: float
    batch_size: int
    steps: int
    delta: float = 1e-5

    @property
    def task(self) -> Task:
        """The data; the model of the task is not used."""
        return Task(self.dataset, "linear", self.epsilon, self.batch_size, self.steps)

    def noise_multiplier(self) -> float:
        """Calibrated to epsilon by PLD, without slack."""
        return calibrate_noise_multiplier(
            epsilon=self.epsilon,
            delta=self.delta,
            sampling_rate=self.batch_size / self.task.ref.num_train,
            steps=self.steps,
        )


def trained(
    task: Task,
    model: Model,
    config: TrainerConfig,
    *,
    expected_batch_size: float,
    noise_per_example: float,
    steps: int,
    seed: int,
    cache_dir: Path,
    records: int | None = None,
    shrink: int = 1,
    change: Callable[[nn.Module], None] = lambda _: None,
) -> dict[str, Any]:
    """One run; runs of one seed share initial weights, and draws where their batches are alike.

    Args:
        task: names the data.
        model: what is built.
        config: of the trainer; its clipping may be none.
        expected_batch_size: B.
        noise_per_example: sigma / B, in clipping norms: what is kept at constant TAN.
        steps: S.
        seed: of weights, draws and noise.
        cache_dir: of features.
        records: of the training split, the first so many; None: all.
        shrink: squares of so many pixels a side are averaged.
        change: is made to the model once it is built.
    """
    train, validation, test = _inputs(task, shrink, cache_dir)
    train = Split(inputs=train.inputs[:records], labels=train.labels[:records])
    module = build(
        model,
        shape=train.inputs.shape[1:],
        num_classes=task.ref.num_classes,
        generator=torch.Generator().manual_seed(seed),
    )
    change(module)
    dynamics = Mechanism(
        sampling_rate=expected_batch_size / len(train),
        noise_multiplier=noise_per_example * expected_batch_size,
        clip_norm=config.clip_norm,
        steps=steps,
    )
    trainer = Trainer(
        model=module,
        execution=Simulation(dynamics=dynamics, num_examples=len(train), scale_factor=1.0),
        config=config,
        inputs=train.inputs,
        labels=train.labels,
        randomness=SeededRandomness(seed),
    )
    started = time.process_time()
    while trainer.steps_done < steps:
        trainer.step()
        if trainer.steps_done % _FINITE_CHECKED_EVERY == 0 and trainer.is_diverged:
            break
    seconds = time.process_time() - started
    return {
        "validation": trainer.evaluate(validation.inputs, validation.labels),
        "test": trainer.evaluate(test.inputs, test.labels),
        "is_diverged": trainer.is_diverged,
        "cpu_seconds": round(seconds, 1),
        **origin(),
    }


@lru_cache(maxsize=1)
def _inputs(task: Task, shrink: int, cache_dir: Path) -> tuple[Split, Split, Split]:
    train, validation, test = (_shrunk(each, shrink) for each in splits(task, cache_dir))
    return train, validation, test


def _shrunk(split: Split, factor: int) -> Split:
    """Images of fewer pixels, rounded to bytes again."""
    if factor == 1:
        return split
    count, channels, height, width = split.inputs.shape
    squares = split.inputs.reshape(
        count, channels, height // factor, factor, width // factor, factor
    )
    return Split(inputs=squares.mean((3, 5)).round().astype(np.uint8), labels=split.labels)
