"""How fast a private step is on a GPU against steps without privacy, what it holds, and how far a run comes in some minutes.

    python benchmarks/gpu.py [--quick] [--skip-compiled] [--json FILE]
    python benchmarks/gpu.py --train SECONDS [--views K] [--steps S] [--checkpoint FILE] [--json FILE]

WRN-16-4 on images of CIFAR-10's size, 8,192 views at a time (a private step with one view of each example 2,048, Opacus 256). A step without privacy is the gradient and the update:
torch as it comes and channels-last, in float32 and under autocast to bfloat16, and compiled in bfloat16. A private step is the clipped sum,
a simulation's noise and the update. Seconds are of GPU events, medians of turns in random order. Memory is what torch held at most.

``--train`` trains privately for epsilon 8 at delta 1e-5, batches of 4,096 of all 50,000 records of CIFAR-10 (JPEG)
(TAN_DATA_DIR): it goes on from the checkpoint, ends after SECONDS or S steps, and says what the steps taken cost and
what the weights reach on the test split.
"""

import argparse
import gc
import hashlib
import importlib
import io
import itertools
import json
import os
import secrets
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pa_parquet
import torch
from _report import circumstances, row
from engine import CLIP_NORM, RATE, Step, opacus
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from tan_core import models
from tan_core.accounting import calibrate_noise_multiplier, price
from tan_core.engine import (
    PrivateRandomness,
    SeededRandomness,
    Trainer,
    checkpoint,
    clipped_sum,
)
from tan_core.engine.bookkeeping import Books
from tan_core.engine.flat import FlatParameters
from tan_core.execution import PrivateRun
from tan_core.mechanism import Mechanism
from tan_core.spec.models import MODEL_TYPES
from tan_core.spec.train import Precision, TrainerConfig

DATA = Path(os.environ.get("TAN_DATA_DIR", Path(__file__).parents[2] / "shared" / "data"))
SHAPE, NUM_CLASSES = (3, 32, 32), 10
AT_ONCE, VIEWS = 8192, 16
ROUNDS, QUICK_ROUNDS, STEPS_OF_A_TURN = 5, 3, 2
OPACUS_AT_ONCE = 256
"""Per-example gradients of more would not fit beside the patches that its hooks write."""
BATCH_SIZE, EPSILON, DELTA = 4096, 8.0, 1e-5


def build(*, standardised: bool = False) -> nn.Module:
    """WRN-16-4 on the GPU, float32."""
    model = models.build(
        MODEL_TYPES["wrn-16-4"](name="wrn-16-4", weight_standardization=standardised),
        shape=SHAPE,
        num_classes=NUM_CLASSES,
        generator=torch.Generator().manual_seed(0),
    )
    return model.cuda()


def batch(inputs: int, labels: int) -> tuple[Tensor, Tensor]:
    """Inputs of different sizes, so that some are clipped, and labels."""
    generator = torch.Generator("cuda").manual_seed(1)
    x = torch.randn(inputs, *SHAPE, generator=generator, device="cuda")
    x *= torch.rand(inputs, 1, 1, 1, generator=generator, device="cuda") + 0.1
    return x, torch.randint(0, NUM_CLASSES, (labels,), generator=generator, device="cuda")


def without_privacy(
    *, channels_last: bool, narrow: bool, compiled: bool, standardised: bool
) -> Step:
    """Mean gradient and update."""
    model, (inputs, labels) = build(standardised=standardised), batch(AT_ONCE, AT_ONCE)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    parameters = list(model.parameters())
    run: Callable[..., Tensor] = torch.compile(model) if compiled else model

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=narrow):
            loss = functional.cross_entropy(run(inputs), labels)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-RATE)

    return step


def views_of(views: int) -> int:
    """Views of a private step: every example has a gradient of its own in memory."""
    return AT_ONCE if views > 1 else AT_ONCE // 4


