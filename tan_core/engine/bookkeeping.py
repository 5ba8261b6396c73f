"""Clipped sums by book-keeping: one backward pass, per-example norms per layer, one weighted sum.

The forward pass keeps what enters each layer, the backward pass only reaches the layers' outputs, and
the two together give every per-example norm. The K views of an example are folded into the positions
that a layer sums over, so they cost no gradient of their own.

References:
    Goodfellow (2015), arXiv:1510.01799; Bu, Wang, Zha and Karypis (2023), arXiv:2210.00038.
"""

# Shape legend: B = examples, K = views of each, V = B * K.
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from tan_core.engine.layers import is_known, layer_gradients
from tan_core.engine.layout import laid_out
from tan_core.engine.onednn import fast_linear


@dataclass(frozen=True, slots=True)
class BatchGradients:
    """The gradients of one batch."""

    norms: Tensor
    """[B], float64."""
    losses: Tensor
    """[B]: mean over the views."""
    weighted_sum: Callable[[Tensor], dict[str, Tensor]]
    """[B] weights -> the weighted sum by parameter name."""


def supports(model: nn.Module) -> bool:
    """Whether books can be kept for every layer with parameters, all trainable, none shared.

    A layer that works in place would overwrite what the books rest on.
    """
    named = list(model.named_parameters(remove_duplicate=False))
    return (
        all(parameter.requires_grad for _, parameter in named)
        and len(named) == len(list(model.parameters()))
        and all(
            is_known(layer) if _has_parameters(layer) else not getattr(layer, "inplace", False)
            for layer in model.modules()
        )
    )


def batch_gradients(
    model: nn.Module, inputs: Tensor, labels: Tensor, *, views: int
) -> BatchGradients:
    """Norms, losses and weighted sums of the gradients of one batch.

    Args:
        model: one that :func:`supports` accepts.
        inputs: [B * K, ...]; the K views of an example stand together.
        labels: [B].
        views: K.

    Raises:
        RuntimeError: a layer did not run exactly once, does not have the views as first dimension,
            or its input or output was changed in place: its norms would be wrong.
    """
    with torch.enable_grad(), fast_linear(model, num_rows=len(inputs)), _tape(model) as tape:
        logits = functional_call(model, *laid_out(model, inputs))
        losses_V = functional.cross_entropy(
            logits, labels.repeat_interleave(views), reduction="none"
        )
        _check(model, tape, num_views=len(inputs))
        outputs = [record.output for record in tape]
        gradients = torch.autograd.grad(losses_V.sum() / views, outputs)
    kept = {
        record.name: layer_gradients(record.layer, record.entered, gradient, views)
        for record, gradient in zip(tape, gradients, strict=True)
    }

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        return {
            f"{name}.{own}" if name else own: value
            for name, of_layer in kept.items()
            for own, value in of_layer.weighted_sum(weights_B).items()
        }

    squared = torch.stack([of_layer.squared_norms for of_layer in kept.values()])
    return BatchGradients(
        norms=squared.sum(0).sqrt(),
        losses=losses_V.detach().view(-1, views).mean(1),
        weighted_sum=weighted_sum,
    )


@dataclass(frozen=True, slots=True)
class _Record:
    """One run of one layer."""

    name: str
    layer: nn.Module
    entered: Tensor
    output: Tensor
    versions: tuple[int, int]
    """Of both tensors while the layer ran: writing to them counts up."""


@contextmanager
def _tape(model: nn.Module) -> Generator[list[_Record]]:
    """Records every layer with parameters while the block runs."""
    records: list[_Record] = []

    def record(name: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def hook(layer: nn.Module, entered: tuple[Any, ...], output: Tensor) -> None:
            if len(entered) != 1:
                raise RuntimeError(f"layer {name!r} must be called with one positional argument")
            if not output.requires_grad:
                output.requires_grad_(True)
            versions = (entered[0]._version, output._version)
            records.append(_Record(name, layer, entered[0].detach(), output, versions))

        return hook

    handles = [
        layer.register_forward_hook(record(name))
        for name, layer in model.named_modules()
        if _has_parameters(layer)
    ]
    try:
        yield records
    finally:
        for handle in handles:
            handle.remove()


def _check(model: nn.Module, tape: list[_Record], *, num_views: int) -> None:
    """Every parameter gets its norm in this very step, and from what the layer really saw."""
    expected = [name for name, layer in model.named_modules() if _has_parameters(layer)]
    ran = [record.name for record in tape]
    if sorted(ran) != sorted(expected):
        raise RuntimeError(f"layers {expected} must each run once, ran {ran}")
    for record in tape:
        if not len(record.entered) == len(record.output) == num_views:
            raise RuntimeError(
                f"layer {record.name!r} must have the {num_views} views as first dimension, "
                f"got {list(record.entered.shape)}"
            )
        if record.versions != (record.entered._version, record.output._version):
            raise RuntimeError(
                f"what enters or leaves layer {record.name!r} must not be changed in place"
            )


def _has_parameters(layer: nn.Module) -> bool:
    return next(layer.parameters(recurse=False), None) is not None
