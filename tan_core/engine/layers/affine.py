"""Layers that scale and shift: group, layer and RMS norms, frozen batch norms, and gains.

The scale of an example sees the product of what it scales and of the output gradient, the shift sees
the output gradient, both summed over positions and views: all are small enough to be kept.
"""

# Shape legend: B = examples, K = views of each, V = B * K, F = features that have a scale each.
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core.engine import native
from tan_core.engine.layers.base import LayerGradients, as_positions, of_rows
from tan_core.models.frozen_batch_norm import FrozenBatchNorm
from tan_core.models.gain import Gain
from tan_core.models.relu_group_norm import ReluGroupNorm


@dataclass(slots=True)
class ChannelSums:
    """What the way back through one run of a group norm sums on its way: no tensor has to wait for it."""

    of_views: tuple[Tensor, Tensor] | None = None
    """[V, C] each: gradients of the scale and of the shift; None before the way back."""


def group_norm(layer: nn.GroupNorm, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    """One scale and shift per channel, the second dimension."""
    if a.dim() == 4 and native.accepts(a, g):
        _, mean, deviation = native.group_norm(a, layer.num_groups, None, None, layer.eps)
        _, *sums = native.group_norm_backward(a, g, mean, deviation, None, needs_input=False)
        return of_channel_sums(layer, [(sums[0], sums[1])], views)
    scaled = functional.group_norm(a, layer.num_groups, eps=layer.eps)
    return _of_sums(layer, _by_channel(g * scaled, views), _by_channel(g, views))


def relu_group_norm(layer: ReluGroupNorm, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    """The same of what a ReLU lets through."""
    return group_norm(layer, a.relu(), g, views)


def frozen_batch_norm(layer: FrozenBatchNorm, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    """One scale and shift per channel, behind numbers that are not trained."""
    return _of_sums(layer, _by_channel(g * layer.normalised(a), views), _by_channel(g, views))


def of_channel_sums(
    layer: nn.GroupNorm, runs: Sequence[tuple[Tensor, Tensor]], views: int
) -> LayerGradients:
    """The same from the sums of each run of the layer, [V, C] each."""
    scale_VC, shift_VC = (reduce(torch.add, each) for each in zip(*runs, strict=True))
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
    """Of what is trained of the two."""
    kept = {"weight": scale_BF} if shift_BF is None else {"weight": scale_BF, "bias": shift_BF}
    trained = [name for name, p in layer.named_parameters(recurse=False) if p.requires_grad]
    return of_rows(layer, {name: kept[name] for name in trained})