def ours(precision: Precision, views: int, *, standardised: bool) -> Step:
    """``clipped_sum``, noise and update."""
    at_once = views_of(views)
    model, (inputs, labels) = build(standardised=standardised), batch(at_once, at_once // views)
    vector, books = FlatParameters(model).vector, Books(model, precision)
    randomness, count = SeededRandomness(0), itertools.count()

    def step() -> None:
        total = clipped_sum(
            books, inputs, labels, clip_norm=CLIP_NORM, views=views, microbatch_size=at_once
        ).sum
        randomness.add_noise(next(count), total, CLIP_NORM)
        vector.sub_(total, alpha=RATE)

    return step


def contenders(*, compiled: bool, standardised: bool) -> dict[str, tuple[Callable[[], Step], int]]:
    """How each is made, and the views of one of its steps."""
    found: dict[str, tuple[Callable[[], Step], int]] = {}
    for narrow in (True,) if standardised else (False, True):
        kind = "bfloat16" if narrow else "float32"
        for channels_last, of_graph in ((False, False), (True, False), (True, True)):
            if of_graph and not (compiled and narrow):
                continue
            how = "compiled" if of_graph else "channels-last" if channels_last else "as it comes"

            def make(
                channels_last: bool = channels_last,
                narrow: bool = narrow,
                of_graph: bool = of_graph,
            ) -> Step:
                return without_privacy(
                    channels_last=channels_last,
                    narrow=narrow,
                    compiled=of_graph,
                    standardised=standardised,
                )

            found[f"without privacy, {how}, {kind}"] = make, AT_ONCE
    for precision in [Precision.BFLOAT16] if standardised else Precision:
        for views in (1, VIEWS):

            def make_ours(precision: Precision = precision, views: int = views) -> Step:
                return ours(precision, views, standardised=standardised)

            found[f"ours, {precision.value}, K {views}"] = make_ours, views_of(views)
    if not standardised:
        with suppress(ImportError):
            importlib.import_module("opacus")

            for mode in ("hooks", "ghost"):
                found[f"opacus, {mode}, float32, K 1"] = (
                    lambda mode=mode: opacus(
                        build, batch(OPACUS_AT_ONCE, OPACUS_AT_ONCE), mode=mode
                    ),
                    OPACUS_AT_ONCE,
                )
    return found


def milliseconds(step: Step) -> float:
    """Of one step, by the GPU's own clock."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(STEPS_OF_A_TURN):
        step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / STEPS_OF_A_TURN


def compare(rounds: int, *, compiled: bool, standardised: bool) -> list[dict[str, Any]]:
    """The table for people and the rows for scripts."""
    made: dict[str, tuple[Step, int]] = {}
    peaks: dict[str, float] = {}
    for name, (make, views) in contenders(compiled=compiled, standardised=standardised).items():
        gc.collect()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        try:
            step = make()
            step()
            step()
        except RuntimeError as error:
            print(f"{name}: {str(error).splitlines()[0]:.100}", flush=True)
            continue
        made[name] = step, views
        peaks[name] = (torch.cuda.max_memory_allocated() - before) / 2**30
    times: dict[str, list[float]] = {name: [] for name in made}
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        for name in rng.permutation(list(made)):
            made[name][0]()
            times[name].append(milliseconds(made[name][0]) / made[name][1])
    taken = {name: float(np.median(each)) for name, each in times.items()}
    base = min((n for n in taken if n.startswith("without")), key=lambda n: taken[n])
    model = "wrn-16-4 WS" if standardised else "wrn-16-4"
    print(f"\n| {model} | views/s | of the best without privacy | GiB |\n| --- | --- | --- | --- |")
    rows: list[dict[str, Any]] = []
    for name, each in taken.items():
        ratio = taken[base] / each
        print(f"| {name} | {1e3 / each:,.0f} | {ratio:.2f} | {peaks[name]:.1f} |", flush=True)
        rows.append(row(f"{model}: {name}", 1e3 / each, "views/s", base, ratio))
        rows.append(row(f"{model}: {name}: memory", peaks[name], "GiB"))
    return rows


def decoded(file: Path) -> tuple[Tensor, Tensor]:
    """Images [N, 3, 32, 32] in uint8 and labels of a Parquet file."""
    table = pa_parquet.read_table(file)
    column = next(name for name in table.column_names if name in ("image", "img"))
    images = [
        np.asarray(Image.open(io.BytesIO(each["bytes"])).convert("RGB"))
        for each in table[column].to_pylist()
    ]
    labels = torch.tensor(table["label"].to_pylist())
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous(), labels


def train(seconds: float, *, views: int, steps: int, kept: Path | None) -> dict[str, Any]:
    """A private run, or as much of it as there is time for."""
    inputs, labels = decoded(DATA / "cifar10-jpeg" / "train.parquet")
    test = decoded(DATA / "cifar10-jpeg" / "test.parquet")
    rate = BATCH_SIZE / len(inputs)
    noise = calibrate_noise_multiplier(
        sampling_rate=rate, steps=steps, epsilon=EPSILON, delta=DELTA
    )
    mechanism = Mechanism(
        sampling_rate=rate, noise_multiplier=noise, clip_norm=CLIP_NORM, steps=steps
    )
    trainer = Trainer(
        model=build(standardised=False).cpu(),
        execution=PrivateRun(mechanism=mechanism, num_examples=len(inputs)),
        config=TrainerConfig(
            learning_rate=4.0,
            ema_decay=0.999,
            augmentation_multiplicity=views,
            horizontal_flip=True,
            precision=Precision.BFLOAT16,
        ),
        inputs=inputs,
        labels=labels,
        # Of a run that is gone on with, what was drawn before is never drawn again: the key is new.
        randomness=PrivateRandomness(secrets.token_bytes(32), 1),
        microbatch_size=AT_ONCE,
        device="cuda",
    )
    if kept is not None and kept.exists():
        sha256 = hashlib.sha256(kept.read_bytes()).hexdigest()
        trainer.load_state(checkpoint.load(kept, sha256).state)
    begun, started, told = trainer.steps_done, time.perf_counter(), 0.0
    while trainer.steps_done < steps and time.perf_counter() - started < seconds:
        trainer.step()
        if time.perf_counter() - told > 30:
            told = time.perf_counter()
            print(f"step {trainer.steps_done}: {trainer.evaluate(*test):.4f}", flush=True)
    torch.cuda.synchronize()
    each = (time.perf_counter() - started) / max(1, trainer.steps_done - begun)
    if kept is not None:
        checkpoint.save(kept, trainer)
    taken = replace(mechanism, steps=trainer.steps_done)
    return {
        "model": "wrn-16-4, CIFAR-10 (JPEG)",
        "views": views,
        "noise_multiplier": noise,
        "steps": trainer.steps_done,
        "of_steps": steps,
        "seconds_of_a_step": each,
        "epsilon_of_steps_taken": price([taken], delta=DELTA).epsilon,
        "test_accuracy": trainer.evaluate(*test),
    }


def main() -> None:
    """Run, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, nothing compiled")
    parser.add_argument("--skip-compiled", action="store_true", help="torch.compile takes a minute")
    parser.add_argument("--train", type=float, metavar="SECONDS", help="train privately instead")
    parser.add_argument("--views", type=int, default=VIEWS, help="K of --train")
    parser.add_argument("--steps", type=int, default=3067, help="S of --train")
    parser.add_argument("--checkpoint", type=Path, help="of --train: go on from it, and leave it")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing is measured")
        return
    warnings.simplefilter("ignore")
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}; {circumstances()}\n")
    found: Any
    if options.train:
        found = train(
            options.train, views=options.views, steps=options.steps, kept=options.checkpoint
        )
        print(json.dumps(found, indent=1))
    else:
        rounds = QUICK_ROUNDS if options.quick else ROUNDS
        compiled = not (options.quick or options.skip_compiled)
        found = compare(rounds, compiled=compiled, standardised=False)
        found += compare(rounds, compiled=compiled, standardised=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
