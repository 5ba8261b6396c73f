"""Matrix products by oneDNN where they are faster: on some processors twice as fast as torch's own."""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tan_core.engine.timing import least_seconds

_SMALLEST = 500_000
"""Multiply-adds below which the call costs more than it saves, however fast."""

_SMALLEST_OF_ITS_SIZE = 8_000_000
"""The same for sizes that may not come again: for each new one oneDNN makes code, in some 700 microseconds."""

_LARGE, _LARGE_OF_ITS_SIZE = 130_000_000, 500_000_000
"""From where on that costs next to nothing, so that a little faster is enough."""

_STEP = 16
"""Physical batches that are full are mostly a multiple of it; what is left of a draw has any size."""

_MUCH, _A_LITTLE = 1.3, 1.05
"""Times faster: there and back it also copies where torch does not, which large products do not feel."""


def product(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Inputs times the transposed weight, plus the bias: [N, O]."""
    if is_faster(x_NI, weight_OI):
        return _by_onednn(x_NI.contiguous(), weight_OI, bias_O)
    return functional.linear(x_NI, weight_OI, bias_O)


def is_faster(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN is there and faster, can read the tensors, and they are large enough."""
    # The operator is not part of torch's public interface: without it, torch's own product is used.
    if x.dim() != 2:
        return False
    # The batch is the rows, or what is summed over.
    comes_again = x.shape[0] % _STEP == 0 and x.shape[1] % _STEP == 0
    smallest = _SMALLEST if comes_again else _SMALLEST_OF_ITS_SIZE
    large = _LARGE if comes_again else _LARGE_OF_ITS_SIZE
    multiplications = x.shape[0] * weight.numel()
    return (
        multiplications >= smallest
        and x.is_cpu
        and weight.is_cpu
        and x.dtype == weight.dtype == torch.float32
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and times_faster_here() >= (_A_LITTLE if multiplications >= large else _MUCH)
    )


@cache
def times_faster_here() -> float:
    """How many times as fast as torch's own oneDNN's product is on this processor, found out once, in some 20 ms."""
    x, weight = torch.ones(2, 256, 1024, dtype=torch.float32).unbind()
    own = least_seconds(lambda: functional.linear(x, weight))
    return own / least_seconds(lambda: _by_onednn(x, weight, None))


def _by_onednn(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")


def linear(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """:func:`product` for parameters that need no gradient; the input's is by :func:`product` too."""
    return _Product.apply(x_NI, weight_OI, bias_O)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight_OI)
        return product(x_NI, weight_OI, bias_O)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (weight_OI,) = ctx.saved_tensors
        return product(grads[0], weight_OI.t()), None, None
