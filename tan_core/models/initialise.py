"""Initial parameters, drawn from one explicit generator."""

import math
from typing import cast

import torch
from torch import Tensor, nn


def initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Fill every parameter: weights uniform with variance 1 / (3 fan-in), as torch does by default.

    Raises:
        TypeError: a layer holds parameters that no rule here covers; they would stay unset memory.
    """
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            for parameter in layer.parameters(recurse=False):
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
        elif isinstance(layer, nn.GroupNorm):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(cast("Tensor", layer.bias))
        elif next(layer.parameters(recurse=False), None) is not None:
            raise TypeError(f"no initial values for layer {name!r} of type {type(layer).__name__}")
