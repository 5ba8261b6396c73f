"""Faster ways through layers while books are kept: the same numbers up to rounding, there and back.

What depends on parameters alone is computed once for all the microbatches of a step. Parameters get
their gradients from the books, so the ways here have a gradient of the input only.
"""

# Shape legend: V = views, C = channels.
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from tan_core.engine import native, onednn
from tan_core.engine.layers.affine import ChannelSums
from tan_core.engine.ways import (
    Convolution,
    Passed,
    Way,
    channels_last,
    dense_tanh,
    few_outputs,
    group_norm,
    has_few_outputs,
    is_dense,
    large_tanh,
    max_pool,
    pool_window,
    small_kernel,
)
from tan_core.models.changed import is_refitted
from tan_core.models.low_rank import LowRankLinear
from tan_core.models.relu_group_norm import ReluGroupNorm
from tan_core.models.weight_standardised import WeightStandardisedConv2d

Methods = dict[str, Callable[..., Any]]
"""By name: what stands for methods of a layer while its parameters stay as they are."""
Prepare = Callable[[], Methods]


def fast_methods(layer: nn.Module, *, is_channels_last: bool) -> Prepare | None:
    """Methods for one layer, made anew when its parameters change; None where its own are as good.

    Args:
        layer: any; a subclass of a known kind keeps its own methods.
        is_channels_last: whether images are laid out so.
    """
    if "forward" in vars(layer) or is_refitted(layer):
        return None
    if type(layer) is nn.Linear:
        if has_few_outputs(layer):
            return lambda: _few_outputs(layer)
        return lambda: {"forward": _linear(layer)}
    if type(layer) is LowRankLinear:
        return lambda: {"product": _linear(layer)}
    if type(layer) is nn.GroupNorm or type(layer) is ReluGroupNorm:
        return lambda: _group_norm(layer)
    if type(layer) is nn.Conv2d and is_channels_last:
        return _convolution(layer)
    if type(layer) is nn.MaxPool2d and is_channels_last:
        return _max_pool(layer)
    if type(layer) is nn.Tanh and native.is_available():
        return lambda: {"forward": _tanh}
    if type(layer) is WeightStandardisedConv2d:
        reads_inputs = any(p is not layer.bias and p.requires_grad for p in layer.parameters())
        if is_channels_last and not reads_inputs:
            return lambda: _frozen_standardised(layer)
        return lambda: {"standardised": _standardised(layer, is_channels_last=is_channels_last)}
    return None


def _linear(layer: nn.Linear | LowRankLinear) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        if onednn.is_faster(x, layer.weight):
            return onednn.linear(x, layer.weight, layer.bias)
        return functional.linear(x, layer.weight, layer.bias)

    return forward


def _convolution(layer: nn.Conv2d) -> Prepare:
    kernel, is_frozen = small_kernel(layer), not layer.weight.requires_grad

    @torch.no_grad()
    def prepare() -> Methods:
        own = Convolution(layer, kernel)
        # The layer's own forward knows its padding; this is all that it does.
        convolved = layer._conv_forward  # pyright: ignore[reportPrivateUsage]

        def forward(x: Tensor) -> Tensor:
            found = _by_hand(x, own.by_kernels, layer.bias)
            if found is None and is_frozen:
                found = _without_inputs(x, own, layer.bias)
            return convolved(x, own.weight, layer.bias) if found is None else found

        return {"forward": forward}

    return prepare


def _without_inputs(x: Tensor, own: Convolution, bias: Tensor | None) -> Tensor | None:
    """Through a convolution whose weight is frozen; autograd would keep what entered it for the weight's gradient.

    None where no gradient goes back, or where torch rounds what it convolves: then it knows the way back.
    """
    goes_back = x.requires_grad or (bias is not None and bias.requires_grad)
    if not goes_back or torch.is_autocast_enabled(x.device.type):
        return None
    return _by_hand(x, own.by_torch, bias)


@torch.no_grad()
def _standardised(
    layer: WeightStandardisedConv2d, *, is_channels_last: bool
) -> Callable[[], tuple[Tensor, ...]]:
    value = layer.standardised()
    if is_channels_last:
        value = value._replace(weight=channels_last(value.weight))
    return lambda: value


