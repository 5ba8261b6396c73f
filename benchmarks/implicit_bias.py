"""Is it the clipping that makes small batches better at constant noise? Noisy SGD with it and without.

    python benchmarks/implicit_bias.py [--quick] [--json FILE]

Sander, Sylvestre and Durmus (2024) saw accuracy fall with the batch at fixed noise per example, sigma / B, and fixed
steps, without any clipping too: it is the draw of the batch that helps, and Gaussian noise keeps its bias. Here: MNIST,
tanh-cnn and multinomial regression; sigma / B of a private run with B = 2048 at epsilon 3 over 1,500 steps, for batches
from 4 to 1,024 (tanh-cnn: 256); each example clipped to norm 1, or nothing clipped (``clipping: none``, which has no epsilon and which
a study cannot ask for). No averaging, no momentum, one thread.

Every run is kept in ``benchmarks/results/implicit_bias.jsonl`` when it is done, and not run again.
``python benchmarks/results.py`` fits the product's law to them.
"""

import argparse
import json
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from _report import circumstances, row
from _small_runs import Reference, trained
from _stored import FOLDER, runs

from tan_core.engine.memory import keep_freed_memory
from tan_core.spec.models import LinearModel, TanhCnnModel
from tan_core.spec.train import Clipping, TrainerConfig

MODELS = {"linear": LinearModel(), "tanh-cnn": TanhCnnModel()}
BATCHES = {"linear": (4, 16, 64, 256, 1024), "tanh-cnn": (4, 16, 64, 256)}
LEARNING_RATES = {"linear": (0.03, 0.25), "tanh-cnn": (0.25,)}
SEEDS = 2
REFERENCE = Reference(dataset="mnist", epsilon=3.0, batch_size=2048, steps=1500)
QUICK = Reference(dataset="digits", epsilon=3.0, batch_size=256, steps=50)


@dataclass(frozen=True, order=True)
class Point:
    """One run."""

    model: str
    clipping: str
    learning_rate: float
    batch_size: int
    seed: int

    @property
    def name(self) -> str:
        """Of its unit."""
        return "/".join(str(value) for value in asdict(self).values())


def points() -> Iterator[Point]:
    """Seed by seed, so that what is there at any time is whole."""
    for model, batches in BATCHES.items():
        for seed in range(SEEDS):
            for learning_rate in LEARNING_RATES[model]:
                for batch_size in batches:
                    for clipping in (Clipping.PER_EXAMPLE, Clipping.NONE):
                        yield Point(model, clipping.value, learning_rate, batch_size, seed)


def run(point: Point, reference: Reference, cache_dir: Path) -> dict[str, Any]:
    """Its accuracy, and what it was."""
    config = TrainerConfig(
        learning_rate=point.learning_rate, clipping=Clipping(point.clipping), clip_norm=1.0
    )
    noise_per_example = reference.noise_multiplier() / reference.batch_size
    made = trained(
        reference.task,
        MODELS[point.model],
        config,
        expected_batch_size=point.batch_size,
        noise_per_example=noise_per_example,
        steps=reference.steps,
        seed=point.seed,
        cache_dir=cache_dir,
    )
    return {
        **asdict(point),
        "noise_per_example": noise_per_example,
        "steps": reference.steps,
    } | made


def main() -> None:
    """Run what is missing, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="digits, a few runs, not kept")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    warnings.simplefilter("ignore")
    print(circumstances(), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if options.quick else FOLDER
        units = runs("implicit_bias", folder=folder)
        reference = QUICK if options.quick else REFERENCE
        wanted = [each for each in points() if not options.quick or _is_quick(each)]
        found = [
            units.once(each.name, lambda each=each: run(each, reference, Path(scratch)))
            for each in wanted
        ]
    print(
        "\n| model | clipping | learning rate | B | seed | test |\n| --- | --- | --- | --- | --- | --- |"
    )
    for each in found:
        print(
            f"| {each['model']} | {each['clipping']} | {each['learning_rate']:g} "
            f"| {each['batch_size']} | {each['seed']} | {each['test']:.2%} |"
        )
    if options.json:
        rows = [
            row(point.name, result["test"], "test accuracy")
            for point, result in zip(wanted, found, strict=True)
        ]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _is_quick(point: Point) -> bool:
    return (point.model, point.seed, point.learning_rate) == ("linear", 0, 0.25) and (
        point.batch_size <= 64
    )


if __name__ == "__main__":
    main()
