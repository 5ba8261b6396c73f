"""The figures of TAN and of De et al. in small, by the product's own engine and accountants.

    python benchmarks/figures.py [--only FIGURE] [--quick] [--json FILE]

*wall* (Sander et al. 2023, Figure 2): epsilon over the noise multiplier at constant TAN, exact, by PLD.

*ladder* (their Figure 4): the accuracy of tanh-cnn over the batch at constant TAN, from B/128 to the private batch
itself; MNIST at two learning rates and CIFAR-10 (JPEG). ``results.py`` fits the product's law to the small batches.

*order* (their Figure 5): ReLU before GroupNorm or after it, and K = 1, 2, 4 views of each example, on CIFAR-10 (JPEG);
simulated at batch 64.

*ablation* (De et al. 2022): GroupNorm, a larger batch, standardised weights, 4 views and averaged weights, added one after
the other; simulated at batch 64. Of each stage's learning rates the one that is best by the validation split of seed
0 is kept, and repeated with more seeds.

The last two train a wide ResNet of depth 10 and width 1, the registered network's own code, on images of 16 pixels a
side (means of 2 x 2): small enough for a CPU. What views are worth depends on how often each record is met: *order* reads
the first 2,500 records, each 26 times on average, as often as the simulations of Figure 5 (B = 512, 2,500 steps, 50,000
records), 10,000 of them, and all, 1.4 times; *ablation* reads 10,000.
One thread. Every run is kept in ``benchmarks/results/FIGURE.jsonl`` when it is done, and not run again.
"""

import argparse
import itertools
import json
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from _report import circumstances, origin, row
from _small_runs import Reference, trained
from _stored import FOLDER, Units, runs
from torch import nn

from tan_core.engine.memory import keep_freed_memory
from tan_core.mechanism import Mechanism
from tan_core.spec.models import LinearModel, Model, TanhCnnModel, WideResNetModel
from tan_core.spec.train import TrainerConfig
from tan_core.tan import constant_tan_curve, signal_to_noise

Json = dict[str, Any]
Runs = Iterator[tuple[str, Callable[[], Json]]]

