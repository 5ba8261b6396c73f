"""Convolutions in one, two and three dimensions: stride, padding, dilation and groups."""

# Shape legend: B = examples, K = views of each, V = B * K, T = K * positions, C and O = channels in
# and out, I = what a kernel sees at one position: its size times C.
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core.engine.layers.base import (
    LayerGradients,
    as_positions,
    ghost_is_cheaper,
    ghost_squared_norms,
    squared_norms,
)

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d

_CALL = 1_000_000
"""Multiply-adds that take as long as one more call of torch's convolution: some 40 microseconds."""


def is_plain(layer: nn.Module) -> bool:
    """Whether it pads with zeros: any other padding repeats inputs."""
    return getattr(layer, "padding_mode", None) == "zeros"


def convolution(layer: Convolution, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    """The way that costs least at this shape; all three are exact.

    * Few positions and many channels: norms from two tables (ghost) and one weighted convolution.
    * Small kernels of small images: one product of patches and output gradients for the batch.
    * Else one convolution per example, its views being the batch: no patches to write down.
    """
    a, padding = _padded(layer, a)
    positions = views * math.prod(g.shape[2:])
    seen = layer.weight[0].numel()
    if layer.groups == 1 and ghost_is_cheaper(positions, seen, layer.out_channels):
        weights = _ghost(layer, a, g, views, padding)
    elif layer.groups == 1 and positions * layer.weight.numel() < _CALL:
        weights = _by_patches(layer, a, g, views, padding)
    else:
        weights = _one_by_one(layer, a, g, views, padding)
    if layer.bias is None:
        return weights
    bias_BO = as_positions(g.flatten(2).sum(2), views).sum(1)

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        return weights.weighted_sum(weights_B) | {"bias": weights_B @ bias_BO}

    return LayerGradients(weights.squared_norms + squared_norms(bias_BO), weighted_sum)


def _padded(layer: Convolution, a: Tensor) -> tuple[Tensor, list[int]]:
    """The input and the zeros still to be added on both sides of it."""
    given: Sequence[int] | str = layer.padding
    if not isinstance(given, str):
        return a, list(given)
    if given == "valid":
        return a, [0] * len(layer.kernel_size)
    totals = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    if all(total % 2 == 0 for total in totals):
        return a, [total // 2 for total in totals]
    # "same" with an even kernel: the odd zero goes to the end.
    sides = [side for total in reversed(totals) for side in (total // 2, total - total // 2)]
    return functional.pad(a, sides), [0] * len(totals)


def _weight_gradient(layer: Convolution, padding: list[int]) -> Callable[[Tensor, Tensor], Tensor]:
    """(inputs, output gradients) -> the gradient of the weight, summed over the batch."""
    weight = layer.weight.detach()

    def gradient(a: Tensor, g: Tensor) -> Tensor:
        return torch.ops.aten.convolution_backward(
            g,
            a,
            weight,
            None,
            list(layer.stride),
            padding,
            list(layer.dilation),
            False,
            [0] * len(padding),
            layer.groups,
            [False, True, False],
        )[1]

    return gradient


def _one_by_one(
    layer: Convolution, a: Tensor, g: Tensor, views: int, padding: list[int]
) -> LayerGradients:
    gradient = _weight_gradient(layer, padding)
    weight_BP = g.new_empty(len(g) // views, layer.weight.numel())
    for example, row in enumerate(weight_BP):
        own = slice(example * views, (example + 1) * views)
        row.view(layer.weight.shape).copy_(gradient(a[own], g[own]))
    return _of_rows(weight_BP, lambda row: row.view(layer.weight.shape))


def _by_patches(
    layer: Convolution, a: Tensor, g: Tensor, views: int, padding: list[int]
) -> LayerGradients:
    weight_BOI = torch.bmm(_positions_last(g, views), _patches(layer, a, views, padding))
    outputs, inputs = layer.weight.shape[:2]
    return _of_rows(
        weight_BOI.flatten(1),
        # A patch has its channels last, a weight has them second.
        lambda row: row.view(outputs, *layer.kernel_size, inputs).movedim(-1, 1),
    )


def _ghost(
    layer: Convolution, a: Tensor, g: Tensor, views: int, padding: list[int]
) -> LayerGradients:
    squared_B = ghost_squared_norms(
        _patches(layer, a, views, padding), _positions_last(g, views).mT
    )
    gradient = _weight_gradient(layer, padding)

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        weights_V = weights_B.repeat_interleave(views)
        return {"weight": gradient(a, g * weights_V.view(-1, *[1] * (g.dim() - 1)))}

    return LayerGradients(squared_B, weighted_sum)


def _of_rows(weight_BP: Tensor, shaped: Callable[[Tensor], Tensor]) -> LayerGradients:
    return LayerGradients(
        squared_norms(weight_BP), lambda weights_B: {"weight": shaped(weights_B @ weight_BP)}
    )


def _positions_last(g: Tensor, views: int) -> Tensor:
    """[V, O, ...] -> [B, O, T]."""
    return as_positions(g.flatten(2).mT, views).mT


def _patches(layer: Convolution, a: Tensor, views: int, padding: list[int]) -> Tensor:
    """What the kernel sees at each position: [B, T, I], channels last within I."""
    sides = [side for each in reversed(padding) for side in (each, each)]
    x = functional.pad(a.movedim(1, -1), [0, 0, *sides]).contiguous()
    num, *sizes, channels = x.shape
    steps = [channels * math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    per_axis = list(zip(sizes, layer.kernel_size, layer.stride, layer.dilation, steps, strict=True))
    seen = x.as_strided(
        (
            num,
            *((size - d * (k - 1) - 1) // s + 1 for size, k, s, d, _ in per_axis),
            *layer.kernel_size,
            channels,
        ),
        (
            math.prod(sizes) * channels,
            *(s * step for _, _, s, _, step in per_axis),
            *(d * step for _, _, _, d, step in per_axis),
            1,
        ),
    )
    return as_positions(seen.flatten(1 + len(sizes)), views)