@torch.no_grad()
def _frozen_standardised(layer: WeightStandardisedConv2d) -> Methods:
    """Of which at most the bias is trained."""
    standardised = _standardised(layer, is_channels_last=True)
    (weight, *_), gain = standardised(), layer.gain
    own = Convolution(layer, None, weight if gain is None else weight * gain.view(-1, 1, 1, 1))

    def forward(x: Tensor) -> Tensor:
        found = _without_inputs(x, own, layer.bias)
        return type(layer).forward(layer, x) if found is None else found

    return {"forward": forward, "standardised": standardised}


def _is_same(own: Tensor, other: Tensor) -> bool:
    """Whether both are the same numbers in the same place; the one that is kept keeps the place."""
    return (
        own.data_ptr() == other.data_ptr()
        and own.shape == other.shape
        and own.stride() == other.stride()
    )


def _few_outputs(layer: nn.Linear) -> Methods:
    """With few outputs the time goes into reading the inputs: their norms are taken on the way."""
    kept: list[tuple[Tensor, Tensor]] = []

    def forward(x: Tensor) -> Tensor:
        kept.clear()
        passed = few_outputs(x, layer)
        if passed is None:
            return functional.linear(x, layer.weight, layer.bias)
        assert passed.squared_inputs is not None  # noqa: S101 they are taken on the way
        kept.append((x.detach(), passed.squared_inputs))
        return _ByHand.apply(x, passed, layer.bias)

    def squared_inputs(a: Tensor) -> Tensor | None:
        return next((squared for own, squared in kept if _is_same(own, a)), None)

    return {"forward": forward, "squared_inputs": squared_inputs}


def _group_norm(layer: nn.GroupNorm) -> Methods:
    last: list[ChannelSums] = []

    def way(x: Tensor) -> Passed | None:
        passed = group_norm(x, layer)
        # Where nothing is trained before the layer, there is no way back through it.
        if passed is not None and passed.sums is not None and x.requires_grad:
            last.append(passed.sums)
        return passed

    def forward(x: Tensor) -> Tensor:
        last.clear()
        found = _by_hand(x, way)
        return type(layer).forward(layer, x) if found is None else found

    return {"forward": forward, "channel_sums": lambda: last.pop() if last else None}


def _is_narrow(x: Tensor) -> bool:
    """Whether torch computes in float32 and rounds: so may a kernel that is faster, at both ends of it."""
    return x.is_cpu and x.dtype == torch.bfloat16


def _tanh(x: Tensor) -> Tensor:
    if not _is_narrow(x):
        found = _by_hand(x, large_tanh)
        return torch.tanh(x) if found is None else found
    # Whatever the size: of two kernels one may round otherwise, and an example would follow its batch.
    wide = x.float()
    found = _by_hand(wide, dense_tanh) if is_dense(wide) else None
    return (torch.tanh(wide) if found is None else found).to(x.dtype)


def _max_pool(layer: nn.MaxPool2d) -> Prepare | None:
    kernel = pool_window(layer)
    if kernel is None:
        return None

    def forward(x: Tensor) -> Tensor:
        found = _by_hand(x, lambda x: max_pool(x, kernel))
        if found is not None:
            return found
        if _is_narrow(x):
            return forward(x.float()).to(x.dtype)
        return functional.max_pool2d(
            x, layer.kernel_size, layer.stride, layer.padding, layer.dilation
        )

    return lambda: {"forward": forward}


def _by_hand(x: Tensor, way: Way, bias: Tensor | None = None) -> Tensor | None:
    """The output of a way, for autograd to find the way back; of the bias it gets no gradient."""
    passed = way(x)
    return None if passed is None else _ByHand.apply(x, passed, bias)


class _ByHand(Function):
    """What is kept is autograd's to look after: it tells when it was written to."""

    @staticmethod
    def forward(ctx: Any, _x: Tensor, passed: Passed, _bias: Tensor | None) -> Tensor:
        ctx.back = passed.back
        ctx.save_for_backward(*passed.kept)
        return passed.output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None]:
        g = ctx.back(grads[0], *ctx.saved_tensors) if ctx.needs_input_grad[0] else None
        return g, None, None
