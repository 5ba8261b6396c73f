"""Layers that scale and shift: group, layer and RMS norms, and gains.

The scale of an example sees the product of what it scales and of the output gradient, the shift sees
the output gradient, both summed over positions and views: all are small enough to be kept.
"""

# Shape legend: B = examples, K = views of each, V = B * K, F = features that have a scale each.
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core.engine import native
from tan_core.engine.layers.base import LayerGradients, as_positions, squared_norms
from tan_core.models.gain import Gain


def group_norm(layer: nn.GroupNorm, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    """One scale and shift per channel, the second dimension."""
    # The way back may have summed already: tan_core.engine.fast_layers.
    channel_sums = vars(layer).get("channel_sums")
    kept = channel_sums(a, g) if channel_sums else None
    if kept is not None:
        scale_VC, shift_VC = kept.scale, kept.shift
    elif a.dim() == 4 and native.accepts(a, g):
        _, mean, deviation = native.group_norm(a, layer.num_groups, None, None, layer.eps)
        _, scale_VC, shift_VC = native.group_norm_backward(
            a, g, mean, deviation, None, needs_input=False
        )
    else:
        scaled = functional.group_norm(a, layer.num_groups, eps=layer.eps)
        return _of_sums(layer, _by_channel(g * scaled, views), _by_channel(g, views))
    scale_BC, shift_BC = (as_positions(x[:, None], views).sum(1) for x in (scale_VC, shift_VC))
    return _of_sums(layer, scale_BC, shift_BC)


def layer_norm(layer: nn.LayerNorm, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    """One scale and shift per feature of the last dimensions."""
    scaled = functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
    return _of_sums(layer, _by_feature(layer, g * scaled, views), _by_feature(layer, g, views))


def rms_norm(layer: nn.RMSNorm, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    """One scale per feature of the last dimensions."""
    scaled = functional.rms_norm(a, layer.normalized_shape, eps=layer.eps)
    return _of_sums(layer, _by_feature(layer, g * scaled, views), None)


def gain(layer: Gain, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    """One scale for all, or one per channel."""
    product = g * a
    if layer.channels is None:
        pixels = math.prod(product.shape[1:])
        rows_V1 = product.reshape(len(product), pixels, 1)
        return _of_sums(layer, as_positions(rows_V1, views).sum(1), None)
    return _of_sums(layer, _by_channel(product, views), None)


def _by_channel(x: Tensor, views: int) -> Tensor:
    """[V, C, ...] -> [B, C]."""
    return as_positions(x.reshape(*x.shape[:2], math.prod(x.shape[2:])).sum(2), views).sum(1)


def _by_feature(layer: nn.LayerNorm | nn.RMSNorm, x: Tensor, views: int) -> Tensor:
    """[V, ..., *normalized_shape] -> [B, F]."""
    return as_positions(x.flatten(-len(layer.normalized_shape)), views).sum(1)


def _of_sums(layer: nn.Module, scale_BF: Tensor, shift_BF: Tensor | None) -> LayerGradients:
    kept = {"weight": scale_BF} if shift_BF is None else {"weight": scale_BF, "bias": shift_BF}
    own = {name: (kept[name], p.shape) for name, p in layer.named_parameters(recurse=False)}

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        return {name: (weights_B @ rows).view(shape) for name, (rows, shape) in own.items()}

    squared = [squared_norms(rows) for rows, _ in own.values()]
    return LayerGradients(torch.stack(squared).sum(0), weighted_sum)
