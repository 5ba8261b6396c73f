"""Layers of which the bias alone is trained: no input of theirs has to be kept.

The bias of an example sees the output gradient, summed over positions and views, and so does the shift of a norm.

References:
    Bu, Wang, Zha and Karypis (2022), arXiv:2210.00036.
"""

# Shape legend: B = examples, K = views of each, V = B * K, F = features that have a bias each.
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from tan_core.engine.layers.base import LayerGradients, as_positions, of_rows
from tan_core.models.frozen_batch_norm import FrozenBatchNorm
from tan_core.models.relu_group_norm import ReluGroupNorm
from tan_core.models.weight_standardised import WeightStandardisedConv2d


def is_alone(layer: nn.Module) -> bool:
    """Whether the bias is what is trained of a layer, and all else of it is frozen."""
    if type(layer) not in _ROWS:
        return False
    own = dict(layer.named_parameters(recurse=False))
    return len(own) > 1 and [name for name, p in own.items() if p.requires_grad] == ["bias"]


def of_channels(g: Tensor, views: int) -> Tensor:
    """[V, F, ...] -> [B, F]; of a narrow ``g`` in float32."""
    dtype = torch.float32 if g.dtype == torch.bfloat16 else g.dtype
    return as_positions(g.sum(tuple(range(2, g.dim())), dtype=dtype)[:, None], views).sum(1)


def bias_alone(layer: nn.Module, gradients: Sequence[Tensor], views: int) -> LayerGradients:
    """Of a layer of which :func:`is_alone` holds.

    Args:
        layer: any of a known kind.
        gradients: of what left it, [V, ...] each, of one run or more.
        views: K.
    """
    rows_of = _ROWS[type(layer)]
    rows_BF = reduce(torch.add, (rows_of(layer, g, views) for g in gradients))
    return of_rows(layer, {"bias": rows_BF})


def _of_features(dims: int, g: Tensor, views: int) -> Tensor:
    """[V, ..., *F] -> [B, F], of so many dimensions of features."""
    return as_positions(g.flatten(-dims), views).sum(1)


def _of_channels(_: nn.Module, g: Tensor, views: int) -> Tensor:
    return of_channels(g, views)


_ROWS: Mapping[type[nn.Module], Callable[[Any, Tensor, int], Tensor]] = {
    nn.Linear: lambda _, g, views: _of_features(1, g, views),
    nn.LayerNorm: lambda layer, g, views: _of_features(len(layer.normalized_shape), g, views),
    nn.Conv1d: _of_channels,
    nn.Conv2d: _of_channels,
    nn.Conv3d: _of_channels,
    WeightStandardisedConv2d: _of_channels,
    nn.GroupNorm: _of_channels,
    ReluGroupNorm: _of_channels,
    FrozenBatchNorm: _of_channels,
}
