"""Convolutions with standardised weights: the gradient goes through the standardisation, by example.

No example takes part in the standardisation, so its derivative is one linear map, the same for all.
"""

# Shape legend: B = examples, K = views of each, O = outputs, C = channels in, I = C times the kernel,
# O' = O rounded up for the kernels.
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from tan_core.engine import gpu, native
from tan_core.engine.layers import bias, convolution
from tan_core.engine.layers.base import LayerGradients, of_rows, squared_norms
from tan_core.models.weight_standardised import WeightStandardisedConv2d


@torch.no_grad()
def weight_standardised(
    layer: WeightStandardisedConv2d, a: Tensor, g: Tensor, views: int
) -> LayerGradients:
    r"""With :math:`G` the gradient of what the convolution uses, :math:`s \hat w`, for one output:

    .. math::

        \nabla_s = \langle G, \hat w \rangle, \qquad
        \nabla_w = s r \big(G - \bar G - \hat w \langle G, \hat w \rangle\big),

    the last part where the rate :math:`r` follows the weight. What goes off is taken off each example
    before its norm and before the sum, so nothing can cancel in either.

    Where the weight is frozen, what is trained is the gain, and the bias or not.
    """
    unit, rate_O, is_free_O = layer.standardised()
    if is_frozen(layer):
        return _of_gain(layer, unit, a, g, views)
    factor_O = rate_O if layer.gain is None else rate_O * layer.gain
    weight = _Weight(unit, factor_O, is_free_O)
    is_by_kernels = layer.groups == 1 and native.accepts(a, g)
    return (_by_kernels if is_by_kernels else _instantiated)(layer, weight, a, g, views)


def is_frozen(layer: WeightStandardisedConv2d) -> bool:
    """Whether the weight is, and the gain is not."""
    gain = layer.gain
    return gain is not None and gain.requires_grad and not layer.weight.requires_grad


def _of_gain(
    layer: WeightStandardisedConv2d, unit: Tensor, a: Tensor, g: Tensor, views: int
) -> LayerGradients:
    r"""The gain scales what :math:`\hat w` makes of the input: that is less to make than the gradient of a weight."""
    # What it scales cannot be had of the output: a gain may be zero.
    scaled = functional.conv2d(
        a.to(unit), unit, None, layer.stride, _padding(layer), layer.dilation, layer.groups
    )
    rows = {"gain": bias.of_channels(g * scaled, views)}
    if layer.bias is not None and layer.bias.requires_grad:
        rows["bias"] = bias.of_channels(g, views)
    return of_rows(layer, rows)


class _Weight(NamedTuple):
    """A standardised weight and what its derivative needs."""

    unit: Tensor
    """Like the weight: mean 0 and sum of squares 1 for each output."""
    factor: Tensor
    """[O]: the rate of the standardisation times the gain."""
    is_free: Tensor
    """[O]: whether the rate follows the weight."""


def _by_kernels(
    layer: WeightStandardisedConv2d, weight: _Weight, a: Tensor, g: Tensor, views: int
) -> LayerGradients:
    outputs = len(weight.factor)
    room = (0, native.padded(outputs) - outputs)
    names = [name for name in ("bias", "gain") if getattr(layer, name) is not None]
    rows = native.weight_rows(
        a,
        g,
        convolution.kernel_of(layer, _padding(layer)),
        views,
        has_bias=layer.bias is not None,
        has_gain=layer.gain is not None,
        standardised=native.Standardised(
            unit=functional.pad(weight.unit.permute(2, 3, 1, 0).flatten(0, 2), room),
            factor=functional.pad(weight.factor, room),
            is_free=functional.pad(weight.is_free.to(weight.factor), room),
        ),
    )

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        return convolution.from_rows(layer, rows.weighted_sum(weights_B), names)

    return LayerGradients(rows.squared_norms, weighted_sum)


def _instantiated(
    layer: WeightStandardisedConv2d, weight: _Weight, a: Tensor, g: Tensor, views: int
) -> LayerGradients:
    rows_BOI = convolution.weight_rows(layer, a, g, views, _padding(layer))
    unit_OI = convolution.as_row(weight.unit)
    if gpu.reads_rows(rows_BOI):
        gain_BO, squared_BO = gpu.standardise(rows_BOI, unit_OI, weight.factor, weight.is_free)
        squared_B = squared_BO.double().sum(1)
    else:
        gain_BO = (rows_BOI * unit_OI).sum(2)
        taken_BOI = (gain_BO * weight.is_free)[..., None] * unit_OI
        rows_BOI = (rows_BOI - rows_BOI.mean(2, keepdim=True) - taken_BOI) * weight.factor[:, None]
        squared_B = squared_norms(rows_BOI.flatten(1))
    kept = {"weight": rows_BOI.flatten(1)}
    if layer.gain is not None:
        kept["gain"] = gain_BO
    if layer.bias is not None:
        kept["bias"] = bias.of_channels(g, views)

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        sums = {name: weights_B @ each for name, each in kept.items()}
        return sums | {"weight": convolution.as_weight(layer, sums["weight"])}

    others = [squared_norms(each) for name, each in kept.items() if name != "weight"]
    return LayerGradients(sum(others, squared_B), weighted_sum)


def _padding(layer: WeightStandardisedConv2d) -> list[int]:
    return list(map(int, layer.padding))
