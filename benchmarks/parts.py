"""What training a part of a checkpoint costs, beside training all of it: time and memory of a private step.

    python benchmarks/parts.py [--quick] [--json FILE]

As benchmarks/engine.py measures: one thread, process CPU time, turns, medians. A private step is the clipped sum,
noise and the update, of the parameters that are trained. Memory is what a process of its own grew by.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _report import circumstances, row
from engine import Workload, ours, peak_kb, seconds_of
from torch import nn

from tan_core import models
from tan_core.engine.memory import keep_freed_memory
from tan_core.models import Checkpoint
from tan_core.spec.models import MODEL_TYPES
from tan_core.spec.pretrained import Pretrained

ROUNDS, QUICK_ROUNDS = 11, 3
PEAKS = 3
"""Processes, of which the median counts."""
ALL = "all"


@dataclass(frozen=True)
class Begun(Workload):
    """A model that begins from a checkpoint, and what of it is trained."""

    train: str = ALL

    def build(self) -> nn.Module:
        """The model, float32, all else frozen."""
        pretrained = Pretrained.model_validate(
            {"path": "own.safetensors", "data": "none", "train": self.train, "sha256": "0" * 64}
        )
        options = {**dict(self.options), "name": self.model, "pretrained": pretrained}
        return models.build(
            MODEL_TYPES[self.model].model_validate(options),
            shape=self.shape,
            num_classes=self.num_classes,
            generator=torch.Generator().manual_seed(0),
            checkpoint=Checkpoint(path=pretrained.path, weights=super().build().state_dict()),
        )

    @property
    def num_trained(self) -> int:
        """Numbers, of all of its parameters that are trained."""
        return sum(p.numel() for p in self.build().parameters() if p.requires_grad)


IMAGE = (3, 32, 32)
LOADS: dict[str, dict[str, Any]] = {
    "wrn-16-4": {"model": "wrn-16-4"},
    "nf-resnet-50 of width 1": {"model": "nf-resnet-50", "options": (("width", 1),)},
    "vit-tiny": {"model": "vit-tiny"},
}
EXAMPLES = 16
QUICK = ["wrn-16-4", "vit-tiny"]


def begun(name: str, train: str) -> Begun:
    """Of a load, by what is trained of it."""
    return Begun(shape=IMAGE, examples=EXAMPLES, train=train, **LOADS[name])


def grown_by(name: str, train: str) -> float:
    """MB by which a few steps make a process grow, median of some processes."""
    command = [sys.executable, __file__, "--peak", name, train]
    peaks = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(PEAKS)]  # fmt: skip
    return float(np.median([float(peak) for peak in peaks]))


def print_peak(name: str, train: str) -> None:
    """For a child process."""
    step = ours(begun(name, train))
    before = peak_kb()
    for _ in range(3):
        step()
    print((peak_kb() - before) / 1024)


def run(names: list[str], rounds: int) -> list[dict[str, Any]]:
    """The table for people, line by line, and the rows for scripts."""
    rows: list[dict[str, Any]] = []
    print("| private step | trained | ms | of all | MB | of all |\n| --- | --- | --- | --- | --- | --- |")  # fmt: skip
    for name in names:
        parts = MODEL_TYPES[LOADS[name]["model"]].parts or ()
        loads = {train: begun(name, train) for train in (ALL, *parts)}
        seconds = seconds_of({train: ours(load) for train, load in loads.items()}, rounds)
        memory = {train: grown_by(name, train) for train in loads}
        for train, load in loads.items():
            full, base = f"{name}, B {EXAMPLES}: {train}", f"{name}, B {EXAMPLES}: {ALL}"
            time, size = seconds[train] / seconds[ALL], memory[train] / memory[ALL]
            print(
                f"| {full} | {load.num_trained:,} | {1e3 * seconds[train]:.0f} | {time:.2f} | "
                f"{memory[train]:.0f} | {size:.2f} |",
                flush=True,
            )
            rows.append(row(full, 1e3 * seconds[train], "ms", base, time))
            rows.append(row(f"{full}: memory", memory[train], "MB", base, size))
    return rows


def main() -> None:
    """Run, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two models, within a minute")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    if options.peak:
        print_peak(*options.peak)
        return
    print(f"torch {torch.__version__}, 1 thread; {circumstances()}\n")
    rows = run(*((QUICK, QUICK_ROUNDS) if options.quick else (list(LOADS), ROUNDS)))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
