"""How fast a private step is against the best step without privacy on this machine, and how exact.

    python benchmarks/engine.py [--quick] [--only MODEL] [--json FILE]

One thread and process CPU time, so a busy machine slows nobody; contenders take turns within each
round, each with one step to warm up and then some that count, and a contender's time is the median of its
turns. A private step is the clipped sum, Gaussian noise and the update; one without privacy the gradient and
the update. The noise is a simulation's, and beside it that of a private run: from a cipher, in float64. The base is the fastest step without privacy: torch as it comes, channels-last, or with oneDNN's
product in linear layers. With K views a step sees K times the inputs in all of them.

Exactness: the clipped sum of the first examples against a loop of plain autograd in float64. Memory: what
the process grew by, over model and batch, in a process of its own. Whole steps: those of the
trainer, draw and gather and all.
"""

import argparse
import copy
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _report import circumstances, row
from torch import Tensor, nn
from torch.nn import functional

from tan_core import models
from tan_core.engine import PrivateRandomness, SeededRandomness, Trainer, clipped_sum
from tan_core.engine.bookkeeping import Books
from tan_core.engine.flat import FlatParameters
from tan_core.engine.inputs import as_floats
from tan_core.engine.memory import keep_freed_memory
from tan_core.engine.randomness import KEY_BYTES, Randomness
from tan_core.engine.ways import channels_last
from tan_core.execution import PrivateRun, Simulation
from tan_core.mechanism import Mechanism
from tan_core.spec.models import MODEL_TYPES
from tan_core.spec.train import Precision, TrainerConfig

ROUNDS, QUICK_ROUNDS = 11, 3
SHORTEST_TURN = 0.03
WARM_UP_STEPS = 100
PEAKS = 5
"""Processes, of which the median counts: where the allocator puts what moves a peak by a tenth."""
CLIP_NORM, RATE = 1.0, 1e-6
EXAMPLES_CHECKED = 4

Step = Callable[[], None]


@dataclass(frozen=True)
class Workload:
    """A model, what it reads, B examples and K views of each."""

    model: str
    shape: tuple[int, ...]
    examples: int
    views: int = 1
    microbatch_size: int = 256
    num_classes: int = 10
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """As it stands in the table."""
        sizes = f"{'x'.join(map(str, self.shape))}, B {self.examples}, K {self.views}"
        extra = " WS" if ("weight_standardization", True) in self.options else ""
        return f"{self.model}{extra} {sizes}"

    def build(self) -> nn.Module:
        """The model, float32."""
        return models.build(
            MODEL_TYPES[self.model](name=self.model, **dict(self.options)),
            shape=self.shape,
            num_classes=self.num_classes,
            generator=torch.Generator().manual_seed(0),
        )

    def batch(self) -> tuple[Tensor, Tensor]:
        """Inputs [B * K, ...] of different sizes, so that some are clipped, and labels [B]."""
        generator = torch.Generator().manual_seed(1)
        inputs = torch.randn(self.examples * self.views, *self.shape, generator=generator)
        sizes = torch.rand(self.examples, generator=generator).repeat_interleave(self.views) + 0.1
        inputs *= sizes.view(-1, *[1] * len(self.shape))
        return inputs, torch.randint(0, self.num_classes, (self.examples,), generator=generator)


CNN, WRN = ("tanh-cnn", (1, 28, 28)), ("wrn-16-4", (3, 32, 32))
MLP = {"options": (("hidden", [256]),)}
WS = {"options": (("weight_standardization", True),)}
WORKLOADS = [
    Workload(*CNN, 64),
    Workload(*CNN, 512),
    Workload(*CNN, 2048),
    Workload(*CNN, 64, views=4),
    Workload(*CNN, 64, views=16),
    Workload(*WRN, 16),
    Workload(*WRN, 16, views=4),
    Workload(*WRN, 16, **WS),
    Workload(*WRN, 64, microbatch_size=16, **WS),
    Workload("linear", (4096,), 1024, microbatch_size=1024),
    Workload("mlp", (4096,), 1024, microbatch_size=1024, **MLP),
]
QUICK = [WORKLOADS[0], WORKLOADS[3], WORKLOADS[5], WORKLOADS[9], WORKLOADS[10]]


