"""Ways through layers by hand: there, and back to the input, by kernels or by single operations of torch.

A way is for parameters that stay as they are, and gives no gradient of them: those come from the books. What
autograd keeps and calls for each layer costs as much as the layers themselves where batches are small.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv2d_input

from tan_core.engine import gpu, native
from tan_core.engine.layers.affine import ChannelSums
from tan_core.engine.layers.convolution import kernel_of
from tan_core.engine.onednn import is_faster, product
from tan_core.models.changed import is_refitted
from tan_core.models.relu_group_norm import ReluGroupNorm

_SMALL: Final = 8192
"""Numbers of a convolution's weight that fit into the nearest cache."""

_FEW: Final = 16
_MANY: Final = 512
"""Outputs and inputs of a linear layer for which reading the inputs takes most of the time."""

_LARGE: Final = 4096
"""Numbers above which a kernel of our own takes less than a call of torch's tanh."""

_LARGEST_WINDOW: Final = 256
"""Pixels: the place in the window is one byte."""


class Passed(NamedTuple):
    """One run of a layer."""

    output: Tensor
    kept: tuple[Tensor, ...]
    """What the way back reads."""
    back: Callable[..., Tensor]
    """(gradient of the output, *kept) -> gradient of the input."""
    sums: ChannelSums | None = None
    """Of a group norm: filled on the way back."""
    squared_inputs: Tensor | None = None
    """[V], float64: squared norms of what entered, where they were taken on the way."""


Way: TypeAlias = Callable[[Tensor], Passed | None]
"""None where it cannot read the input: torch says what is wrong with it, or takes a way of its own."""

Prepare: TypeAlias = Callable[[], Way]


class Convolution:
    """A convolution in two dimensions and its weight, laid out for the kernels or for oneDNN.

    Small ones are made by our kernels, faster than oneDNN: their weight stays in the nearest cache. It is
    [I, O] for the way there, and [O, I] for the way back.

    Args:
        layer: what is convolved.
        kernel: its window, where our kernels make it.
        weight: what it convolves with; None: its own.
    """

    def __init__(
        self, layer: nn.Conv2d, kernel: native.Kernel | None, weight: Tensor | None = None
    ) -> None:
        self._layer, self._kernel = layer, kernel
        self.weight = channels_last(layer.weight.detach() if weight is None else weight)
        if kernel is not None:
            self._weight_OI = self.weight.permute(0, 2, 3, 1).flatten(1)
            self._weight_IO = self._weight_OI.t().contiguous()

    def by_kernels(self, x: Tensor) -> Passed | None:
        """Where it is small and they can."""
        kernel, bias = self._kernel, self._layer.bias
        if kernel is None or x.dim() != 4 or x.shape[1] != self.weight.shape[1]:
            return None
        is_read = native.accepts(x, self.weight, *(() if bias is None else (bias,)))
        if not is_read or min(kernel.places(x)) <= 0:
            return None
        shape = x.shape
        output = native.convolution(x, self._weight_IO, bias, kernel)
        return Passed(output, (), lambda g: self._back(g, kernel, shape))

    def by_torch(self, x: Tensor) -> Passed | None:
        """Where its padding is numbers."""
        layer, shape = self._layer, x.shape
        if x.dim() != 4 or isinstance(layer.padding, str) or layer.padding_mode != "zeros":
            return None
        # They take tuples; their annotations know of numbers only.
        how: Any = (layer.stride, layer.padding, layer.dilation, layer.groups)
        output = functional.conv2d(x, self.weight, layer.bias, *how)
        return Passed(output, (), lambda g: conv2d_input(shape, self.weight, g, *how))

    def _back(self, g: Tensor, kernel: native.Kernel, shape: torch.Size) -> Tensor:
        run = shape[1] * (kernel.size[1] if kernel.dilation[1] == 1 else 1)
        if native.is_whole(run):
            return native.convolution_backward(g, self._weight_OI, kernel, shape)
        how: Any = (kernel.stride, kernel.padding, kernel.dilation)
        return conv2d_input(shape, self.weight, g, *how)


