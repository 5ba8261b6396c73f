"""Matrix products by oneDNN where they are faster: on some processors twice as fast as torch's own."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_SMALLEST = 500_000
"""Multiply-adds below which the call costs more than it saves."""

_WORTH_LOOKING = 5_000_000
"""Multiply-adds of the largest layer below which looking at every call costs more than it saves."""


def product(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Inputs times the transposed weight, plus the bias: [N, O]."""
    if _is_faster(x_NI, weight_OI):
        return torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")
    return functional.linear(x_NI, weight_OI, bias_O)


def _is_faster(x: Tensor, weight: Tensor) -> bool:
    # The operator is not part of torch's public interface: without it, torch's own product is used.
    return (
        hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and x.dim() == 2
        and x.device.type == weight.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and len(x) * weight.numel() >= _SMALLEST
    )


def fast_linear(model: nn.Module, *, num_rows: int) -> AbstractContextManager[object]:
    """A context in which linear layers use :func:`product`, where the model has one large enough."""
    largest = max(
        (layer.weight.numel() for layer in model.modules() if isinstance(layer, nn.Linear)),
        default=0,
    )
    return FastLinear() if num_rows * largest >= _WORTH_LOOKING else nullcontext()


class FastLinear(TorchFunctionMode):
    """Lets linear layers whose parameters need no gradient use :func:`product`, there and back."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """The product in place of ``functional.linear``; all else as it is."""
        del types
        if func is functional.linear and len(args) == 3 and _is_faster(args[0], args[1]):
            _, weight_OI, bias_O = args
            if not (weight_OI.requires_grad or (bias_O is not None and bias_O.requires_grad)):
                return _Product.apply(*args)
        return func(*args, **(kwargs or {}))


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight_OI)
        return product(x_NI, weight_OI, bias_O)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (weight_OI,) = ctx.saved_tensors
        return product(grads[0].contiguous(), weight_OI.t()), None, None
