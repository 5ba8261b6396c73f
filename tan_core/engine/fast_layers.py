"""Faster ways through layers while books are kept: the same numbers up to rounding, there and back.

Parameters need no gradient then, so only the input's is taken.
"""

# Shape legend: V = views, C = channels, G = groups.
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from tan_core.engine import native, onednn

Forward = Callable[[Tensor], Tensor]


def fast_forward(layer: nn.Module) -> Forward | None:
    """What may stand for ``layer.forward``; None where torch's own is as good."""
    if "forward" in vars(layer):
        return None
    if type(layer) is nn.Linear:
        return _linear(layer)
    if type(layer) is nn.GroupNorm and native.is_available():
        return _group_norm(layer)
    return None


@contextmanager
def fast_layers(ways: Sequence[tuple[nn.Module, Forward]]) -> Generator[None]:
    """Lets layers take their fast way while the block runs."""
    for layer, forward in ways:
        layer.forward = forward
    try:
        yield
    finally:
        for layer, _ in ways:
            del layer.forward


def _linear(layer: nn.Linear) -> Forward:
    def forward(x: Tensor) -> Tensor:
        if onednn.is_faster(x, layer.weight):
            return onednn.linear(x, layer.weight, layer.bias)
        return functional.linear(x, layer.weight, layer.bias)

    return forward


def _group_norm(layer: nn.GroupNorm) -> Forward:
    def forward(x: Tensor) -> Tensor:
        if x.dim() == 4 and native.accepts(x):
            return _GroupNorm.apply(x, layer)
        return functional.group_norm(x, layer.num_groups, layer.weight, layer.bias, layer.eps)

    return forward


class _GroupNorm(Function):
    """Torch's own is slow on channels-last images and loses digits where the mean is far from 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: nn.GroupNorm) -> Tensor:
        y, mean, deviation = native.group_norm(
            x, layer.num_groups, layer.weight, layer.bias, layer.eps
        )
        ctx.save_for_backward(x, mean, deviation, layer.weight)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None]:
        x, mean, deviation, scale = ctx.saved_tensors
        dx, _, _ = native.group_norm_backward(x, grads[0], mean, deviation, scale, needs_input=True)
        return dx, None
