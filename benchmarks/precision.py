"""Passes in bfloat16 against passes in float32: the private step, and the step without privacy.

    python benchmarks/precision.py [--quick] [--json FILE]

As benchmarks/engine.py measures: one thread, process CPU time, turns, medians. A private step is the clipped sum, noise
and the update; its norms and sums are float32 in both precisions. One without privacy is the gradient and the update,
channels-last for images, under torch.autocast for bfloat16.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from _report import circumstances, row
from engine import CNN, MLP, RATE, WRN, Step, Workload, ours, seconds_of
from torch.nn import functional

from tan_core.engine.memory import keep_freed_memory
from tan_core.spec.train import Precision

ROUNDS, QUICK_ROUNDS = 11, 3
WORKLOADS = [
    Workload(*CNN, 64),
    Workload(*CNN, 512),
    Workload(*WRN, 16),
    Workload(*WRN, 16, views=4),
    Workload("mlp", (4096,), 1024, microbatch_size=1024, **MLP),
    Workload("vit-tiny", (3, 32, 32), 16, options=(("depth", 4),)),
]
QUICK = [WORKLOADS[0], WORKLOADS[4]]


def plain(load: Workload, precision: Precision) -> Step:
    """Mean gradient and update."""
    model, (inputs, labels) = load.build(), load.batch()
    labels = labels.repeat_interleave(load.views)
    if len(load.shape) == 3:
        model = model.to(memory_format=torch.channels_last)
        inputs = torch.empty_like(inputs, memory_format=torch.channels_last).copy_(inputs)
    parameters, is_lower = list(model.parameters()), precision is Precision.BFLOAT16

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=is_lower):
            logits = model(inputs)
        loss = functional.cross_entropy(logits.float(), labels)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-RATE)

    return step


def run(loads: list[Workload], rounds: int) -> list[dict[str, Any]]:
    """The table for people, line by line, and the rows for scripts."""
    rows: list[dict[str, Any]] = []
    print("| step | float32 | bfloat16 | times as fast |\n| --- | --- | --- | --- |")
    for load in loads:
        ways = {"private": ours, "without privacy": plain}
        steps = {
            f"{kind}, {precision.value}": way(load, precision)
            for kind, way in ways.items()
            for precision in Precision
        }
        seconds = seconds_of(steps, rounds)
        for kind in ways:
            exact, rounded = (
                load.examples / seconds[f"{kind}, {precision.value}"] for precision in Precision
            )
            name, base = f"{load.name}: {kind}", f"{load.name}: {kind}, float32"
            print(
                f"| {name} | {exact:,.0f}/s | {rounded:,.0f}/s | {rounded / exact:.2f} |",
                flush=True,
            )
            rows.append(row(base, exact, "examples/s"))
            rows.append(row(f"{name}, bfloat16", rounded, "examples/s", base, rounded / exact))
    return rows


def main() -> None:
    """Run, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two loads, within a minute")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    print(f"torch {torch.__version__}, 1 thread; {circumstances()}\n")
    rows = run(*((QUICK, QUICK_ROUNDS) if options.quick else (WORKLOADS, ROUNDS)))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
