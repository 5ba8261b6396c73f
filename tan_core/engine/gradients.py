"""Per-example gradients, clipped and summed: the one place where sensitivity is bounded."""

# Shape legend: B = examples (varies, may be 0), K = views of each, P = parameters, flattened.
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional

from tan_core import _validate
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
) -> ClippedSum:
    r"""Sum of per-example gradients, each averaged over its views and then clipped once.

    .. math::

        \sum_i \operatorname{clip}_C\Big(\frac{1}{K} \sum_{j=1}^{K} g_{ij}\Big),
        \qquad \operatorname{clip}_C(v) = v \min(1, C / \lVert v \rVert).

    Formal guarantees:

    * Leaving out any one example moves the sum by at most ``clip_norm``, up to float rounding.
    * An example with a non-finite gradient or loss contributes exactly zero.
    * ``microbatch_size`` changes nothing beyond float rounding.

    Args:
        model: passes :func:`check_model`.
        inputs: [B * K, ...]; the K views of an example stand together.
        labels: [B], int64.
        clip_norm: :math:`C > 0`.
        views: K >= 1.
        microbatch_size: views in memory at once, at least the K of one example.

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
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    total_P = _zeros_like_flat(parameters)
    norms_B = torch.empty(len(labels), dtype=total_P.dtype, device=total_P.device)
    losses_B = torch.empty_like(norms_B)
    per_example = _per_example_gradients(model)
    examples_at_once = max(1, microbatch_size // views)
    inputs_BK = inputs.unflatten(0, (len(labels), views)) if len(labels) else inputs
    for start in range(0, len(labels), examples_at_once):
        chunk = slice(start, start + examples_at_once)
        grads, losses = per_example(parameters, inputs_BK[chunk], labels[chunk])
        losses_B[chunk] = losses
        norms_B[chunk] = _add_clipped(total_P, grads, losses, clip_norm=clip_norm)
    return ClippedSum(sum=total_P, norms=norms_B, losses=losses_B)


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


PerExample = Callable[[dict[str, Tensor], Tensor, Tensor], tuple[dict[str, Tensor], Tensor]]


def _per_example_gradients(model: nn.Module) -> PerExample:
    """(parameters, inputs [B, K, ...], labels [B]) -> (gradients [B, ...] by name, losses [B])."""

    def loss(parameters: dict[str, Tensor], inputs_K: Tensor, label: Tensor) -> Tensor:
        logits_K = functional_call(model, parameters, (inputs_K,))
        return functional.cross_entropy(logits_K, label.expand(len(inputs_K)))

    return vmap(grad_and_value(loss), in_dims=(None, 0, 0))


def _add_clipped(
    total_P: Tensor, grads: dict[str, Tensor], losses_B: Tensor, *, clip_norm: float
) -> Tensor:
    """Add the clipped gradients into ``total_P``; the norms before clipping, [B]."""
    flat = [grad.flatten(1) for grad in grads.values()]
    squared_B = sum(
        torch.linalg.vector_norm(grad, dim=1).to(torch.float64).square() for grad in flat
    )
    norms_B = torch.as_tensor(squared_B).sqrt()
    is_finite_B = norms_B.isfinite() & losses_B.isfinite()
    scale_B = (clip_norm / norms_B.clamp_min(torch.finfo(total_P.dtype).tiny)).clamp_max(1)
    scale_B = scale_B.to(total_P.dtype)
    if not bool(is_finite_B.all()):
        # 0 * NaN is NaN: the gradients themselves have to go, not only their weight.
        scale_B = scale_B.where(is_finite_B, 0)
        flat = [grad.where(is_finite_B[:, None], 0) for grad in flat]
    at = 0
    for grad in flat:
        size = grad.shape[1]
        total_P[at : at + size].addmv_(grad.t(), scale_B)
        at += size
    return norms_B.to(total_P.dtype)


def _zeros_like_flat(parameters: dict[str, Tensor]) -> Tensor:
    first = next(iter(parameters.values()))
    return first.new_zeros(sum(p.numel() for p in parameters.values()))
