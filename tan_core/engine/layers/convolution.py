"""Convolutions in one, two and three dimensions: stride, padding, dilation and groups."""

# Shape legend: B = examples, K = views of each, V = B * K, T = K * positions, C and O = channels in
# and out, I = what a kernel sees at one position: its size times C.
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core.engine import gpu, native
from tan_core.engine.layers import bias
from tan_core.engine.layers.base import (
    LayerGradients,
    as_positions,
    beyond_round_off,
    can_be_ghost,
    squared_norms,
)

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d

_CALL = 1_000_000
"""Multiply-adds that take as long as one more call of torch's convolution: some 40 microseconds."""

_ENTRY = 40
"""Multiply-adds that take as long as writing, squaring and adding up one entry of a gradient."""

_SUM = 20
"""Multiply-adds that take as long as one more pair of positions: numbers one at a time."""


def is_plain(layer: nn.Module) -> bool:
    """Whether it pads with zeros: any other padding repeats inputs."""
    return getattr(layer, "padding_mode", None) == "zeros"


def convolution(layer: Convolution, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    """The way that costs least at this shape; all are exact.

    * Few positions and many channels: norms from tables of inner products (ghost), and the weighted
      sum by one convolution over the batch.
    * Else the gradient of each example, by our kernels where they can.
    * Without them: by one product of patches and output gradients on a GPU, and of small kernels and small
      images; the rest by one convolution per example, its views being the batch.
    """
    a, padding = _padded(layer, a)
    is_flat = not isinstance(layer, nn.Conv3d) and layer.groups == 1
    if is_flat and native.accepts(a, g):
        if not (can_be_ghost(g) and _ghost_is_cheaper(layer, a, g, views)):
            return _by_kernels(layer, a, g, views, padding)
        weights = _ghost(layer, a, g, views, padding)
    else:
        weight_BOI = weight_rows(layer, a, g, views, padding)
        weights = LayerGradients(
            squared_norms(weight_BOI.flatten(1)),
            lambda weights_B: {"weight": as_weight(layer, weights_B @ weight_BOI.flatten(1))},
        )
    if layer.bias is None:
        return weights
    bias_BO = bias.of_channels(g, views)

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


def _ghost_is_cheaper(layer: Convolution, a: Tensor, g: Tensor, views: int) -> bool:
    """Whether tables of inner products of pixels cost less than the entries of the gradient.

    The tables are in double, at half the speed; a sum over a pair of positions is one number at a time.
    The product of inputs and output gradients is taken either way.
    """
    pixels, positions = views * math.prod(a.shape[2:]), views * math.prod(g.shape[2:])
    tables = pixels**2 * layer.in_channels + positions**2 * layer.out_channels
    sums = _SUM * math.prod(layer.kernel_size) * positions**2
    return tables + sums < _ENTRY * layer.weight.numel()


def _as_image(x: Tensor) -> Tensor:
    """[V, C, H, W]; a sequence is an image of one row."""
    return x.unsqueeze(2) if x.dim() == 3 else x


def kernel_of(layer: Convolution, padding: Sequence[int]) -> native.Kernel:
    """The window as the kernels know it; a sequence has a window of one row."""

    def both(of_axes: Sequence[int], missing: int) -> tuple[int, int]:
        rows, columns = (missing, *of_axes)[-2:]
        return rows, columns

    return native.Kernel(
        size=both(layer.kernel_size, 1),
        stride=both(layer.stride, 1),
        padding=both(padding, 0),
        dilation=both(layer.dilation, 1),
    )


def _by_kernels(
    layer: Convolution, a: Tensor, g: Tensor, views: int, padding: list[int]
) -> LayerGradients:
    kernel, has_bias = kernel_of(layer, padding), layer.bias is not None
    rows = native.weight_rows(_as_image(a), _as_image(g), kernel, views, has_bias=has_bias)

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        names = ("bias",) if has_bias else ()
        return from_rows(layer, rows.weighted_sum(weights_B), names)

    return LayerGradients(rows.squared_norms, weighted_sum)


def from_rows(layer: Convolution, rows: Tensor, names: Sequence[str] = ()) -> dict[str, Tensor]:
    """Of a new sum of rows [R, O']: the weight in its own order, then what has one row each."""
    outputs, inputs = layer.weight.shape[:2]
    room = rows.shape[1]
    steps = [room * inputs]
    for size in reversed(layer.kernel_size[1:]):
        steps.insert(0, steps[0] * size)
    sums = {"weight": rows.as_strided(layer.weight.shape, (1, room, *steps))}
    first = rows.shape[0] - len(names)
    return sums | {name: rows[first + at, :outputs] for at, name in enumerate(names)}


def _weight_gradient(
    layer: Convolution, padding: Sequence[int]
) -> Callable[[Tensor, Tensor], Tensor]:
    """(inputs, output gradients) -> the gradient of the weight, summed over the batch."""
    weight = layer.weight.detach()

    def gradient(a: Tensor, g: Tensor) -> Tensor:
        return torch.ops.aten.convolution_backward(
            g,
            a,
            weight,
            None,
            list(layer.stride),
            list(padding),
            list(layer.dilation),
            False,
            [0] * len(padding),
            layer.groups,
            [False, True, False],
        )[1]

    return gradient


def _ghost(
    layer: Convolution, a: Tensor, g: Tensor, views: int, padding: list[int]
) -> LayerGradients:
    squared_B = native.weight_norms(_as_image(a), _as_image(g), kernel_of(layer, padding), views)
    # A pixel is read by every place of the kernel.
    positions = views * math.prod(g.shape[2:]) * math.prod(layer.kernel_size)
    squared_B = beyond_round_off(squared_B, a, g, positions=positions)
    gradient = _weight_gradient(layer, padding)

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        weights_V = weights_B.repeat_interleave(views)
        return {"weight": gradient(a, g * weights_V.view(-1, *[1] * (g.dim() - 1)))}

    return LayerGradients(squared_B, weighted_sum)


def weight_rows(
    layer: Convolution, a: Tensor, g: Tensor, views: int, padding: Sequence[int]
) -> Tensor:
    """The weight gradient of each example, [B, O, I] with channels last within I, without our kernels in C."""
    if gpu.reads_convolution(layer, a, g, views):
        return gpu.weight_rows(
            a,
            g,
            size=layer.kernel_size,
            stride=layer.stride,
            padding=padding,
            dilation=layer.dilation,
            views=views,
        )
    # A GPU would wait for each of many calls; there patches cost a fraction of what it computes.
    is_small = views * math.prod(g.shape[2:]) * layer.weight.numel() < _CALL
    is_by_patches = layer.groups == 1 and (is_small or not g.is_cpu)
    return (_by_patches if is_by_patches else _one_by_one)(layer, a, g, views, padding)


def as_weight(layer: Convolution, row: Tensor) -> Tensor:
    """A row of :func:`weight_rows`, in the weight's own order and shape."""
    outputs, inputs = layer.weight.shape[:2]
    return row.view(outputs, *layer.kernel_size, inputs).movedim(-1, 1)


def as_row(weight: Tensor) -> Tensor:
    """[O, I]: a weight, or what has its shape, in the order of :func:`weight_rows`."""
    return weight.movedim(1, -1).flatten(1)


def _one_by_one(
    layer: Convolution, a: Tensor, g: Tensor, views: int, padding: Sequence[int]
) -> Tensor:
    gradient = _weight_gradient(layer, padding)
    outputs, inputs = layer.weight.shape[:2]
    rows = g.new_empty(len(g) // views, outputs, *layer.kernel_size, inputs)
    for example, row in enumerate(rows):
        own = slice(example * views, (example + 1) * views)
        row.movedim(-1, 1).copy_(gradient(a[own], g[own]))
    return rows.flatten(2)


def _by_patches(
    layer: Convolution, a: Tensor, g: Tensor, views: int, padding: Sequence[int]
) -> Tensor:
    gradients_BOT = as_positions(g.flatten(2).mT, views).mT
    return torch.bmm(gradients_BOT, _patches(layer, a, views, padding))


def _patches(layer: Convolution, a: Tensor, views: int, padding: Sequence[int]) -> Tensor:
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
