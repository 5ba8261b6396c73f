"""Clipped sums by book-keeping: one backward pass, per-example norms per layer, one weighted sum.

The forward pass keeps what enters each layer, the backward pass only reaches the layers' outputs, and
the two together give every per-example norm. The K views of an example are folded into the positions
that a layer sums over, so they cost no gradient of their own.
"""

# Shape legend: B = examples, K = views of each, V = B * K, T = positions, I and O = features in and out.
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

_BLOCK = 4096

Weighted = Callable[[Tensor], tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class LayerGradients:
    """The gradients of one layer, without all of them at once."""

    squared_norms: Tensor
    """[B], float64."""
    weighted_sum: Weighted
    """[B] weights -> the weighted sum per parameter, in the layer's own order."""


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
    """Whether every layer with parameters is one that the books can be kept for, all trainable."""
    return all(
        _keeps_books(layer) and all(p.requires_grad for p in layer.parameters(recurse=False))
        for layer in model.modules()
        if _has_parameters(layer)
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
        RuntimeError: a layer did not run exactly once, so its norms would be wrong.
    """
    with torch.enable_grad(), _tape(model) as tape:
        logits = functional_call(model, *_laid_out(model, inputs))
        losses_V = functional.cross_entropy(
            logits, labels.repeat_interleave(views), reduction="none"
        )
        outputs = [output for _, _, _, output in tape]
        gradients = torch.autograd.grad(losses_V.sum() / views, outputs)
    expected = [name for name, layer in model.named_modules() if _has_parameters(layer)]
    if sorted(name for name, _, _, _ in tape) != sorted(expected):
        raise RuntimeError(f"layers {expected} must each run once, ran {[r[0] for r in tape]}")
    kept = {
        name: (layer, _layer_gradients(layer, entered, gradient, views))
        for (name, layer, entered, _), gradient in zip(tape, gradients, strict=True)
    }
    squared = torch.stack([layer_kept.squared_norms for _, layer_kept in kept.values()])

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        return {
            f"{name}.{own}" if name else own: value
            for name, (layer, layer_kept) in kept.items()
            for (own, _), value in zip(
                layer.named_parameters(recurse=False),
                layer_kept.weighted_sum(weights_B),
                strict=True,
            )
        }

    return BatchGradients(
        norms=squared.sum(0).sqrt(),
        losses=losses_V.detach().view(-1, views).mean(1),
        weighted_sum=weighted_sum,
    )


def _has_parameters(layer: nn.Module) -> bool:
    return next(layer.parameters(recurse=False), None) is not None


def _has_bias(layer: nn.Module) -> bool:
    return getattr(layer, "bias", None) is not None


def _keeps_books(layer: nn.Module) -> bool:
    # A subclass may compute anything, so the type must be the very one.
    if type(layer) is nn.Conv2d:
        return layer.groups == 1 and layer.padding_mode == "zeros" and _has_numeric_padding(layer)
    return type(layer) in (nn.Linear, nn.GroupNorm)


def _has_numeric_padding(layer: nn.Conv2d) -> bool:
    return not isinstance(cast("Any", layer.padding), str)


def _laid_out(model: nn.Module, inputs: Tensor) -> tuple[dict[str, Tensor], tuple[Tensor]]:
    """Detached parameters and the inputs, channels-last: pools and convolutions are faster so.

    Not with group norms: torch's channels-last group norm is less precise on the CPU.
    """
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    if inputs.dim() != 4 or any(isinstance(layer, nn.GroupNorm) for layer in model.modules()):
        return parameters, (inputs,)
    # A tensor of one channel counts as channels-last already, whatever its strides say, and
    # contiguous() would leave it alone: only a new tensor tells the convolution.
    last = {
        name: torch.empty_like(p, memory_format=torch.channels_last).copy_(p) if p.dim() == 4 else p
        for name, p in parameters.items()
    }
    return last, (torch.empty_like(inputs, memory_format=torch.channels_last).copy_(inputs),)


Record = tuple[str, nn.Module, Tensor, Tensor]
"""Name, layer, what entered it, what left it."""


@contextmanager
def _tape(model: nn.Module) -> Generator[list[Record]]:
    """Records every layer with parameters while the block runs."""
    records: list[Record] = []

    def record(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def hook(layer: nn.Module, entered: tuple[Tensor, ...], output: Tensor) -> None:
            if not output.requires_grad:
                output.requires_grad_(True)
            records.append((name, layer, entered[0].detach(), output))

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


def _layer_gradients(layer: nn.Module, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    if isinstance(layer, nn.Linear) and a.dim() == 2:
        return _linear(layer, a, g, views)
    if isinstance(layer, nn.Conv2d):
        return _convolution(layer, a, g, views)
    if isinstance(layer, nn.GroupNorm):
        return _group_norm(layer, a, g, views)
    raise RuntimeError(f"{type(layer).__name__} on inputs of {a.dim()} dimensions is not supported")


def _linear(layer: nn.Linear, a_VI: Tensor, g_VO: Tensor, views: int) -> LayerGradients:
    """The norm of an outer product is the product of the norms; K of them need a K x K table."""
    ones = 1.0 if _has_bias(layer) else 0.0
    if views == 1:
        squared_B = squared_norms(g_VO) * (squared_norms(a_VI) + ones)
    else:
        # Views may cancel each other: in float32 the difference could be lost.
        a = a_VI.double().unflatten(0, (-1, views))
        g = g_VO.double().unflatten(0, (-1, views))
        table_BKK = (a @ a.mT + ones) * (g @ g.mT)
        squared_B = table_BKK.sum((1, 2)).clamp_min(0)

    def weighted_sum(weights_B: Tensor) -> tuple[Tensor, ...]:
        weighted_VO = g_VO * weights_B.repeat_interleave(views)[:, None]
        weight = weighted_VO.t() @ a_VI
        return (weight, weighted_VO.sum(0)) if _has_bias(layer) else (weight,)

    return LayerGradients(squared_B, weighted_sum)


def _convolution(layer: nn.Conv2d, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    """Per-example kernels as one product of patches and output gradients over K * T positions."""
    g_BTO = g.permute(0, 2, 3, 1).flatten(1, 2).reshape(len(g) // views, -1, g.shape[1])
    patches_BTI = _patches(layer, a).reshape(*g_BTO.shape[:2], -1)
    kernels_BOI = torch.bmm(g_BTO.mT, patches_BTI)
    kernels_BP = kernels_BOI.flatten(1)
    squared_B = squared_norms(kernels_BP)
    bias_BO = None
    if _has_bias(layer):
        bias_BO = g_BTO.sum(1)
        squared_B = squared_B + squared_norms(bias_BO)
    rows, columns = layer.kernel_size

    def weighted_sum(weights_B: Tensor) -> tuple[Tensor, ...]:
        kernel = (weights_B @ kernels_BP).view(-1, rows, columns, layer.in_channels)
        weight = kernel.permute(0, 3, 1, 2)
        return (weight,) if bias_BO is None else (weight, weights_B @ bias_BO)

    return LayerGradients(squared_B, weighted_sum)


def _patches(layer: nn.Conv2d, a: Tensor) -> Tensor:
    """What the kernel sees at each position: [V, rows out, columns out, kernel rows * columns * I]."""
    top, left = (int(p) for p in layer.padding)
    down, right = layer.stride
    step_down, step_right = layer.dilation
    rows, columns = layer.kernel_size
    x = functional.pad(a.permute(0, 2, 3, 1), (0, 0, left, left, top, top)).contiguous()
    num, height, width, channels = x.shape
    seen = x.as_strided(
        (
            num,
            (height - step_down * (rows - 1) - 1) // down + 1,
            (width - step_right * (columns - 1) - 1) // right + 1,
            rows,
            columns,
            channels,
        ),
        (
            height * width * channels,
            down * width * channels,
            right * channels,
            step_down * width * channels,
            step_right * channels,
            1,
        ),
    )
    return seen.flatten(3)


def _group_norm(layer: nn.GroupNorm, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    """Scale and shift see the normalised input and the output gradient, summed over K * T."""
    normalised = functional.group_norm(a, layer.num_groups, eps=layer.eps)
    scale_BO = _views_as_positions((g * normalised).flatten(2), views).sum(2)
    shift_BO = _views_as_positions(g.flatten(2), views).sum(2)

    def weighted_sum(weights_B: Tensor) -> tuple[Tensor, ...]:
        return weights_B @ scale_BO, weights_B @ shift_BO

    return LayerGradients(squared_norms(scale_BO) + squared_norms(shift_BO), weighted_sum)


def _views_as_positions(x_VCT: Tensor, views: int) -> Tensor:
    """[B * K, C, T] -> [B, C, K * T]."""
    if views == 1:
        return x_VCT
    return x_VCT.unflatten(0, (-1, views)).transpose(1, 2).flatten(2)


def squared_norms(x_BP: Tensor) -> Tensor:
    """Squared norm of each row, float64.

    A million squares added up in one float32 lose 3e-5 of the norm, and a norm that is too small
    lets an example through that is too large: blocks are summed in float32, the rest in float64.
    """
    whole = x_BP.shape[1] // _BLOCK * _BLOCK
    blocks_BNP = x_BP[:, :whole].unflatten(1, (-1, _BLOCK)) if whole else x_BP[:, None, :0]
    pieces = (
        torch.linalg.vector_norm(blocks_BNP, dim=2),
        torch.linalg.vector_norm(x_BP[:, None, whole:], dim=2),
    )
    return torch.cat(pieces, dim=1).to(torch.float64).square().sum(1)