def small_kernel(layer: nn.Conv2d) -> native.Kernel | None:
    """The window of a convolution that our kernels make."""
    is_plain = layer.groups == 1 and layer.padding_mode == "zeros" and layer.padding != "same"
    is_small = layer.weight.numel() <= _SMALL and native.is_whole(layer.out_channels)
    if not (is_plain and is_small and native.is_available()):
        return None
    return kernel_of(layer, (0, 0) if isinstance(layer.padding, str) else layer.padding)


def pool_window(layer: nn.MaxPool2d) -> native.Kernel | None:
    """The window of a pool that our kernels make."""
    kernel = native.Kernel(
        size=_pair(layer.kernel_size),
        stride=_pair(layer.stride),
        padding=_pair(layer.padding),
        dilation=_pair(layer.dilation),
    )
    is_plain = kernel.dilation == (1, 1) and not (layer.ceil_mode or layer.return_indices)
    # A window must have a pixel inside; torch says so itself where it has none.
    is_inside = all(2 * pad <= size for pad, size in zip(kernel.padding, kernel.size, strict=True))
    is_known = kernel.size[0] * kernel.size[1] <= _LARGEST_WINDOW
    return kernel if is_plain and is_inside and is_known and native.is_available() else None


def max_pool(x: Tensor, kernel: native.Kernel) -> Passed | None:
    """Torch's own goes through a window pixel by pixel, and keeps eight bytes for each place."""
    if x.dim() != 4 or not native.accepts(x) or min(kernel.places(x)) <= 0:
        return None
    output, place = native.max_pool(x, kernel)
    return Passed(
        output, (x, place), lambda g, x, place: native.max_pool_backward(x, g, place, kernel)
    )


def large_tanh(x: Tensor) -> Passed | None:
    """Torch's own takes seven times as long; of few numbers it costs less than a call of a kernel."""
    if x.numel() < _LARGE or x.dtype != torch.float32 or not (is_dense(x) and native.accepts(x)):
        return None
    return dense_tanh(x)


def dense_tanh(x: Tensor) -> Passed:
    """Of a dense float32 tensor of any size."""
    y = native.hyperbolic_tangent(x)
    return Passed(y, (y,), torch.ops.aten.tanh_backward)


def is_dense(x: Tensor) -> bool:
    """Whether its numbers lie side by side."""
    return x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)


