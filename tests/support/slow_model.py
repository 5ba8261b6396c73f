"""A network that takes a second for each call, and leaves a mark of it: ``python:tests.support.slow_model:slow``."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn


class Slow(nn.Sequential):
    """Of more examples than a model is looked at with."""

    def __init__(self, calls: str, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self._calls = Path(calls)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if len(input) > 2:
            with self._calls.open("a") as file:
                file.write(".")
            time.sleep(1)
        return super().forward(input)


def slow(*, shape: Sequence[int], num_classes: int, calls: str) -> nn.Module:
    """``calls``: the file that has a byte for each."""
    return Slow(
        calls, nn.Conv2d(shape[0], 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, num_classes)
    )
