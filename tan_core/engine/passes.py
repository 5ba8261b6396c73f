"""The precision of the passes through a model, there and back; of nothing else.

In bfloat16 the products read and write numbers of 8 bits. What enters a layer and the gradient of what
leaves it are kept as they are, rounded, and widened again before anything is made of them: a norm and the
sum that it bounds come from the same numbers in float32, so no rounding of the passes comes between them.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tan_core.errors import ParameterError
from tan_core.models.frozen_batch_norm import FrozenBatchNorm
from tan_core.spec.train import Precision

_PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Torch's autocast rounds what enters them, on every device."""
_NORMS = (nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, FrozenBatchNorm)
"""It widens what enters them on some devices only; on the others what they make would be rounded again."""


@contextmanager
def passes(model: nn.Module, precision: Precision, *, is_cached: bool = True) -> Generator[None]:
    """What a forward pass of a model runs in; a backward pass follows its forward pass.

    Args:
        model: in float32.
        precision: of the passes.
        is_cached: whether weights that are read again need not be rounded again; not under ``torch.func``.
    """
    if precision is Precision.FLOAT32:
        yield
        return
    device = next(model.parameters()).device
    # What a group norm reads on a GPU its own kernel widens, or torch's autocast.
    kinds = _NORMS[1:] if device.type == "cuda" else _NORMS
    norms = [layer for layer in model.modules() if isinstance(layer, kinds)]
    hooks = [norm.register_forward_pre_hook(_widen_arguments) for norm in norms]
    try:
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=is_cached):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def _widen_arguments(_layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(widened(x, torch.float32) if isinstance(x, Tensor) else x for x in args)


def as_read(layer: nn.Module, x: Tensor, precision: Precision) -> Tensor:
    """What a layer will have read of its input: it is this that its gradient is made of."""
    is_rounded = precision is Precision.BFLOAT16 and isinstance(layer, _PRODUCTS)
    return x.to(torch.bfloat16) if is_rounded else x


def widened(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The same numbers, in the type of the sums; indices as they are."""
    return x.to(dtype) if x.is_floating_point() else x


def check_precision(model: nn.Module, precision: Precision) -> None:
    """Refuse passes that are not less precise than the parameters.

    Raises:
        ParameterError: passes in bfloat16 of a model in float64.
    """
    if precision is Precision.FLOAT32:
        return
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != torch.float32:
            raise ParameterError(
                f"parameter {name!r} is {parameter.dtype}: with precision {precision.value} the weights "
                "are float32",
                field="precision",
            )