class OneDnnProduct(torch.autograd.Function):
    """A linear layer whose three products are oneDNN's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Inputs times weight."""
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """Gradients of all that entered."""
        x, weight = ctx.saved_tensors
        g = g.contiguous()
        back = _product(g, weight.t()) if ctx.needs_input_grad[0] else None
        return back, _product(g.t().contiguous(), x.t()), g.sum(0)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def without_privacy(
    load: Workload,
    *,
    channels_last: bool = False,
    onednn: bool = False,
    drawn: Callable[[], tuple[Tensor, Tensor]] | None = None,
) -> Step:
    """Mean gradient and update, on a batch at hand or on one that is drawn anew in every step."""
    model, (inputs, labels) = load.build(), load.batch()
    labels = labels.repeat_interleave(load.views)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        inputs = torch.empty_like(inputs, memory_format=torch.channels_last).copy_(inputs)
    if onednn:
        for layer in model.modules():
            if type(layer) is nn.Linear:
                layer.forward = lambda x, own=layer: OneDnnProduct.apply(x, own.weight, own.bias)  # type: ignore[method-assign]
    parameters = list(model.parameters())

    def step() -> None:
        x, y = drawn() if drawn else (inputs, labels)
        loss = functional.cross_entropy(model(x), y)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-RATE)

    return step


def ours(
    load: Workload,
    precision: Precision = Precision.FLOAT32,
    *,
    noise: Randomness | None = None,
) -> Step:
    """``clipped_sum``, noise (of a simulation, unless other is given) and update."""
    model, (inputs, labels) = load.build(), load.batch()
    vector = FlatParameters(model).vector
    books, randomness = Books(model, precision), noise or SeededRandomness(0)
    count = itertools.count()

    def step() -> None:
        total = clipped_sum(
            books,
            inputs,
            labels,
            clip_norm=CLIP_NORM,
            views=load.views,
            microbatch_size=load.microbatch_size,
        ).sum
        randomness.add_noise(next(count), total, CLIP_NORM)
        vector.sub_(total, alpha=RATE)

    return step


def opacus(build: Callable[[], nn.Module], batch: tuple[Tensor, Tensor], *, mode: str) -> Step:
    """Opacus' per-example gradients or ghost clipping and its optimiser; K = 1 only."""
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    inputs, labels = batch
    is_ghost = mode == "ghost"
    if is_ghost:
        model = GradSampleModuleFastGradientClipping(
            build(), max_grad_norm=CLIP_NORM, use_ghost_clipping=True, loss_reduction="mean"
        )
    else:
        model = GradSampleModule(build())
    kind = DPOptimizerFastGradientClipping if is_ghost else DPOptimizer
    optimizer = kind(
        torch.optim.SGD(model.parameters(), lr=RATE),
        noise_multiplier=1.0,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=len(labels),
    )
    criterion: Any = nn.CrossEntropyLoss()
    if is_ghost:
        criterion = DPLossFastGradientClipping(model, optimizer, criterion, loss_reduction="mean")

    def step() -> None:
        optimizer.zero_grad()
        criterion(model(inputs), labels).backward()
        optimizer.step()

    return step


def contenders(load: Workload) -> dict[str, Step]:
    """Every way of making the step that applies here; the first ones are without privacy."""
    ways = {"without privacy": without_privacy(load)}
    if len(load.shape) == 3:
        ways["without privacy, channels-last"] = without_privacy(load, channels_last=True)
    if hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        ways["without privacy, oneDNN"] = without_privacy(
            load, channels_last=len(load.shape) == 3, onednn=True
        )
    ways["ours"] = ours(load)
    ways["ours, noise of a private run"] = ours(
        load, noise=PrivateRandomness(os.urandom(KEY_BYTES), 1)
    )
    if load.views == 1 and importlib.util.find_spec("opacus"):
        # Per-example gradients of the MLP would fill 4 GiB.
        if load.model != "mlp":
            ways["opacus, hooks"] = opacus(load.build, load.batch(), mode="hooks")
        ways["opacus, ghost"] = opacus(load.build, load.batch(), mode="ghost")
    return ways


