"""Faster ways through layers while books are kept: the same numbers up to rounding, there and back.

What depends on parameters alone is computed once for all the microbatches of a step. Parameters get
their gradients from the books, so the ways here have a gradient of the input only.
"""

# Shape legend: V = views, C = channels.
import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional
from torch.nn.grad import conv2d_input

from tan_core.engine import native, onednn
from tan_core.engine.layers.affine import ChannelSums
from tan_core.engine.layers.convolution import kernel_of
from tan_core.models.weight_standardised import WeightStandardisedConv2d

Methods = dict[str, Callable[..., Any]]
"""By name: what stands for methods of a layer while its parameters stay as they are."""
Prepare = Callable[[], Methods]

_FEW: Final = 16
_MANY: Final = 512
"""Outputs and inputs of a linear layer for which reading the inputs takes most of the time."""

_LARGE: Final = 4096
"""Numbers above which the tangents of torch cost more than a function of our own."""

_SMALL: Final = 8192
"""Numbers of a convolution's weight that fit into the nearest cache."""

_LARGEST_WINDOW: Final = 256
"""Pixels: the place in the window is one byte."""


def fast_methods(layer: nn.Module, *, is_channels_last: bool) -> Prepare | None:
    """Methods for one layer, made anew when its parameters change; None where its own are as good.

    Args:
        layer: any; a subclass of a known kind keeps its own methods.
        is_channels_last: whether images are laid out so.
    """
    if "forward" in vars(layer):
        return None
    if type(layer) is nn.Linear:
        return _few_outputs(layer) or (lambda: {"forward": _linear(layer)})
    if type(layer) is nn.GroupNorm and native.is_available():
        return lambda: _group_norm(layer)
    if type(layer) is nn.Conv2d and is_channels_last:
        return _convolution(layer)
    if type(layer) is nn.MaxPool2d and is_channels_last and native.is_available():
        return None if layer.ceil_mode or layer.return_indices else _max_pool(layer)
    if type(layer) is nn.Tanh and native.is_available():
        return lambda: {"forward": _tanh}
    if type(layer) is WeightStandardisedConv2d:
        return lambda: {"standardised": _standardised(layer, is_channels_last=is_channels_last)}
    return None


def channels_last(x: Tensor) -> Tensor:
    """[N, C, H, W] with its channels last in memory; a copy where there are several.

    A tensor of one channel counts as channels-last already, whatever its strides say, and
    contiguous() would leave it alone: only other strides tell the convolution.
    """
    if x.shape[1] == 1 and x.is_contiguous():
        rows, columns = x.shape[2:]
        return x.as_strided(x.shape, (rows * columns, 1, columns, 1))
    return torch.empty_like(x, memory_format=torch.channels_last).copy_(x)


def _linear(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        if onednn.is_faster(x, layer.weight):
            return onednn.linear(x, layer.weight, layer.bias)
        return functional.linear(x, layer.weight, layer.bias)

    return forward


def _convolution(layer: nn.Conv2d) -> Prepare:
    kernel = _small_kernel(layer)

    @torch.no_grad()
    def prepare() -> Methods:
        weight = channels_last(layer.weight)
        # The layer's own forward knows its padding; this is all that it does.
        convolved = layer._conv_forward  # pyright: ignore[reportPrivateUsage]
        if kernel is None:
            return {"forward": lambda x: convolved(x, weight, layer.bias)}
        ours = _SmallConvolution(kernel, weight)

        def forward(x: Tensor) -> Tensor:
            if ours.accepts(x, layer.bias):
                return _Convolution.apply(x, ours, layer.bias)
            return convolved(x, weight, layer.bias)

        return {"forward": forward}

    return prepare


def _small_kernel(layer: nn.Conv2d) -> native.Kernel | None:
    """Of a convolution that our kernels make faster than oneDNN: its weight stays in the nearest cache."""
    is_plain = layer.groups == 1 and layer.padding_mode == "zeros" and layer.padding != "same"
    is_small = layer.weight.numel() <= _SMALL and native.is_whole(layer.out_channels)
    if not (is_plain and is_small and native.is_available()):
        return None
    return kernel_of(layer, (0, 0) if isinstance(layer.padding, str) else layer.padding)


class _SmallConvolution:
    """The weight of one, laid out for the way there, [I, O], and the way back, [O, I]."""

    def __init__(self, kernel: native.Kernel, weight: Tensor) -> None:
        self.kernel, self.weight = kernel, weight
        self.weight_OI = weight.permute(0, 2, 3, 1).flatten(1)
        self.weight_IO = self.weight_OI.t().contiguous()

    def accepts(self, x: Tensor, bias: Tensor | None) -> bool:
        """Whether they fit; torch says what is wrong where they do not."""
        if x.dim() != 4 or x.shape[1] != self.weight.shape[1] or min(self.kernel.places(x)) <= 0:
            return False
        return native.accepts(x, self.weight, *(() if bias is None else (bias,)))

    def gradient(self, g: Tensor, shape: torch.Size) -> Tensor:
        """Of the input."""
        kernel = self.kernel
        run = shape[1] * (kernel.size[1] if kernel.dilation[1] == 1 else 1)
        if native.is_whole(run):
            return native.convolution_backward(g, self.weight_OI, kernel, shape)
        # It takes tuples; its annotations know of numbers only.
        how: Any = (kernel.stride, kernel.padding, kernel.dilation)
        return conv2d_input(shape, self.weight, g, *how)


class _Convolution(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, own: _SmallConvolution, bias: Tensor | None) -> Tensor:
        ctx.own, ctx.shape = own, x.shape
        return native.convolution(x, own.weight_IO, bias, own.kernel)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None]:
        if not ctx.needs_input_grad[0]:
            return None, None, None
        return ctx.own.gradient(grads[0], ctx.shape), None, None


