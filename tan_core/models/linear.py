"""Multinomial logistic regression."""

import math

from torch import nn

from tan_core.spec.models import LinearModel


def build(spec: LinearModel, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """One linear layer on the flattened input."""
    del spec  # no options
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), num_classes))
