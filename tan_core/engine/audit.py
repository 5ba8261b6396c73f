"""A second opinion on a step: norms of a few examples by plain autograd, each alone."""

# Shape legend: B = examples, K = views of each.
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core import _validate
from tan_core.engine.gradients import clipped_sum

_TOLERANCE = 1e-3


def audit(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    views: int,
    *,
    num_examples: int,
    generator: torch.Generator,
) -> float:
    """Greatest relative difference between a batch's norms and those of plain autograd.

    Norms that are too small let examples pass unclipped, and the privacy guarantee is void without a
    sign of it. What no rule about layers can see shows here: a forward pass that mixes the examples
    of a batch, uses a parameter outside its layer, or a kernel that reads its input wrongly.

    ==================  ==============================
    Edge case           Result
    ==================  ==============================
    empty batch         0
    non-finite norm     0 if non-finite in both ways
    ==================  ==============================

    Args:
        model: as for :func:`~tan_core.engine.gradients.clipped_sum`.
        inputs: [B * K, ...]; the K views of an example stand together.
        labels: [B], int64.
        views: K >= 1.
        num_examples: how many of the batch to check, at least 1; all of a smaller batch.
        generator: picks them; on the CPU.

    Raises:
        ParameterError: ``num_examples`` is below 1, or the counts do not fit each other.
        RuntimeError: a norm is off by more than a thousandth.

    Example:
        >>> inputs, labels = torch.ones(2, 3), torch.tensor([0, 1])
        >>> generator = torch.Generator().manual_seed(0)
        >>> audit(nn.Linear(3, 2), inputs, labels, 1, num_examples=2, generator=generator) < 1e-5
        True
    """
    _validate.positive_integer(num_examples=num_examples)
    kept_B = clipped_sum(model, inputs, labels, clip_norm=1.0, views=views).norms.tolist()
    picked = torch.randperm(len(labels), generator=generator)[:num_examples].tolist()
    greatest = 0.0
    for example in picked:
        own = inputs[example * views : (example + 1) * views].contiguous()
        truth = _norm(model, own, labels[example])
        off = _relative_difference(kept_B[example], truth)
        if not off <= _TOLERANCE:
            raise RuntimeError(
                f"example {example} of the batch has a gradient of norm {truth:.6g}, the engine "
                f"clipped it as {kept_B[example]:.6g}: this model cannot be trained privately"
            )
        greatest = max(greatest, off)
    return greatest


def _norm(model: nn.Module, inputs_K: Tensor, label: Tensor) -> float:
    parameters = [p for p in model.parameters() if p.requires_grad]
    with torch.enable_grad():
        loss = functional.cross_entropy(model(inputs_K), label.expand(len(inputs_K)))
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return float(torch.stack([g.double().square().sum() for g in gradients]).sum().sqrt())


def _relative_difference(kept: float, truth: float) -> float:
    if kept == truth or not (math.isfinite(kept) or math.isfinite(truth)):
        return 0.0
    return abs(kept - truth) / max(abs(truth), torch.finfo(torch.float32).tiny)