@torch.no_grad()
def _standardised(
    layer: WeightStandardisedConv2d, *, is_channels_last: bool
) -> Callable[[], tuple[Tensor, ...]]:
    value = layer.standardised()
    if is_channels_last:
        value = value._replace(weight=channels_last(value.weight))
    return lambda: value


def _is_same(own: Tensor, other: Tensor) -> bool:
    """Whether both are the same numbers in the same place; the one that is kept keeps the place."""
    return (
        own.data_ptr() == other.data_ptr()
        and own.shape == other.shape
        and own.stride() == other.stride()
    )


def _few_outputs(layer: nn.Linear) -> Prepare | None:
    """With few outputs the time goes into reading the inputs: their norms are taken on the way."""
    if layer.out_features > _FEW or layer.in_features < _MANY or not native.is_available():
        return None

    def prepare() -> Methods:
        kept: list[tuple[Tensor, Tensor]] = []

        def forward(x: Tensor) -> Tensor:
            kept.clear()
            if x.dim() != 2 or not native.accepts(x, *layer.parameters()):
                return functional.linear(x, layer.weight, layer.bias)
            y, squared_V = _Linear.apply(x, layer.weight, layer.bias)
            kept.append((x.detach(), squared_V))
            return y

        def squared_inputs(a: Tensor) -> Tensor | None:
            return next((squared for own, squared in kept if _is_same(own, a)), None)

        return {"forward": forward, "squared_inputs": squared_inputs}

    return prepare


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        y, squared = native.linear(native.Examples(x.contiguous()), weight, bias)
        ctx.save_for_backward(weight)
        ctx.mark_non_differentiable(squared)
        return y, squared

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        return grads[0] @ weight, None, None


def _group_norm(layer: nn.GroupNorm) -> Methods:
    last: list[ChannelSums] = []

    def forward(x: Tensor) -> Tensor:
        last.clear()
        is_image = x.dim() == 4 and x.shape[1] == layer.num_channels
        if not (is_image and native.accepts(x, *layer.parameters())):
            return functional.group_norm(x, layer.num_groups, layer.weight, layer.bias, layer.eps)
        sums = ChannelSums()
        # Where nothing is trained before the layer, there is no way back through it.
        if x.requires_grad:
            last.append(sums)
        return _GroupNorm.apply(x, layer, sums)

    return {"forward": forward, "channel_sums": lambda: last.pop() if last else None}


class _GroupNorm(Function):
    """Torch's own is slow on channels-last images and loses digits where the mean is far from 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: nn.GroupNorm, sums: ChannelSums) -> Tensor:
        y, mean, deviation = native.group_norm(
            x, layer.num_groups, layer.weight, layer.bias, layer.eps
        )
        ctx.sums = sums
        ctx.save_for_backward(x, mean, deviation, layer.weight)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None]:
        x, mean, deviation, scale = ctx.saved_tensors
        dx, of_scale, of_shift = native.group_norm_backward(
            x, grads[0], mean, deviation, scale, needs_input=True
        )
        ctx.sums.of_views = of_scale, of_shift
        return dx, None, None


def _is_narrow(x: Tensor) -> bool:
    """Whether torch computes in float32 and rounds: so may a kernel that is faster, at both ends of it."""
    return x.is_cpu and x.dtype == torch.bfloat16


def _tanh(x: Tensor) -> Tensor:
    if _is_narrow(x):
        # Whatever the size: of two kernels one may round otherwise, and an example would follow its batch.
        wide = x.float()
        return (_Tanh.apply(wide) if _is_dense(wide) else torch.tanh(wide)).to(x.dtype)
    if x.numel() >= _LARGE and x.dtype == torch.float32 and _is_dense(x) and native.accepts(x):
        return _Tanh.apply(x)
    return torch.tanh(x)


def _is_dense(x: Tensor) -> bool:
    return x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)


class _Tanh(Function):
    """Torch's own takes seven times as long."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = native.hyperbolic_tangent(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(grads[0], y)


def _max_pool(layer: nn.MaxPool2d) -> Prepare | None:
    kernel = native.Kernel(
        size=_pair(layer.kernel_size),
        stride=_pair(layer.stride),
        padding=_pair(layer.padding),
        dilation=_pair(layer.dilation),
    )
    # A window must have a pixel inside; torch says so itself where it has none.
    is_inside = all(2 * pad <= size for pad, size in zip(kernel.padding, kernel.size, strict=True))
    if math.prod(kernel.size) > _LARGEST_WINDOW or kernel.dilation != (1, 1) or not is_inside:
        return None

    def forward(x: Tensor) -> Tensor:
        if x.dim() == 4 and min(kernel.places(x)) > 0 and native.accepts(x):
            return _MaxPool.apply(x, kernel)
        if _is_narrow(x):
            return forward(x.float()).to(x.dtype)
        return functional.max_pool2d(
            x, layer.kernel_size, layer.stride, layer.padding, layer.dilation
        )

    return lambda: {"forward": forward}


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    rows, columns = (value, value) if isinstance(value, int) else value
    return rows, columns


class _MaxPool(Function):
    """Torch's own goes through a window pixel by pixel, and keeps eight bytes for each place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: native.Kernel) -> Tensor:
        y, place = native.max_pool(x, kernel)
        ctx.kernel = kernel
        ctx.save_for_backward(x, place)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        x, place = ctx.saved_tensors
        return native.max_pool_backward(x, grads[0], place, ctx.kernel), None