# wall
SIGMAS = (0.5, 0.6, 0.7, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
ETAS, WALL_STEPS, DELTA = (0.13, 0.95), (100, 2500), 1e-5

# ladder
SMALLEST_FACTOR = 128
LADDER_SEEDS = 2

# order and ablation
SIMULATED, SHRINK, STEPS = 64, 2, 1000
ALL_RECORDS, RECORDS = (2_500, 10_000, None), 10_000
"""Of *order*, and of *ablation*: what views are worth depends on how often each record is met."""
SEEDS = 2
ABLATION_RATES = (1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Ladder:
    """One curve of the ladder."""

    name: str
    reference: Reference
    model: Model
    config: TrainerConfig


def _mnist(learning_rate: float) -> Ladder:
    return Ladder(
        f"MNIST, tanh-cnn, learning rate {learning_rate:g}",
        Reference(dataset="mnist", epsilon=3.0, batch_size=2048, steps=300),
        TanhCnnModel(),
        TrainerConfig(learning_rate=learning_rate, clip_norm=0.1, ema_decay=0.9),
    )


LADDERS = [
    _mnist(4.0),
    _mnist(1.0),
    Ladder(
        "CIFAR-10 (JPEG), tanh-cnn, learning rate 2",
        Reference(dataset="cifar10-jpeg", epsilon=3.0, batch_size=2048, steps=300),
        TanhCnnModel(),
        TrainerConfig(learning_rate=2.0, clip_norm=0.1, ema_decay=0.9),
    ),
]
QUICK_LADDER = Ladder(
    "digits, linear",
    Reference(dataset="digits", epsilon=3.0, batch_size=256, steps=50),
    LinearModel(),
    TrainerConfig(learning_rate=2.0),
)


def small_wide_resnet(*, order: str = "relu_norm", weight_standardization: bool = False) -> Model:
    """WRN-10-1 with 4 groups; no study can name it, its depth and width are not those of a paper."""
    return WideResNetModel.model_construct(
        name="wrn-10-1",
        groups=4,
        order=order,
        weight_standardization=weight_standardization,
        pretrained=None,
    )


def without_norms(module: nn.Module) -> None:
    """Let every GroupNorm be nothing."""
    for parent in module.modules():
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.GroupNorm):
                setattr(parent, name, nn.Identity())


@dataclass(frozen=True)
class Stage:
    """What De et al. added, on top of all before it."""

    name: str
    batch_size: int = 4096
    is_normed: bool = True
    is_standardised: bool = False
    trainer: Json = field(default_factory=dict[str, Any])

    @property
    def reference(self) -> Reference:
        """Of epsilon 8 whatever the batch."""
        return Reference(
            dataset="cifar10-jpeg", epsilon=8.0, batch_size=self.batch_size, steps=STEPS
        )


_VIEWS: Json = {"augmentation_multiplicity": 4, "crop_padding": 2, "horizontal_flip": True}
STAGES = [
    Stage("plain", batch_size=256, is_normed=False),
    Stage("GroupNorm", batch_size=256),
    Stage("batch of 4,096"),
    Stage("standardised weights", is_standardised=True),
    Stage("4 views", is_standardised=True, trainer=_VIEWS),
    Stage("averaged weights", is_standardised=True, trainer={**_VIEWS, "ema_decay": 0.99}),
]


def wall(units: Units, cache_dir: Path, *, is_quick: bool) -> Runs:
    """One unit for each curve."""
    del units, cache_dir
    for eta in ETAS[:1] if is_quick else ETAS:
        for steps in WALL_STEPS[-1:] if is_quick else WALL_STEPS:
            yield f"{eta:g}/{steps}", lambda eta=eta, steps=steps: _wall_curve(eta, steps)


def _wall_curve(eta: float, steps: int) -> Json:
    sampling_rate = 1e-3
    unit = signal_to_noise(sampling_rate=sampling_rate, noise_multiplier=1.0, steps=steps)
    mechanism = Mechanism(
        sampling_rate=sampling_rate, noise_multiplier=unit / eta, clip_norm=1.0, steps=steps
    )
    points = constant_tan_curve(mechanism, delta=DELTA, noise_multipliers=SIGMAS)
    return {
        "eta": eta,
        "steps": steps,
        "delta": DELTA,
        "epsilon_tan": points[0].epsilon_tan,
        "points": [
            {
                "noise_multiplier": each.noise_multiplier,
                "epsilon": each.epsilon,
                "overcharge": each.overcharge,
            }
            for each in points
        ],
        **origin(),
    }


def ladder(units: Units, cache_dir: Path, *, is_quick: bool) -> Runs:
    """One unit for each run, seed by seed."""
    del units
    ladders = [QUICK_LADDER] if is_quick else LADDERS
    for each in ladders:
        for seed in range(1 if is_quick else LADDER_SEEDS):
            batch_size = max(each.reference.batch_size // SMALLEST_FACTOR, 8)
            while batch_size <= each.reference.batch_size:
                name = f"{each.name}/{batch_size}/{seed}"
                yield name, lambda each=each, at=(batch_size, seed): _rung(each, *at, cache_dir)
                batch_size *= 2


def _rung(each: Ladder, batch_size: int, seed: int, cache_dir: Path) -> Json:
    reference = each.reference
    made = trained(
        reference.task,
        each.model,
        each.config,
        expected_batch_size=batch_size,
        noise_per_example=reference.noise_multiplier() / reference.batch_size,
        steps=reference.steps,
        seed=seed,
        cache_dir=cache_dir,
    )
    return {
        "curve": each.name,
        "batch_size": batch_size,
        "seed": seed,
        "reference_batch_size": reference.batch_size,
        "epsilon": reference.epsilon,
        "steps": reference.steps,
    } | made


def order(units: Units, cache_dir: Path, *, is_quick: bool) -> Runs:
    """One unit for each run, seed by seed."""
    del units
    if is_quick:
        return
    reference = Stage("").reference
    grid = itertools.product(range(SEEDS), ALL_RECORDS, (1, 2, 4), ("relu_norm", "norm_relu"))
    for seed, records, views, layers in grid:
        config = TrainerConfig(
            learning_rate=2.0,
            augmentation_multiplicity=views,
            crop_padding=2 if views > 1 else 0,
            horizontal_flip=views > 1,
        )
        about = {"order": layers, "views": views, "seed": seed}
        yield (
            f"{layers}/{views}/{records or 'all'}/{seed}",
            lambda config=config, about=about, records=records: (
                about
                | _simulated(
                    reference,
                    small_wide_resnet(order=about["order"]),
                    config,
                    about["seed"],
                    cache_dir,
                    records=records,
                )
            ),
        )


def _simulated(
    reference: Reference,
    model: Model,
    config: TrainerConfig,
    seed: int,
    cache_dir: Path,
    records: int | None = RECORDS,
    change: Callable[[nn.Module], None] = lambda _: None,
) -> Json:
    """A run of the reference's noise per example at the one simulated batch."""
    made = trained(
        reference.task,
        model,
        config,
        expected_batch_size=SIMULATED,
        noise_per_example=reference.noise_multiplier() / reference.batch_size,
        steps=reference.steps,
        seed=seed,
        cache_dir=cache_dir,
        records=records,
        shrink=SHRINK,
        change=change,
    )
    num_records = records or reference.task.ref.num_train
    passes = round(SIMULATED * reference.steps / num_records, 1)
    return {"epsilon": reference.epsilon, "steps": reference.steps, "passes": passes} | made


def ablation(units: Units, cache_dir: Path, *, is_quick: bool) -> Runs:
    """Every learning rate with seed 0, then the best one with the other seeds."""
    if is_quick:
        return
    for stage in STAGES:
        for rate in ABLATION_RATES:
            yield _stage_name(stage, rate, 0), lambda at=(stage, rate, 0): _stage(*at, cache_dir)
        best = best_rate(units, stage)
        for seed in range(1, SEEDS):
            at = (stage, best, seed)
            yield _stage_name(*at), lambda at=at: _stage(*at, cache_dir)


def _stage_name(stage: Stage, rate: float, seed: int) -> str:
    return f"{stage.name}/{rate:g}/{seed}"


def best_rate(units: Units, stage: Stage) -> float:
    """By the validation split, of those that were run with seed 0."""
    return max(
        ABLATION_RATES,
        key=lambda rate: (units.get(_stage_name(stage, rate, 0)) or {"validation": 0})[
            "validation"
        ],
    )


def _stage(stage: Stage, rate: float, seed: int, cache_dir: Path) -> Json:
    made = _simulated(
        stage.reference,
        small_wide_resnet(weight_standardization=stage.is_standardised),
        TrainerConfig(learning_rate=rate, **stage.trainer),
        seed,
        cache_dir,
        change=(lambda _: None) if stage.is_normed else without_norms,
    )
    return {"stage": stage.name, "learning_rate": rate, "seed": seed} | made


FIGURES = {"wall": wall, "ladder": ladder, "order": order, "ablation": ablation}
"""What each consists of: names, and the work behind them."""


def main() -> None:
    """Run what is missing, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="a curve of the wall, digits; not kept"
    )
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    parser.add_argument("--only", action="append", choices=FIGURES, help="may be repeated")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    warnings.simplefilter("ignore")
    print(circumstances(), flush=True)
    rows: list[Json] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if options.quick else FOLDER
        for figure in options.only or FIGURES:
            units = runs(figure, folder=folder)
            for name, work in FIGURES[figure](units, Path(scratch), is_quick=options.quick):
                rows.extend(_figures(f"{figure}: {name}", units.once(name, work)))
    for each in rows:
        print(f"| {each['name']} | {each['value']:.4g} {each['unit']} |")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _figures(name: str, found: Json) -> Iterable[Json]:
    if "test" in found:
        return [row(name, found["test"], "test accuracy")]
    return [
        row(f"{name}, sigma {each['noise_multiplier']:g}", each["epsilon"], "epsilon")
        for each in found["points"]
    ]


if __name__ == "__main__":
    main()
