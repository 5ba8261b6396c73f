"""Linear layers on inputs of any number of dimensions, features last."""

# Shape legend: B = examples, K = views of each, V = B * K, T = K * positions, I and O = features.
import math

import torch
from torch import Tensor, nn

from tan_core.engine import native
from tan_core.engine.layers.base import (
    LayerGradients,
    as_image,
    as_positions,
    beyond_round_off,
    can_be_ghost,
    ghost_is_cheaper,
    ghost_squared_norms,
    squared_norms,
)
from tan_core.engine.onednn import product


def linear(
    layer: nn.Linear, a: Tensor, g: Tensor, views: int, squared_inputs: Tensor | None = None
) -> LayerGradients:
    """The weight of an example sees the sum of outer products over its positions.

    ``squared_inputs`` are the squared norms of ``a``, [V] in float64, where the way there took them.
    """
    has_bias = getattr(layer, "bias", None) is not None
    if views * math.prod(a.shape[1:-1]) == 1:
        own = vars(layer).get("squared_inputs")
        of_a = own(a) if own and squared_inputs is None else squared_inputs
        return _alone(a.flatten(0, -2), g.flatten(0, -2), of_a, has_bias=has_bias)
    a_BTI, g_BTO = as_positions(a, views), as_positions(g, views)
    sizes = a_BTI.shape[1], layer.in_features, layer.out_features
    is_ghost = can_be_ghost(g) and ghost_is_cheaper(*sizes)
    return (_ghost if is_ghost else _instantiated)(a_BTI, g_BTO, has_bias=has_bias)


def _alone(a_BI: Tensor, g_BO: Tensor, of_a: Tensor | None, *, has_bias: bool) -> LayerGradients:
    """One position: one outer product. A bias is a weight of one more input, which is 1."""
    if of_a is None and native.accepts(a_BI, g_BO):
        squared_B = native.outer_norms(a_BI, g_BO, ones=int(has_bias))
    else:
        of_a = squared_norms(a_BI) if of_a is None else of_a
        squared_B = (of_a + int(has_bias)) * squared_norms(g_BO)

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        sums = {"weight": product((g_BO * weights_B[:, None]).t(), a_BI.t())}
        return sums | {"bias": weights_B @ g_BO} if has_bias else sums

    return LayerGradients(squared_B, weighted_sum)


def _ghost(a_BTI: Tensor, g_BTO: Tensor, *, has_bias: bool) -> LayerGradients:
    positions = a_BTI.shape[1]
    squared_B = ghost_squared_norms(a_BTI, g_BTO)
    if has_bias:
        squared_B = squared_B + squared_norms(g_BTO.sum(1))
    ones = positions if has_bias else 0
    squared_B = beyond_round_off(squared_B, a_BTI, g_BTO, positions=positions, ones=ones)

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        weighted = (g_BTO * weights_B[:, None, None]).flatten(0, 1)
        sums = {"weight": product(weighted.t(), a_BTI.flatten(0, 1).t())}
        return sums | {"bias": weighted.sum(0)} if has_bias else sums

    return LayerGradients(squared_B, weighted_sum)


def _instantiated(a_BTI: Tensor, g_BTO: Tensor, *, has_bias: bool) -> LayerGradients:
    if native.accepts(a_BTI, g_BTO):
        return _by_kernels(a_BTI, g_BTO, has_bias=has_bias)
    weight_BIO, bias_BO = torch.bmm(a_BTI.mT, g_BTO), g_BTO.sum(1)
    squared_B = squared_norms(weight_BIO.flatten(1))
    if has_bias:
        squared_B = squared_B + squared_norms(bias_BO)

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        weight_IO = (weights_B @ weight_BIO.flatten(1)).view(weight_BIO.shape[1:])
        return {"weight": weight_IO.mT} | ({"bias": weights_B @ bias_BO} if has_bias else {})

    return LayerGradients(squared_B, weighted_sum)


def _by_kernels(a_BTI: Tensor, g_BTO: Tensor, *, has_bias: bool) -> LayerGradients:
    inputs, outputs = a_BTI.shape[2], g_BTO.shape[2]
    rows = native.weight_rows(
        as_image(a_BTI), as_image(g_BTO), native.Kernel(), 1, has_bias=has_bias
    )

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        sums_IO = rows.weighted_sum(weights_B)[:, :outputs]
        return {"weight": sums_IO[:inputs].mT} | ({"bias": sums_IO[inputs]} if has_bias else {})

    return LayerGradients(rows.squared_norms, weighted_sum)
