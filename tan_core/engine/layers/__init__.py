"""The layers for which books are kept: one file per family.

Each family has a function of a layer, what entered it, the gradient of what left it, and the number
of views. The first dimension of both tensors holds the views, those of an example together.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from tan_core.engine.layers import convolution, embedding
from tan_core.engine.layers.affine import (
    ChannelSums,
    gain,
    group_norm,
    layer_norm,
    of_channel_sums,
    relu_group_norm,
    rms_norm,
)
from tan_core.engine.layers.base import LayerGradients
from tan_core.engine.layers.linear import linear
from tan_core.engine.layers.shift import position_embedding
from tan_core.engine.layers.weight_standardised import weight_standardised
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

_CHANGES = ("forward", "_forward_hooks", "_forward_pre_hooks")


def is_changed(layer: nn.Module) -> bool:
    """Whether a call of the layer does more than its class says."""
    return any(vars(layer).get(own) for own in _CHANGES)


def is_known(layer: nn.Module) -> bool:
    """Whether the books of a layer can be kept: of this very type, nothing added, nothing renamed.

    A subclass may compute anything, and so may a hook that runs before or after the layer.
    """
    kind = type(layer)
    return kind in _KINDS and not is_changed(layer) and _IS_PLAIN.get(kind, lambda _: True)(layer)


def layer_gradients(layer: nn.Module, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    """Norms and weighted sums of the gradients of one known layer."""
    return _KINDS[type(layer)](layer, a, g, views)


__all__ = [
    "ChannelSums",
    "LayerGradients",
    "is_changed",
    "is_known",
    "layer_gradients",
    "linear",
    "of_channel_sums",
]
