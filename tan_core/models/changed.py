"""Layers that were changed after they were made."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from torch import nn

_CHANGES = ("forward", "_forward_hooks", "_forward_pre_hooks")
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")


def is_changed(layer: nn.Module) -> bool:
    """Whether a call of the layer does more than its class says."""
    return any(vars(layer).get(own) for own in _CHANGES)


def is_changed_both_ways(layer: nn.Module) -> bool:
    """Whether a call of the layer, or the way back through it, does more than its class says: for whom autograd is not asked."""
    return is_changed(layer) or any(vars(layer).get(own) for own in _BACKWARD_HOOKS)


_SHAPES: Final[Mapping[type[nn.Module], Callable[[Any], tuple[int, ...]]]] = {
    nn.Linear: lambda layer: (layer.out_features, layer.in_features),
    nn.Conv1d: lambda layer: (layer.out_channels, *layer.kernel_size),
    nn.Conv2d: lambda layer: (layer.out_channels, *layer.kernel_size),
    nn.Conv3d: lambda layer: (layer.out_channels, *layer.kernel_size),
    nn.Embedding: lambda layer: (layer.num_embeddings, layer.embedding_dim),
}
"""Of a weight, by the attributes of its layer; without the inputs of a convolution, of which nobody asks the layer."""


def is_refitted(layer: nn.Module) -> bool:
    """Whether its weight or its bias was replaced by what is no parameter, or has another shape than the layer's attributes say.

    Torch goes by the tensors. Who goes by the attributes would read beside them.

    Example:
        >>> layer = nn.Linear(4, 3)
        >>> layer.weight = nn.Parameter(layer.weight[:2])
        >>> is_refitted(layer), is_refitted(nn.Linear(4, 3))
        (True, False)
    """
    kind = next((kind for kind in _SHAPES if isinstance(layer, kind)), None)
    if kind is None:
        return False
    own = dict(layer.named_parameters(recurse=False))
    others = {**vars(layer), **dict(layer.named_buffers(recurse=False))}
    if not others.keys().isdisjoint(("weight", "bias")) or "weight" not in own:
        return True
    expected, found = _SHAPES[kind](layer), own["weight"].shape
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        found = (found[0], *found[2:])
    return found != expected or ("bias" in own and own["bias"].shape != expected[:1])
