"""Classes of unlike size: what a weight of the loss does to balanced accuracy, and what one after the clip does.

    python benchmarks/imbalance.py [--quick] [--json FILE]

MNIST as a task of two classes, the nines and the rest, of which so many nines are left out that they are 2 % of the training
records; epsilon 2 at delta 1e-5, B = 1,024, S = 300, an MLP of 64 units. Without MNIST (``TAN_DATA_DIR``): the nines of digits.

Ways: *alike*, all records count alike; *loss*, each loss is multiplied by 1 / (2 share of its class), as it is without privacy,
and the gradient clipped then; *after the clip*, ``train.class_shares`` with a ``class_balance`` of .25 to 1. Balanced accuracy is
of the test split, whose classes count alike whatever their shares; the rate is the best of seven by a tenth of the training
records that no run sees. Runs of one seed share initial weights, draws and noise.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from _report import circumstances, row
from _search_tasks import Task, splits
from torch import Tensor

from tan_core.accounting import calibrate_noise_multiplier
from tan_core.engine import SeededRandomness, clipped_sum
from tan_core.engine.bookkeeping import Books
from tan_core.engine.clipping import class_weights, per_example_clipping
from tan_core.engine.flat import FlatParameters
from tan_core.engine.memory import keep_freed_memory
from tan_core.models import build
from tan_core.spec.models import MlpModel
from tan_core.spec.study import Metric
from tan_core.spec.train import TrainerConfig
from worker.metric import score_of

RARE = 9
RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
BALANCES = (0.25, 0.5, 0.75, 1.0)
VALIDATION = 10
"""One of so many training records is left out of it."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is trained at what privacy."""

    dataset: str
    share: float
    epsilon: float
    batch_size: int
    steps: int
    seeds: int
    rates: tuple[float, ...] = RATES


FULL = Setting(dataset="mnist", share=0.02, epsilon=2.0, batch_size=1024, steps=300, seeds=3)
QUICK = Setting(
    dataset="digits", share=0.04, epsilon=8.0, batch_size=256, steps=60, seeds=1, rates=(1.0, 4.0)
)


@dataclass(frozen=True)
class Data:
    """Records and labels, 1 of the rare class."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def data_of(setting: Setting) -> Data:
    """The rare class thinned out in the training records."""
    task = Task(setting.dataset, "linear", setting.epsilon, setting.batch_size, setting.steps)
    with tempfile.TemporaryDirectory() as cache_dir:
        of_all, _, of_test = splits(task, Path(cache_dir))

    def binary(split: Any) -> tuple[Tensor, Tensor]:
        inputs = torch.from_numpy(np.array(split.inputs)).flatten(1).float()
        scale = 255.0 if inputs.max() > 16 else 16.0
        labels = torch.from_numpy(np.array(split.labels) == RARE).long()
        return inputs / scale * 2 - 1, labels

    inputs, labels = binary(of_all)
    rare, others = (torch.nonzero(labels == each)[:, 0] for each in (1, 0))
    kept = rare[: round(setting.share / (1 - setting.share) * len(others))]
    at = torch.cat([others, kept])
    at = at[torch.randperm(len(at), generator=torch.Generator().manual_seed(0))]
    is_left_out = torch.arange(len(at)) % VALIDATION == 0
    train, validation = at[~is_left_out], at[is_left_out]
    return Data(
        train=(inputs[train], labels[train]),
        validation=(inputs[validation], labels[validation]),
        test=binary(of_test),
    )


def weights_of(way: str, setting: Setting) -> tuple[Tensor | None, Tensor | None]:
    """Of the losses and of the clipped gradients, by class."""
    shares = [1 - setting.share, setting.share]
    if way == "alike":
        return None, None
    if way == "loss":
        return 0.5 / torch.tensor(shares), None
    config = TrainerConfig(class_shares=shares, class_balance=float(way.rpartition(" ")[2]))
    return None, class_weights(config)


def _of_losses(weights_B: Tensor, norms_B: Tensor, clip_norm: float | Tensor) -> Tensor:
    """What clips the gradients of losses that are multiplied: w min(1, C / (w n)), of all the batch at once."""
    return torch.minimum(weights_B.to(norms_B), clip_norm / norms_B)


def trained(data: Data, setting: Setting, way: str, rate: float, seed: int, noise: float) -> Any:
    """Balanced accuracies on the validation and the test records."""
    inputs, labels = data.train
    model = build(
        MlpModel(),
        shape=tuple(inputs.shape[1:]),
        num_classes=2,
        generator=torch.Generator().manual_seed(seed),
    )
    flat, books, randomness = FlatParameters(model), Books(model), SeededRandomness(seed)
    of_loss, of_gradient = weights_of(way, setting)
    for step in range(setting.steps):
        drawn = torch.from_numpy(
            randomness.mask(
                step, num_examples=len(labels), sampling_rate=setting.batch_size / len(labels)
            )
        )
        own = labels[drawn]
        found = clipped_sum(
            books,
            inputs[drawn],
            own,
            clip_norm=1.0,
            rule=per_example_clipping if of_loss is None else partial(_of_losses, of_loss[own]),
            weights=None if of_gradient is None else of_gradient[own],
            microbatch_size=2 * setting.batch_size,
        )
        noisy = found.sum + noise * randomness.noise(step, len(found.sum))
        flat.vector.sub_(noisy, alpha=rate / setting.batch_size)
    with torch.no_grad():
        return [
            score_of(model(x).argmax(1) == y, y, Metric.BALANCED_ACCURACY)
            for x, y in (data.validation, data.test)
        ]


def rows(setting: Setting) -> Iterator[dict[str, Any]]:
    """A row a way, printed as soon as it is known."""
    data = data_of(setting)
    num, num_rare = len(data.train[1]), int(data.train[1].sum())
    noise = calibrate_noise_multiplier(
        epsilon=setting.epsilon,
        delta=1e-5,
        sampling_rate=setting.batch_size / num,
        steps=setting.steps,
    )
    print(f"{setting.dataset}: {num:,} records, {num_rare:,} of them rare; σ = {noise:.3f}\n")
    print("| way | rate | balanced test accuracy, % |\n| --- | --- | --- |")
    alike = 0.0
    for way in ("alike", "loss", *(f"after the clip, balance {each}" for each in BALANCES)):
        of_rates = {
            rate: np.array(
                [trained(data, setting, way, rate, seed, noise) for seed in range(setting.seeds)]
            )
            for rate in setting.rates
        }
        rate, found = max(of_rates.items(), key=lambda item: item[1][:, 0].mean())
        reached = [100 * each for each in found[:, 1].tolist()]
        alike = alike or fmean(reached)
        spread = f" ± {stdev(reached):.1f}" if len(reached) > 1 else ""
        print(f"| {way} | {rate:g} | {fmean(reached):.1f}{spread} |", flush=True)
        yield row(f"{setting.dataset}: {way}", fmean(reached), "%", "alike", fmean(reached) / alike)


def main() -> None:
    """Run, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="digits, one seed, within a minute")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    print(f"torch {torch.__version__}; {circumstances()}\n")
    found = list(rows(QUICK if options.quick else FULL))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
