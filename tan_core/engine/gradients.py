"""Per-example gradients, clipped and summed: the one place where sensitivity is bounded."""

# Shape legend: B = examples (varies, may be 0), K = views of each, P = parameters, flattened.
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional

from tan_core import _validate
from tan_core.engine import bookkeeping
from tan_core.engine.bookkeeping import BatchGradients
from tan_core.engine.clipping import ClippingRule, per_example_clipping
from tan_core.engine.layers.base import squared_norms
from tan_core.errors import ParameterError

_BATCH_NORMS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
    nn.LazyBatchNorm1d,
    nn.LazyBatchNorm2d,
    nn.LazyBatchNorm3d,
)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


@dataclass(frozen=True, slots=True)
class ClippedSum:
    """What one batch gives away before the noise."""

    sum: Tensor
    """[P]: sum of the clipped per-example gradients, parameters in the model's own order."""
    norms: Tensor
    """[B]: norms before clipping; non-finite where the example was left out."""
    losses: Tensor
    """[B]: mean loss over the K views."""


def clipped_sum(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    *,
    clip_norm: float,
    views: int = 1,
    microbatch_size: int = 256,
    rule: ClippingRule = per_example_clipping,
) -> ClippedSum:
    r"""Sum of per-example gradients, each averaged over its views and then clipped once.

    .. math::

        \sum_i \operatorname{clip}_C\Big(\frac{1}{K} \sum_{j=1}^{K} g_{ij}\Big),
        \qquad \operatorname{clip}_C(v) = v \min(1, C / \lVert v \rVert).

    Formal guarantees:

    * Leaving out any one example moves the sum by at most ``clip_norm``, up to float rounding, if the
      ``rule`` bounds it at all.
    * An example with a non-finite gradient or loss contributes exactly zero.
    * ``microbatch_size`` changes nothing beyond float rounding.

    Args:
        model: passes :func:`check_model`.
        inputs: [B * K, ...]; the K views of an example stand together.
        labels: [B], int64.
        clip_norm: :math:`C > 0`.
        views: K >= 1.
        microbatch_size: views in memory at once, at least the K of one example.
        rule: what stands for :math:`\min(1, C / \lVert v \rVert)` above.

    Raises:
        ParameterError: the counts do not fit each other.
    """
    _validate.positive(clip_norm=clip_norm)
    _validate.positive_integer(views=views, microbatch_size=microbatch_size)
    if len(inputs) != views * len(labels):
        raise ParameterError(
            f"inputs must hold {views} views of each of {len(labels)} examples, got {len(inputs)}",
            field="inputs",
        )
    names = {name: p.numel() for name, p in model.named_parameters() if p.requires_grad}
    like = next(p for p in model.parameters() if p.requires_grad)
    total_P = like.new_zeros(sum(names.values()), requires_grad=False)
    norms_B = total_P.new_empty(len(labels))
    losses_B = torch.empty_like(norms_B)
    gradients = bookkeeping.batch_gradients if bookkeeping.supports(model) else batch_gradients
    examples_at_once = max(1, microbatch_size // views)
    for start in range(0, len(labels), examples_at_once):
        chunk = slice(start, start + examples_at_once)
        of_views = slice(start * views, (start + examples_at_once) * views)
        batch = gradients(model, inputs[of_views], labels[chunk], views=views)
        norms_B[chunk], losses_B[chunk] = batch.norms, batch.losses
        is_finite_B = batch.norms.isfinite() & batch.losses.isfinite()
        if not bool(is_finite_B.all()):
            # 0 * NaN is NaN: such examples are taken out of the batch, not weighted with zero.
            is_finite_V = is_finite_B.repeat_interleave(views)
            kept, kept_labels = inputs[of_views][is_finite_V], labels[chunk][is_finite_B]
            if len(kept_labels) == 0:
                continue
            batch = gradients(model, kept, kept_labels, views=views)
        _add_weighted(total_P, names, batch, rule(batch.norms, clip_norm))
    return ClippedSum(sum=total_P, norms=norms_B, losses=losses_B)


def batch_gradients(
    model: nn.Module, inputs: Tensor, labels: Tensor, *, views: int
) -> BatchGradients:
    """Norms, losses and weighted sums of a batch by per-example differentiation: any layer, slower."""
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def loss(parameters: dict[str, Tensor], inputs_K: Tensor, label: Tensor) -> Tensor:
        logits_K = functional_call(model, parameters, (inputs_K,))
        return functional.cross_entropy(logits_K, label.expand(len(inputs_K)))

    per_example = vmap(grad_and_value(loss), in_dims=(None, 0, 0))
    grads, losses_B = per_example(parameters, inputs.unflatten(0, (-1, views)), labels)
    flat = {name: grad[:, None].flatten(1) for name, grad in grads.items()}
    squared = [squared_norms(grad) for grad in flat.values()]

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        return {name: weights_B @ grad for name, grad in flat.items()}

    return BatchGradients(
        norms=torch.stack(squared).sum(0).sqrt(), losses=losses_B, weighted_sum=weighted_sum
    )


def check_model(model: nn.Module) -> None:
    """Refuse a model whose per-example gradients do not exist or would be wrong.

    Raises:
        ParameterError: a layer mixes examples (batch normalisation), keeps running statistics, or
            draws from torch's global generator (dropout); a parameter is shared between layers; or
            nothing is trainable. The message names the layer.
    """
    for name, layer in model.named_modules():
        if isinstance(layer, _BATCH_NORMS):
            raise ParameterError(
                f"layer {name!r} is {type(layer).__name__}: it mixes the examples of a batch, so no "
                "per-example gradient exists; use GroupNorm",
                field="model",
            )
        if getattr(layer, "track_running_stats", False):
            raise ParameterError(
                f"layer {name!r} ({type(layer).__name__}) keeps running statistics of private "
                "examples; set track_running_stats=False",
                field="model",
            )
        if isinstance(layer, _DROPOUTS) and layer.p > 0:
            raise ParameterError(
                f"layer {name!r} is {type(layer).__name__}: it draws from torch's global generator",
                field="model",
            )
    named = list(model.named_parameters(remove_duplicate=False))
    first_name: dict[Tensor, str] = {}
    for name, parameter in named:
        if parameter in first_name:
            raise ParameterError(
                f"parameter {name!r} is shared with {first_name[parameter]!r}", field="model"
            )
        first_name[parameter] = name
    if not any(parameter.requires_grad for _, parameter in named):
        raise ParameterError("the model has no trainable parameter", field="model")


def _add_weighted(
    total_P: Tensor, names: Mapping[str, int], batch: BatchGradients, weights_B: Tensor
) -> None:
    """Add the weighted gradients of a batch into ``total_P``; every parameter must be among them."""
    sums = batch.weighted_sum(weights_B.to(total_P.dtype))
    if sums.keys() != names.keys():
        raise RuntimeError(f"no gradients for {sorted(names.keys() ^ sums.keys())}")
    at = 0
    for name, size in names.items():
        total_P[at : at + size] += sums[name].reshape(-1)
        at += size