def group_norm(x: Tensor, layer: nn.GroupNorm) -> Passed | None:
    """Torch's own is slow on channels-last images, and on a processor loses digits where the mean is far from 0."""
    is_image = x.dim() == 4 and x.shape[1] == layer.num_channels
    if gpu.reads_norm(x, layer):
        return _group_norm_on_gpu(x, layer)
    if not (is_image and native.accepts(x, *layer.parameters())):
        return None
    scale, sums, rectifies = layer.weight, ChannelSums(), isinstance(layer, ReluGroupNorm)
    entered = x.relu() if rectifies else x
    y, mean, deviation = native.group_norm(entered, layer.num_groups, scale, layer.bias, layer.eps)

    def back(g: Tensor, entered: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        dx, of_scale, of_shift = native.group_norm_backward(
            entered, g, mean, deviation, scale, needs_input=True
        )
        assert dx is not None  # noqa: S101 it was asked for
        sums.of_views = of_scale, of_shift
        return torch.ops.aten.threshold_backward(dx, entered, 0) if rectifies else dx

    return Passed(y, (entered, mean, deviation), back, sums)


def _group_norm_on_gpu(x: Tensor, layer: nn.GroupNorm) -> Passed:
    scale, sums, rectifies = layer.weight, ChannelSums(), isinstance(layer, ReluGroupNorm)
    y, mean, rate = gpu.group_norm(
        x, layer.num_groups, scale, layer.bias, layer.eps, rectifies=rectifies
    )

    def back(g: Tensor, x: Tensor, mean: Tensor, rate: Tensor) -> Tensor:
        dx, *of_channels = gpu.group_norm_backward(g, x, mean, rate, scale, rectifies=rectifies)
        sums.of_views = of_channels[0], of_channels[1]
        return dx

    return Passed(y, (x, mean, rate), back, sums)


def has_few_outputs(layer: nn.Linear) -> bool:
    """Whether the time goes into reading the inputs: their norms are taken on the way."""
    is_small = layer.out_features <= _FEW and layer.in_features >= _MANY
    return is_small and native.is_available()


def few_outputs(x: Tensor, layer: nn.Linear) -> Passed | None:
    """Through a layer of few outputs."""
    if (
        x.dim() != 2
        or x.shape[1] != layer.in_features
        or not native.accepts(x, *layer.parameters())
    ):
        return None
    weight = layer.weight.detach()
    y, squared = native.linear(native.Examples(x.contiguous()), weight, layer.bias)
    return Passed(y, (weight,), torch.matmul, squared_inputs=squared)


def channels_last(x: Tensor) -> Tensor:
    """[N, C, H, W] with its channels last in memory; a copy where there are several.

    A tensor of one channel counts as channels-last already, whatever its strides say, and
    contiguous() would leave it alone: only other strides tell the convolution.
    """
    if x.shape[1] == 1 and x.is_contiguous():
        rows, columns = x.shape[2:]
        return x.as_strided(x.shape, (rows * columns, 1, columns, 1))
    return torch.empty_like(x, memory_format=torch.channels_last).copy_(x)


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    rows, columns = (value, value) if isinstance(value, int) else value
    return rows, columns


def _linear(layer: nn.Linear) -> Prepare:
    if has_few_outputs(layer):
        return lambda: lambda x: few_outputs(x, layer)
    return lambda: _product(layer)


def _product(layer: nn.Linear) -> Way:
    weight, bias = layer.weight.detach(), layer.bias

    def way(x: Tensor) -> Passed | None:
        if x.dtype != weight.dtype or x.shape[-1] != weight.shape[1]:
            return None
        if is_faster(x, weight):
            return Passed(product(x, weight, bias), (), lambda g: product(g, weight.t()))
        return Passed(functional.linear(x, weight, bias), (weight,), torch.matmul)

    return way


def _tanh(x: Tensor) -> Passed | None:
    if (passed := large_tanh(x)) is not None:
        return passed
    y = x.tanh()
    return Passed(y, (y,), torch.ops.aten.tanh_backward)


def _relu(x: Tensor) -> Passed | None:
    y = x.relu()
    return Passed(y, (y,), lambda g, y: torch.ops.aten.threshold_backward(g, y, 0))


def _flatten(x: Tensor) -> Passed | None:
    shape = x.shape
    return Passed(x.flatten(1), (), lambda g: g.view(shape))


def _convolution(layer: nn.Conv2d) -> Prepare:
    kernel = small_kernel(layer)

    def prepare() -> Way:
        own = Convolution(layer, kernel)
        return lambda x: own.by_kernels(x) or own.by_torch(x)

    return prepare


def _max_pool(layer: nn.MaxPool2d) -> Prepare:
    kernel = pool_window(layer)
    return lambda: lambda x: None if kernel is None else max_pool(x, kernel)


def _flatten_layer(layer: nn.Flatten) -> Prepare:
    is_known = (layer.start_dim, layer.end_dim) == (1, -1)
    return lambda: _flatten if is_known else lambda _: None


_KINDS: Final[dict[type[nn.Module], Callable[[Any], Prepare]]] = {
    nn.Conv2d: _convolution,
    nn.Linear: _linear,
    nn.GroupNorm: lambda layer: lambda: lambda x: group_norm(x, layer),
    ReluGroupNorm: lambda layer: lambda: lambda x: group_norm(x, layer),
    nn.MaxPool2d: _max_pool,
    nn.Flatten: _flatten_layer,
    nn.Tanh: lambda _: lambda: _tanh,
    nn.ReLU: lambda _: lambda: _relu,
    nn.Identity: lambda _: lambda: lambda x: Passed(x, (), lambda g: g),
}


def way_through(layer: nn.Module) -> Prepare | None:
    """Makes the way through a layer, anew when its parameters change; None where its very type has none, or it was refitted."""
    kind = _KINDS.get(type(layer))
    return None if kind is None or is_refitted(layer) else kind(layer)
