"""What every family of layers shares: the books of one layer, exact norms, views as positions."""

# Shape legend: B = examples, K = views of each, V = B * K, T = positions, F = features.
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tan_core.engine import native

_BLOCK = 4096
_ENTRY = 20


@dataclass(frozen=True, slots=True)
class LayerGradients:
    """The gradients of one layer, without all of them at once."""

    squared_norms: Tensor
    """[B], float64."""
    weighted_sum: Callable[[Tensor], dict[str, Tensor]]
    """[B] weights -> the weighted sum by the layer's own parameter names."""


def squared_norms(x_BP: Tensor) -> Tensor:
    """Squared norm of each row, float64.

    A million squares added up in one float32 lose 3e-5 of the norm, and a norm that is too small
    lets an example through that is too large: at most blocks are summed in float32, the rest in
    float64.
    """
    if native.accepts(x_BP):
        return native.squared_norms(x_BP)
    whole = x_BP.shape[1] // _BLOCK * _BLOCK
    if whole == 0:
        return _squared(x_BP)
    squared_B = _squared(x_BP[:, :whole].unflatten(1, (-1, _BLOCK))).sum(1)
    return squared_B if whole == x_BP.shape[1] else squared_B + _squared(x_BP[:, whole:])


def _squared(x: Tensor) -> Tensor:
    """Squared norms over the last dimension, float64."""
    return torch.linalg.vector_norm(x, dim=-1).to(torch.float64).square()


def of_rows(layer: nn.Module, rows: Mapping[str, Tensor]) -> LayerGradients:
    """Of parameters whose gradients are kept for each example, [B, F] each by their names in the layer."""
    shapes = {name: layer.get_parameter(name).shape for name in rows}

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        return {name: (weights_B @ rows[name]).view(shape) for name, shape in shapes.items()}

    squared = [squared_norms(rows_BF) for rows_BF in rows.values()]
    return LayerGradients(torch.stack(squared).sum(0), weighted_sum)


def as_positions(x_VTF: Tensor, views: int) -> Tensor:
    """[B * K, ..., F] -> [B, K * T, F]: a layer sums over the views as it does over positions."""
    positions = views * math.prod(x_VTF.shape[1:-1])
    return x_VTF.reshape(x_VTF.shape[0] // views, positions, x_VTF.shape[-1])


def as_image(x_BTF: Tensor) -> Tensor:
    """[B, T, F] -> [B, F, T, 1]: to a kernel of one pixel, positions are positions."""
    return x_BTF.mT[..., None]


def can_be_ghost(g: Tensor) -> bool:
    """Whether a norm may come from tables in float64: they lose a float64 norm where positions cancel.

    What they lose of a float32 norm is less than what the sum in float32 loses, which is added.
    """
    return g.dtype != torch.float64


def ghost_is_cheaper(positions: int, inputs: int, outputs: int) -> bool:
    """Whether the norm of a sum of outer products costs less without the product itself.

    The two tables of inner products take T^2 (I + O) multiply-adds. The product takes T I O, which
    the weighted sum of the ghost takes as well, and then its I O entries are written, squared and
    read again: memory traffic that costs as much as some twenty multiply-adds each.
    """
    return positions**2 * (inputs + outputs) < _ENTRY * inputs * outputs


def beyond_round_off(
    squared_B: Tensor, a: Tensor, g: Tensor, *, positions: int, ones: int = 0
) -> Tensor:
    r"""Squared norms, as much larger as the sums that they bound may be by round-off.

    The weighted sum of a ghost is made anew, in the type of its factors. Where the positions of an
    example cancel, what that loses is small against its terms and may be large against what is left of
    them: up to :math:`\epsilon \sqrt{T} \lVert a \rVert \lVert g \rVert`, which is added to the norm.

    Args:
        squared_B: of the sums, as exact as can be, float64.
        a: what entered, examples first.
        g: the gradient of what left, examples first.
        positions: T, terms of a sum.
        ones: read beside ``a`` in each example, for the bias.
    """
    of_a, of_g = (
        squared_norms(x.reshape(len(squared_B), x.numel() // max(1, len(squared_B))))
        for x in (a, g)
    )
    lost_B = torch.finfo(g.dtype).eps * (positions * (of_a + ones) * of_g).sqrt()
    return (squared_B.sqrt() + lost_B).square()


def ghost_squared_norms(a_BTI: Tensor, g_BTO: Tensor) -> Tensor:
    r"""Squared norms of :math:`\sum_t g_t a_t^\top`: :math:`\sum_{st} (a_s a_t) (g_s g_t)`, float64.

    Positions may cancel each other. In float32 the tables could then lose the whole norm, and an
    example would pass unclipped, so they are made in float64.

    References:
        Goodfellow (2015), arXiv:1510.01799; Li et al. (2022), arXiv:2110.05679, section 4.
    """
    if native.accepts(a_BTI, g_BTO):
        return native.weight_norms(as_image(a_BTI), as_image(g_BTO), native.Kernel(), views=1)
    a, g = a_BTI.double(), g_BTO.double()
    return ((a @ a.mT) * (g @ g.mT)).sum((1, 2)).clamp_min(0)