def seconds_of(steps: dict[str, Step], rounds: int) -> dict[str, float]:
    """Median CPU seconds of a step, contenders in random order within each round."""
    rng = np.random.default_rng(0)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name in rng.permutation(list(steps)):
            # As in training, a step follows a step of its own kind.
            steps[name]()
            num_steps, start = 0, time.process_time()
            while num_steps == 0 or time.process_time() - start < SHORTEST_TURN:
                steps[name]()
                num_steps += 1
            times[name].append((time.process_time() - start) / num_steps)
    return {name: float(np.median(taken)) for name, taken in times.items()}


def relative_error(load: Workload) -> float:
    """Of our clipped sum of a few examples, against a loop in float64."""
    model, (inputs, labels) = load.build(), load.batch()
    inputs, labels = inputs[: EXAMPLES_CHECKED * load.views], labels[:EXAMPLES_CHECKED]
    got = clipped_sum(model, inputs, labels, clip_norm=CLIP_NORM, views=load.views).sum.double()
    exact = copy.deepcopy(model).double()
    truth = torch.zeros_like(got)
    for own, label in zip(inputs.double().split(load.views), labels, strict=True):
        loss = functional.cross_entropy(exact(own), label.expand(load.views))
        gradient = torch.cat(
            [g.flatten() for g in torch.autograd.grad(loss, list(exact.parameters()))]
        )
        truth += gradient * min(1.0, CLIP_NORM / float(gradient.norm()))
    return float((got - truth).norm() / truth.norm())


def run(loads: list[Workload], rounds: int) -> list[dict[str, Any]]:
    """The table for people, line by line, and the rows for scripts."""
    rows: list[dict[str, Any]] = []
    print("| step | examples/s | of the best without privacy | error |\n| --- | --- | --- | --- |")
    for load in loads:
        seconds = seconds_of(contenders(load), rounds)
        error = relative_error(load)
        base = min(
            (name for name in seconds if name.startswith("without")), key=lambda n: seconds[n]
        )
        for name, taken in seconds.items():
            full, ratio = f"{load.name}: {name}", seconds[base] / taken
            cell = f"{error:.1e}" if name == "ours" else "-"
            print(f"| {full} | {load.examples / taken:,.0f} | {ratio:.2f} | {cell} |", flush=True)
            rows.append(row(full, load.examples / taken, "examples/s", base, ratio))
        rows.append(row(f"{load.name}: relative error of the clipped sum", error, "1"))
    return rows


MEMORY = [("wrn-16-4", 64, 16), ("wrn-16-4", 16, 16), ("tanh-cnn", 2048, 256), ("mlp", 1024, 1024)]
"""Model, B and physical batch."""


def peak_of(name: str, examples: int, physical: int, kind: str) -> None:
    """Print the MB by which a few steps made this process grow; for a child process."""
    load = next(
        w for w in WORKLOADS if (w.model == name and not w.options) or w.model == name == "mlp"
    )
    load = replace(load, examples=examples, views=1, microbatch_size=physical)
    if kind == "ours":
        step = ours(load)
    else:
        step = without_privacy(replace(load, examples=physical), channels_last=len(load.shape) == 3)
    before = peak_kb()
    for _ in range(3):
        step()
    print((peak_kb() - before) / 1024)


