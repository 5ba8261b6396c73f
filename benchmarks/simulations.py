"""How many simulations this machine runs at once, against as many runs without privacy.

    python benchmarks/simulations.py [--quick] [--json FILE]

*Linear heads*: a step of an ensemble of T trials on one draw, one thread and process CPU time, over the
best step without privacy of one trial (torch as it comes, or oneDNN's product), examples per second and
trial. The step without privacy is measured twice: on a batch at hand, and with its own draw and gather,
which the ensemble's step has in it as well.

*Processes*: tanh-cnn at the batches of simulations, whole steps of the trainer (draw, gather, clipped sum,
noise, update) in two processes of one thread, against two processes of the best step without privacy on a
batch at hand, and against one process of two threads. Wall-clock, as processes cannot be timed otherwise:
examples per second of both together. Wants a quiet machine.

Contenders take turns within each round; a figure is the median over the rounds.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _processes import waiting
from _report import circumstances, row
from engine import Workload, seconds_of, without_privacy
from torch import Tensor

from tan_core.engine import SeededRandomness, Trainer
from tan_core.engine.ensemble import LinearEnsemble
from tan_core.engine.memory import keep_freed_memory
from tan_core.engine.onednn import product
from tan_core.execution import Simulation
from tan_core.mechanism import Mechanism
from tan_core.spec.train import TrainerConfig

Step = Callable[[], object]
Data = tuple[Tensor, Tensor]

ROUNDS, QUICK_ROUNDS = 11, 3
SECONDS_AT_ONCE = 0.5
"""Of a contender's turn: short enough to share a busy moment with the others."""

RATE = 1e-6
NUM_EXAMPLES = 16_384
HEADS = Workload("linear", (4096,), 1024, microbatch_size=1024)
TRIALS, QUICK_TRIALS = (8, 16, 32), (8, 32)
BATCHES = (16, 32, 64)


def simulation(load: Workload) -> Simulation:
    """At the workload's expected batch, without end."""
    return Simulation(
        dynamics=Mechanism(
            sampling_rate=load.examples / NUM_EXAMPLES,
            noise_multiplier=1.0,
            clip_norm=1.0,
            steps=10**9,
        ),
        num_examples=NUM_EXAMPLES,
        scale_factor=16.0,
    )


