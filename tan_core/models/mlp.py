"""Fully connected network."""

import math

from torch import nn

from tan_core.spec.models import MlpModel


def build(spec: MlpModel, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Linear layers with ``spec.activation`` between them."""
    activation = {"tanh": nn.Tanh, "relu": nn.ReLU}[spec.activation]
    layers: list[nn.Module] = [nn.Flatten()]
    width = math.prod(shape)
    for hidden in spec.hidden:
        layers += [nn.Linear(width, hidden), activation()]
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, num_classes))
