"""The clipped sum of a linear classifier in one pass over its inputs: no autograd, no books.

With few classes the time goes into reading the inputs, which forward and backward pass each do. Here a
block of examples is scored, weighted and summed while it is in the cache.
"""

from typing import Final

import torch
from torch import Tensor, nn

from tan_core.engine import native
from tan_core.engine.layers import is_changed

_MOST_CLASSES: Final = 16
"""With more, two matrix products over the whole batch are as fast."""


def linear_classifier(model: nn.Module) -> nn.Linear | None:
    """The one layer of a model that only flattens before it, if the kernels may compute it."""
    layers = list(model) if type(model) is nn.Sequential else [model]
    if not all(_is_flat(layer) for layer in layers[:-1]):
        return None
    last = layers[-1] if layers else model
    if type(last) is not nn.Linear or last.out_features > _MOST_CLASSES:
        return None
    is_trained = all(parameter.requires_grad for parameter in last.parameters())
    return last if is_trained and not any(map(is_changed, (model, *layers))) else None


def _is_flat(layer: nn.Module) -> bool:
    if type(layer) is nn.Flatten:
        return (layer.start_dim, layer.end_dim) == (1, -1)
    return type(layer) is nn.Identity


def in_one_pass(
    layer: nn.Linear, inputs: Tensor, labels: Tensor, *, clip_norm: float
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Sum [P], norms [B] in float64 and losses [B]; None where the kernels cannot read the batch.

    Args:
        layer: of :func:`linear_classifier`.
        inputs: [B, ...].
        labels: [B], int64.
        clip_norm: C > 0, of each example.
    """
    x, (weight, *bias) = inputs.flatten(1), (p.detach() for p in layer.parameters())
    if x.shape[1] != layer.in_features or not native.accepts(x, weight, *bias):
        return None
    # The kernel reads 64 bits for each label, and writes where it says.
    if labels.dtype != torch.int64 or len(labels) == 0:
        return None
    if labels.min() < 0 or labels.max() >= layer.out_features:
        return None
    return native.linear_classifier(x, labels, weight, bias[0] if bias else None, clip_norm)