def split(load: Workload) -> Data:
    """A training split: images in bytes, features in floats."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, load.num_classes, (NUM_EXAMPLES,), generator=generator)
    if len(load.shape) == 1:
        return torch.randn(NUM_EXAMPLES, *load.shape, generator=generator), labels
    size = (NUM_EXAMPLES, *load.shape)
    return torch.randint(0, 256, size, generator=generator, dtype=torch.uint8), labels


def trainer_step(load: Workload) -> Step:
    """A whole step of one simulation."""
    inputs, labels = split(load)
    trainer = Trainer(
        model=load.build(),
        execution=simulation(load),
        config=TrainerConfig(learning_rate=RATE),
        inputs=inputs,
        labels=labels,
        randomness=SeededRandomness(0),
        microbatch_size=load.microbatch_size,
    )
    return trainer.step


def ensemble_step(trials: int, data: Data, *, is_paired: bool) -> Step:
    """A whole step of all trials."""
    ensemble = LinearEnsemble(
        models=[HEADS.build() for _ in range(trials)],
        simulations=[simulation(HEADS)] * trials,
        configs=[TrainerConfig(learning_rate=RATE)] * trials,
        inputs=data[0],
        labels=data[1],
        randomness=SeededRandomness(0),
        noises=None if is_paired else [SeededRandomness(0, 1 + t) for t in range(trials)],
    )
    return ensemble.step


def head_without_privacy(batch: Callable[[], Data]) -> Step:
    """The gradient of a linear head in closed form: two products."""
    layer: Any = HEADS.build()[1]
    weight, bias = layer.weight.detach(), layer.bias.detach()

    def step() -> None:
        inputs, labels = batch()
        g = product(inputs, weight, bias).softmax(1)
        g[torch.arange(len(g)), labels] -= 1
        weight.sub_(product(g.t().contiguous(), inputs.t()), alpha=RATE / len(g))
        bias.sub_(g.sum(0), alpha=RATE / len(g))

    return step


def drawn(data: Data) -> Callable[[], Data]:
    """A new batch each time, as a run without privacy shuffles it."""
    generator = np.random.default_rng(0)

    def batch() -> Data:
        chosen = torch.from_numpy(generator.integers(0, NUM_EXAMPLES, HEADS.examples))
        return data[0].index_select(0, chosen), data[1][chosen]

    return batch


def heads(trials: Iterable[int], rounds: int) -> list[dict[str, Any]]:
    """The ensemble against one trial, CPU time."""
    data, at_hand = split(HEADS), HEADS.batch()
    alone, with_draw = "without privacy, batch at hand", "without privacy, own draw"
    steps = {
        f"{alone}, eager": without_privacy(HEADS),
        f"{alone}, oneDNN": without_privacy(HEADS, onednn=True),
        f"{alone}, closed form": head_without_privacy(lambda: at_hand),
        f"{with_draw}, eager": without_privacy(HEADS, drawn=drawn(data)),
        f"{with_draw}, oneDNN": without_privacy(HEADS, onednn=True, drawn=drawn(data)),
        f"{with_draw}, closed form": head_without_privacy(drawn(data)),
        "one simulation": trainer_step(HEADS),
    }
    counts = dict.fromkeys(steps, 1)
    for count in trials:
        for noise in ("own noise", "paired"):
            name = f"ensemble of {count}, {noise}"
            steps[name] = ensemble_step(count, data, is_paired=noise == "paired")
            counts[name] = count
    seconds = {name: taken / counts[name] for name, taken in seconds_of(steps, rounds).items()}
    bases = [
        min((name for name in seconds if name.startswith(kind)), key=lambda n: seconds[n])
        for kind in (alone, with_draw)
    ]
    print(f"{HEADS.name}, one thread, CPU time; the best: {'; '.join(bases)}\n")
    print("| step | examples/s per trial | of the best at hand | of the best with a draw |")
    print("| --- | --- | --- | --- |")
    rows: list[dict[str, Any]] = []
    for name, taken in seconds.items():
        speed = HEADS.examples / taken
        ratios = [seconds[base] / taken for base in bases]
        print(f"| {name} | {speed:,.0f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
        for versus, ratio in zip(bases, ratios, strict=True):
            rows.append(row(f"{HEADS.name}: {name}", speed, "examples/s", versus, ratio))
    return rows


WAYS: dict[str, Callable[[Workload], Step]] = {
    "without privacy": without_privacy,
    "without privacy, channels-last": partial(without_privacy, channels_last=True),
    "without privacy, channels-last, oneDNN": partial(
        without_privacy, channels_last=True, onednn=True
    ),
    "simulation": trainer_step,
}


def serve(connection: Connection, threads: int) -> None:
    """A process that makes steps when told (way, workload, number), until it is told None."""
    torch.set_num_threads(threads)
    keep_freed_memory()  # as trials do
    steps: dict[tuple[str, Workload], Step] = {}
    while (order := connection.recv()) is not None:
        way, load, number = order
        if (way, load) not in steps:
            steps[way, load] = WAYS[way](load)
        for _ in range(number):
            steps[way, load]()
        connection.send("done")


def seconds_together(servers: list[Connection], way: str, load: Workload, number: int) -> float:
    """Until the last of them has made its steps."""
    start = time.perf_counter()
    for connection in servers:
        connection.send((way, load, number))
    for connection in servers:
        connection.recv()
    return time.perf_counter() - start


def packed(load: Workload, kinds: dict[str, list[Connection]], rounds: int) -> list[dict[str, Any]]:
    """Examples per second of all processes together."""
    two, one = kinds
    contenders = [(way, two) for way in WAYS] + [("simulation", one)]
    speeds: dict[tuple[str, str], list[float]] = {each: [] for each in contenders}
    numbers: dict[tuple[str, str], int] = {}
    for way, kind in contenders:
        seconds_together(kinds[kind], way, load, 1)
        taken = seconds_together(kinds[kind], way, load, 5) / 5
        numbers[way, kind] = max(1, round(SECONDS_AT_ONCE / taken))
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        for at in rng.permutation(len(contenders)):
            way, kind = contenders[at]
            number = numbers[way, kind]
            taken = seconds_together(kinds[kind], way, load, number)
            speeds[way, kind].append(len(kinds[kind]) * number * load.examples / taken)
    medians = {each: float(np.median(speed)) for each, speed in speeds.items()}
    base = max((each for each in medians if each[0] != "simulation"), key=lambda e: medians[e])
    rows: list[dict[str, Any]] = []
    for (way, kind), speed in medians.items():
        name, ratio = f"{load.name}: {way}, {kind}", speed / medians[base]
        print(f"| {name} | {speed:,.0f} | {ratio:.2f} |", flush=True)
        rows.append(row(name, speed, "examples/s", ", ".join(base), ratio))
    return rows


def processes(rounds: int) -> list[dict[str, Any]]:
    """Two processes of one thread, and one of two, wall-clock."""
    print("\nwhole steps of the trainer; wall-clock, all processes together\n")
    print("| steps | examples/s | of the best without privacy |\n| --- | --- | --- |")
    rows: list[dict[str, Any]] = []
    with waiting(serve, [(1,), (1,)]) as two, waiting(serve, [(2,)]) as one:
        kinds = {"2 processes of 1 thread": two, "1 process of 2 threads": one}
        for examples in BATCHES:
            rows += packed(Workload("tanh-cnn", (1, 28, 28), examples), kinds, rounds)
    return rows


def main() -> None:
    """Run, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, within a minute")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    print(f"torch {torch.__version__}; {circumstances()}\n")
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    rows = heads(QUICK_TRIALS if options.quick else TRIALS, rounds) + processes(rounds)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