def peak_in_a_process(*arguments: str) -> float:
    """:func:`peak_of` in a process of its own."""
    command = [sys.executable, __file__, "--peak", *arguments]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def peak_kb() -> int:
    """The most that this process has held; getrusage would count what its parent held when it forked."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1])


def memory() -> list[dict[str, Any]]:
    """Peak memory of ours over that of a step without privacy at the same physical batch."""
    rows: list[dict[str, Any]] = []
    print("\n| memory of a step | MB | of the step without privacy |\n| --- | --- | --- |")
    for name, examples, physical in MEMORY:
        sizes = str(examples), str(physical)
        grown = {
            kind: float(np.median([peak_in_a_process(name, *sizes, kind) for _ in range(PEAKS)]))
            for kind in ("without privacy", "ours")
        }
        full = f"{name}, B {examples}, {physical} at once: memory"
        ratio = grown["ours"] / grown["without privacy"]
        print(f"| {full} | {grown['ours']:,.0f} | {ratio:.2f} |", flush=True)
        rows.append(row(full, grown["ours"], "MB", "without privacy", ratio))
    return rows


NUM_EXAMPLES = 60_000
BATCHES = (4096, 64, 1)


def whole_steps(rounds: int) -> list[dict[str, Any]]:
    """Steps of simulations, draw and gather and all: at B = 4096, its sixty-fourth and 1."""
    pixels = torch.randint(0, 256, (NUM_EXAMPLES, 1, 28, 28), dtype=torch.uint8)
    rows = _whole_steps("tanh-cnn", WORKLOADS[0].build, pixels, rounds)
    features = torch.rand(NUM_EXAMPLES, 81, 7, 7, dtype=torch.float16)
    head = partial(
        models.build_head,
        MODEL_TYPES["scatter-linear"](),
        shape=(1, 28, 28),
        num_classes=10,
        generator=torch.Generator().manual_seed(0),
    )
    return rows + _whole_steps("scatter-linear on kept features", head, features, rounds)


def _whole_steps(
    name: str, build: Callable[[], nn.Module], inputs: Tensor, rounds: int
) -> list[dict[str, Any]]:
    labels = torch.randint(0, 10, (NUM_EXAMPLES,))
    run = PrivateRun(
        mechanism=Mechanism(
            sampling_rate=4096 / NUM_EXAMPLES, noise_multiplier=4.0, clip_norm=1.0, steps=10**6
        ),
        num_examples=NUM_EXAMPLES,
    )
    steps: dict[str, Step] = {}
    for size in BATCHES:
        trainer = Trainer(
            model=build(),
            execution=Simulation.of(run, expected_batch_size=size),
            config=TrainerConfig(),
            inputs=inputs,
            labels=labels,
            randomness=SeededRandomness(0),
        )
        steps[f"B {size}"] = trainer.step
        # A run of many steps: torch has met the sizes of small batches.
        for _ in range(WARM_UP_STEPS if size < 4096 else 0):
            trainer.step()
    base = "B 4096 without privacy"
    steps[base] = drawn_without_privacy(build(), inputs, labels)
    seconds = seconds_of(steps, rounds)
    rows: list[dict[str, Any]] = []
    print(f"\n| whole step, {name} | ms | of B 4096 | of {base} |\n| --- | --- | --- | --- |")
    for way, taken in seconds.items():
        full, shares = f"whole step, {name}, {way}", [taken / seconds[b] for b in ("B 4096", base)]
        print(
            f"| {full} | {1e3 * taken:.2f} | 1/{1 / shares[0]:.1f} | {shares[1]:.2f} |", flush=True
        )
        rows.append(row(full, 1e3 * taken, "ms", "B 4096", shares[0]))
    return rows


def drawn_without_privacy(model: nn.Module, inputs: Tensor, labels: Tensor) -> Step:
    """Mean gradient and update on a new batch of 4096 each time, 256 at once as ours is."""
    parameters, generator = list(model.parameters()), torch.Generator().manual_seed(0)
    is_image = inputs.dtype == torch.uint8

    def step() -> None:
        for drawn in torch.randperm(NUM_EXAMPLES, generator=generator)[:4096].split(256):
            x = as_floats(inputs[drawn], torch.float32)
            x = channels_last(x) if is_image else x
            loss = functional.cross_entropy(model(x), labels[drawn])
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                torch._foreach_add_(parameters, gradients, alpha=-RATE)

    return step


def main() -> None:
    """Run, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few loads, within a minute")
    parser.add_argument("--only", help="loads whose name holds this, and nothing else")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    parser.add_argument("--peak", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    if options.peak:
        name, examples, physical, kind = options.peak
        peak_of(name, int(examples), int(physical), kind)
        return
    warnings.simplefilter("ignore")
    print(f"torch {torch.__version__}, 1 thread; {circumstances()}\n")
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    loads = QUICK if options.quick else WORKLOADS
    rows = run([load for load in loads if (options.only or "") in load.name], rounds)
    if not options.only:
        rows += whole_steps(rounds)
    if not (options.quick or options.only):
        rows += memory()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
