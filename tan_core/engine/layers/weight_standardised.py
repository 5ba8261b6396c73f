"""Convolutions with standardised weights: the gradient goes through the standardisation, by example.

No example takes part in the standardisation, so its derivative is one linear map, the same for all.
"""

# Shape legend: B = examples, K = views of each, O = outputs, C = channels in, I = C times the kernel,
# O' = O rounded up for the kernels.
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from tan_core.engine import native
from tan_core.engine.layers import convolution
from tan_core.engine.layers.base import LayerGradients, squared_norms
from tan_core.models.weight_standardised import WeightStandardisedConv2d


@dataclass(frozen=True, slots=True)
class _Rows:
    """The gradients of each example."""

    weight_sum: Callable[[Tensor], Tensor]
    """Weights [B] -> the weighted sum for the weight."""
    squared_norms: Tensor
    """[B], float64: for the weight."""
    gain: Tensor
    """[B, O]."""
    bias: Tensor
    """[B, O]."""


def weight_standardised(
    layer: WeightStandardisedConv2d, a: Tensor, g: Tensor, views: int
) -> LayerGradients:
    r"""With :math:`G` the gradient of what the convolution uses, :math:`s \hat w`, for one output:

    .. math::

        \nabla_s = \langle G, \hat w \rangle, \qquad
        \nabla_w = s r \big(G - \bar G - \hat w \langle G, \hat w \rangle\big),

    the last part where the rate :math:`r` follows the weight. What goes off is taken off each example
    before its norm and before the sum, so nothing can cancel in either.
    """
    rows = _rows(layer, a, g, views)
    kept = {} if layer.gain is None else {"gain": rows.gain}
    if layer.bias is not None:
        kept["bias"] = rows.bias
    squared_B = rows.squared_norms
    for each in kept.values():
        squared_B = squared_B + squared_norms(each)

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        others = {name: weights_B @ each for name, each in kept.items()}
        return {"weight": rows.weight_sum(weights_B), **others}

    return LayerGradients(squared_B, weighted_sum)


@torch.no_grad()
def _rows(layer: WeightStandardisedConv2d, a: Tensor, g: Tensor, views: int) -> _Rows:
    unit, rate_O, is_free_O = layer.standardised()
    factor_O = rate_O if layer.gain is None else rate_O * layer.gain
    outputs, padding = len(rate_O), list(map(int, layer.padding))
    if layer.groups == 1 and native.accepts(a, g):
        room = (0, native.padded(outputs) - outputs)
        rows = native.weight_rows(
            a,
            g,
            convolution.kernel_of(layer, padding),
            views,
            native.Standardised(
                unit=functional.pad(unit.permute(2, 3, 1, 0).flatten(0, 2), room),
                factor=functional.pad(factor_O, room),
                is_free=functional.pad(is_free_O.to(factor_O), room),
            ),
        )
        weight_BP = rows.weight.flatten(1)
        return _Rows(
            lambda weights_B: convolution.as_weight(layer, weights_B @ weight_BP),
            rows.squared_norms,
            cast("Tensor", rows.gain),
            rows.bias,
        )
    rows_BOI = convolution.one_by_one(layer, a, g, views, padding).unflatten(1, (outputs, -1))
    unit_OI = unit.flatten(1)
    gain_BO = (rows_BOI * unit_OI).sum(2)
    taken_BOI = (gain_BO * is_free_O)[..., None] * unit_OI
    rows_BOI = (rows_BOI - rows_BOI.mean(2, keepdim=True) - taken_BOI) * factor_O[:, None]
    weight_BP = rows_BOI.flatten(1)
    return _Rows(
        lambda weights_B: (weights_B @ weight_BP).view(layer.weight.shape),
        squared_norms(weight_BP),
        gain_BO,
        convolution.bias_rows(g, views),
    )
