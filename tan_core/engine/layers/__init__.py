"""The layers for which books are kept: one file per family.

Each family has a function of a layer, what entered it, the gradient of what left it, and the number
of views. The first dimension of both tensors holds the views, those of an example together.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from tan_core.engine.layers import bias, convolution, embedding
from tan_core.engine.layers.affine import (
    ChannelSums,
    frozen_batch_norm,
    gain,
    group_norm,
    layer_norm,
    of_channel_sums,
    relu_group_norm,
    rms_norm,
)
from tan_core.engine.layers.base import LayerGradients
from tan_core.engine.layers.bias import bias_alone
from tan_core.engine.layers.linear import linear
from tan_core.engine.layers.shift import position_embedding
from tan_core.engine.layers.weight_standardised import is_frozen, weight_standardised
from tan_core.models.changed import is_changed, is_changed_both_ways, is_refitted
from tan_core.models.frozen_batch_norm import FrozenBatchNorm
from tan_core.models.gain import Gain
from tan_core.models.position_embedding import PositionEmbedding
from tan_core.models.relu_group_norm import ReluGroupNorm
from tan_core.models.weight_standardised import WeightStandardisedConv2d

_KINDS: Mapping[type[nn.Module], Callable[[Any, Tensor, Tensor, int], LayerGradients]] = {
    nn.Linear: linear,
    nn.Conv1d: convolution.convolution,
    nn.Conv2d: convolution.convolution,
    nn.Conv3d: convolution.convolution,
    nn.GroupNorm: group_norm,
    ReluGroupNorm: relu_group_norm,
    FrozenBatchNorm: frozen_batch_norm,
    nn.LayerNorm: layer_norm,
    nn.RMSNorm: rms_norm,
    nn.Embedding: embedding.embedding,
    Gain: gain,
    PositionEmbedding: position_embedding,
    WeightStandardisedConv2d: weight_standardised,
}
_IS_PLAIN: Mapping[type[nn.Module], Callable[[nn.Module], bool]] = {
    nn.Conv1d: convolution.is_plain,
    nn.Conv2d: convolution.is_plain,
    nn.Conv3d: convolution.is_plain,
    nn.Embedding: embedding.is_plain,
    WeightStandardisedConv2d: convolution.is_plain,
}

_LEAVES_OUT: Mapping[type[nn.Module], Callable[[Any], bool]] = {
    WeightStandardisedConv2d: is_frozen,
}
"""Layers that know what is frozen of them, and when."""


def is_known(layer: nn.Module) -> bool:
    """Whether the books of a layer can be kept: of this very type, nothing added, nothing replaced.

    A subclass may compute anything, and so may a hook that runs before or after the layer. Of a layer that is
    trained in part they are kept where that is its bias, or all but a standardised weight.
    """
    kind = type(layer)
    if kind not in _KINDS or is_changed(layer) or is_refitted(layer):
        return False
    if not _IS_PLAIN.get(kind, lambda _: True)(layer):
        return False
    is_whole = all(p.requires_grad for p in layer.parameters(recurse=False))
    return is_whole or is_bias_alone(layer) or _LEAVES_OUT.get(kind, lambda _: False)(layer)


def is_bias_alone(layer: nn.Module) -> bool:
    """Whether the books of a layer need no input, for its bias is all that is trained of it."""
    return bias.is_alone(layer)


def layer_gradients(layer: nn.Module, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    """Norms and weighted sums of the gradients of one known layer."""
    return _KINDS[type(layer)](layer, a, g, views)


__all__ = [
    "ChannelSums",
    "LayerGradients",
    "bias_alone",
    "is_bias_alone",
    "is_changed_both_ways",
    "is_known",
    "layer_gradients",
    "linear",
    "of_channel_sums",
]
