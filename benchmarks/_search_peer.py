"""What a user would do otherwise: Optuna over private runs at full batch, made by Opacus."""

import time
from pathlib import Path
from typing import Any

import optuna
import torch
from _search_tasks import CHOICES, RANGES, Params, Task, complete, splits
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from torch import Tensor, nn

from tan_core.data import Split
from tan_core.engine.inputs import as_floats, as_tensor
from tan_core.execution import PrivateRun
from tan_core.models import build_head

PHYSICAL_BATCH = 256


def tuned(
    task: Task, reference: PrivateRun, *, seconds: float, seed: int, cache_dir: Path
) -> dict[str, Any]:
    """Trials for so many CPU seconds; one that has begun is finished. The best one by validation."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True)
    )
    space: dict[str, BaseDistribution] = {
        **{key: FloatDistribution(*ends, log=True) for key, ends in RANGES.items()},
        **{key: CategoricalDistribution(values) for key, values in CHOICES.items()},
    }
    splits(task, cache_dir)
    started, tests = time.process_time(), list[float]()
    while not tests or time.process_time() - started < seconds:
        trial = study.ask(space)
        validation, test = _run(task, reference, trial.params, seed + len(tests), cache_dir)
        study.tell(trial, validation)
        tests.append(test)
    return {
        "test": tests[study.best_trial.number],
        "trials": len(tests),
        "cpu_seconds": time.process_time() - started,
    }


def _run(
    task: Task, reference: PrivateRun, params: Params, seed: int, cache_dir: Path
) -> tuple[float, float]:
    """Accuracy on validation and test of one run, with the averaged weights where they are asked for."""
    train, *held_out = splits(task, cache_dir)
    chosen = complete(task, reference, params)
    config, mechanism = chosen.trainer, chosen.private_run.mechanism
    generator = torch.Generator().manual_seed(seed)
    model = GradSampleModule(
        build_head(
            chosen.model,
            shape=task.ref.shape,
            num_classes=task.ref.num_classes,
            generator=generator,
        )
    )
    optimizer = DPOptimizer(
        # Ours divides by the clipping norm, Opacus does not.
        torch.optim.SGD(
            model.parameters(),
            lr=config.learning_rate / mechanism.clip_norm,
            momentum=config.momentum,
        ),
        noise_multiplier=mechanism.noise_multiplier,
        max_grad_norm=mechanism.clip_norm,
        expected_batch_size=task.batch_size,
        generator=generator,
    )
    inputs, labels = as_tensor(train.inputs), as_tensor(train.labels).long()
    parameters = list(model.parameters())
    average = [p.detach().clone() for p in parameters]
    for _ in range(mechanism.steps):
        drawn = torch.rand(len(labels), generator=generator) < mechanism.sampling_rate
        parts = drawn.nonzero()[:, 0].split(PHYSICAL_BATCH)
        for number, part in enumerate(parts, 1):
            optimizer.signal_skip_step(do_skip=number < len(parts))
            logits = model(as_floats(inputs[part], torch.float32))
            nn.functional.cross_entropy(logits, labels[part]).backward()
            optimizer.step()
            optimizer.zero_grad()
        for mean, p in zip(average, parameters, strict=True):
            mean.lerp_(p.detach(), 1 - config.ema_decay)
    for mean, p in zip(average, parameters, strict=True):
        p.data = mean
    model.disable_hooks()
    validation, test = (_accuracy(model, split) for split in held_out)
    return validation, test


@torch.inference_mode()
def _accuracy(model: nn.Module, split: Split) -> float:
    inputs, labels = as_tensor(split.inputs), as_tensor(split.labels)
    right: list[Tensor] = [
        (model(as_floats(x, torch.float32)).argmax(1) == y).sum()
        for x, y in zip(inputs.split(PHYSICAL_BATCH), labels.split(PHYSICAL_BATCH), strict=True)
    ]
    return int(sum(right)) / len(labels)
