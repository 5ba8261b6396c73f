"""Per-example gradients, clipped and summed: the one place where sensitivity is bounded."""

# Shape legend: B = examples (varies, may be 0), K = views of each, P = parameters, flattened.
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core import _validate
from tan_core.engine.bookkeeping import BatchGradients, Books
from tan_core.engine.check import check_model
from tan_core.engine.clipping import ClippingRule, no_clipping, per_example_clipping
from tan_core.engine.inputs import Picked
from tan_core.engine.linear_classifier import in_one_pass, linear_classifier
from tan_core.errors import ParameterError
from tan_core.spec.train import Precision

__all__ = ["ClippedSum", "check_model", "clipped_sum"]


@dataclass(frozen=True, slots=True)
class ClippedSum:
    """What one batch gives away before the noise."""

    sum: Tensor
    """[P]: sum of the clipped per-example gradients, parameters in the model's own order; and what it was added to."""
    norms: Tensor
    """[B]: norms before clipping; non-finite where the example was left out."""
    losses: Tensor
    """[B]: mean loss over the K views, by their shares."""


def clipped_sum(
    model: nn.Module | Books,
    inputs: Tensor | Picked,
    labels: Tensor,
    *,
    clip_norm: float,
    views: int = 1,
    shares: Tensor | None = None,
    microbatch_size: int = 256,
    rule: ClippingRule = per_example_clipping,
    weights: Tensor | None = None,
    onto: Tensor | None = None,
    final: Callable[[str], object] | None = None,
) -> ClippedSum:
    r"""Sum of per-example gradients, each averaged over its views and then clipped once.

    An example is what one guarantee is for. Its views are augmentations of a record, or the records of
    a user: then they have labels of their own, and a user with fewer than K has views of share 0.

    .. math::

        \sum_i \operatorname{clip}_C\Big(\frac{1}{K} \sum_{j=1}^{K} g_{ij}\Big),
        \qquad \operatorname{clip}_C(v) = v \min(1, C / \lVert v \rVert).

    Formal guarantees:

    * Leaving out any one example moves the sum by at most ``clip_norm``, up to float rounding, if the
      ``rule`` bounds it at all.
    * An example with a non-finite gradient or loss contributes exactly zero.
    * ``microbatch_size`` changes nothing beyond float rounding.

    Args:
        model: passes :func:`check_model`; or its books, where it is asked for many sums or its passes
            have a precision of their own.
        inputs: [B * K, ...]; the K views of an example stand together. Floats have the type of what is trained. Or records that need not be
            gathered where the model can be computed without.
        labels: [B], integers; or [B, K] where views have labels of their own.
        clip_norm: :math:`C > 0`.
        views: K >= 1.
        shares: [B, K], of each view in its example's mean, rows of sum 1; None: 1/K. A view of share 0
            must be a copy of another one of its example: what is not finite in it leaves the example out.
        microbatch_size: views in memory at once, at least the K of one example.
        rule: what stands for :math:`\min(1, C / \lVert v \rVert)` above.
        weights: [B], in [0, 1], what each gradient is multiplied by once it is clipped; None: 1.
        onto: [P], what the sum is added to, in place.
        final: told the name of a parameter as soon as its part of ``onto`` is complete, while the others are
            still made; where all are made at once, or nothing is added at the end, not all or none are told.

    Raises:
        ParameterError: ``inputs`` or ``labels`` are no tensors of their kind or type, the counts do not fit each other, or ``final`` is to be told of nothing.
    """
    clip_norm, views, microbatch_size = map(_validate.plain, (clip_norm, views, microbatch_size))
    _validate.positive(clip_norm=clip_norm)
    _validate.positive_integer(views=views, microbatch_size=microbatch_size)
    _check_tensors(inputs, labels)
    _validate.optional(Tensor, shares=shares, weights=weights, onto=onto)
    labels = labels.long()
    if len(inputs) != views * len(labels):
        raise ParameterError(
            f"inputs must hold {views} views of each of {len(labels)} examples, got {len(inputs)}",
            field="inputs",
        )
    for name, each in (("labels", labels), ("shares", shares)):
        if each is not None and each.dim() == 2 and each.shape[1] != views:
            raise ParameterError(
                f"{name} must be of {views} views of each example, got {list(each.shape)}",
                field=name,
            )
    _check_weights(weights, num_examples=len(labels))
    if final is not None and onto is None:
        raise ParameterError("final is told of parts of onto, which is missing", field="onto")
    if not isinstance(model, Books):
        _validate.instance(nn.Module, model=model)
    books = model if isinstance(model, Books) else Books(model)
    _check_type(inputs, books.dtype)
    books.check_modes()
    is_float32 = books.precision is Precision.FLOAT32
    is_plain = views == 1 and shares is None and weights is None and rule is per_example_clipping
    if is_float32 and is_plain:
        found = _of_linear_classifier(books.model, inputs, labels, clip_norm)
        if found is not None:
            return found if onto is None else replace(found, sum=onto.add_(found.sum))
    if isinstance(inputs, Picked):
        inputs = inputs.floats(books.dtype)
    total_P = onto
    norms: list[Tensor] = []
    losses: list[Tensor] = []
    at_once = max(1, microbatch_size // views)
    with books.opened():
        for start in range(0, labels.shape[0], at_once):
            kept = inputs[start * views : (start + at_once) * views]
            kept_labels = labels[start : start + at_once]
            kept_shares = None if shares is None else shares[start : start + at_once]
            kept_weights = None if weights is None else weights[start : start + at_once]
            batch = books.batch_gradients(kept, kept_labels, views=views, shares=kept_shares)
            norms.append(batch.norms)
            losses.append(batch.losses)
            while not _is_finite(batch, books.dtype):
                # 0 * NaN is NaN: such examples are taken out of the batch, not weighted with zero.
                is_finite_B = _are_finite(batch, books.dtype)
                kept = kept[is_finite_B.repeat_interleave(views)]
                kept_labels = kept_labels[is_finite_B]
                kept_shares = None if kept_shares is None else kept_shares[is_finite_B]
                kept_weights = None if kept_weights is None else kept_weights[is_finite_B]
                if len(kept_labels) == 0:
                    break
                batch = books.batch_gradients(kept, kept_labels, views=views, shares=kept_shares)
            else:
                weights_B = rule(batch.norms, clip_norm)
                if kept_weights is not None:
                    weights_B = weights_B * kept_weights
                # Powers of two take no digits.
                raised = 1.0 if rule is no_clipping else _raised(clip_norm)
                sums = _weighted_sums(batch, raised * weights_B, books.dtype)
                if total_P is None:
                    total_P = books.joined(sums).div_(raised)
                elif final is not None and start + at_once >= labels.shape[0]:
                    books.add(total_P, sums, final, times=1 / raised)
                else:
                    books.add(total_P, sums, times=1 / raised)
            del batch  # and the gradients of its examples, before the next ones are made
    total_P = books.zeros() if total_P is None else total_P
    return ClippedSum(
        sum=total_P,
        norms=_joined(norms, total_P).to(total_P.dtype),
        losses=_joined(losses, total_P),
    )


def _check_tensors(inputs: object, labels: object) -> None:
    """Refuse arrays and lists, which a trainer makes tensors of and this does not, and labels that are no numbers."""
    for name, value, kind in (("inputs", inputs, Tensor | Picked), ("labels", labels, Tensor)):
        if not isinstance(value, kind):
            raise ParameterError(
                f"{name} must be a torch.Tensor, got {type(value).__name__}", field=name
            )
    if isinstance(labels, Tensor) and (labels.is_floating_point() or labels.is_complex()):
        raise ParameterError(f"labels must be integers, got {labels.dtype}", field="labels")


def _check_type(inputs: Tensor | Picked, dtype: torch.dtype) -> None:
    """Refuse floats that a layer could not multiply with its weights; integers a model reads as it pleases."""
    is_tensor = isinstance(inputs, Tensor)
    if is_tensor and inputs.is_floating_point() and inputs.dtype != dtype:
        raise ParameterError(
            f"inputs are {inputs.dtype}, what is trained of the model is {dtype}; accepted: inputs.to({dtype}), or "
            "a model of their type",
            field="inputs",
        )


def _check_weights(weights: Tensor | None, *, num_examples: int) -> None:
    """Refuse what would take a gradient beyond the clipping norm, or is not one for each example."""
    if weights is None:
        return
    if weights.shape != (num_examples,):
        raise ParameterError(
            f"weights must be one for each of {num_examples} examples, got shape {list(weights.shape)}",
            field="weights",
        )
    # Not that one is outside: what is no number is not inside.
    if not bool(((weights >= 0) & (weights <= 1)).all()):
        raise ParameterError(
            "weights must be in [0, 1]: above, a gradient would exceed clip_norm", field="weights"
        )


def _of_linear_classifier(
    model: nn.Module, inputs: Tensor | Picked, labels: Tensor, clip_norm: float
) -> ClippedSum | None:
    """The same for a model of one linear layer, several times as fast; None for any other."""
    own = linear_classifier(model)
    found = None if own is None else in_one_pass(own, inputs, labels, clip_norm=clip_norm)
    if found is None:
        return None
    sum_P, norms_B, losses_B = found
    return ClippedSum(sum=sum_P, norms=norms_B.to(sum_P.dtype), losses=losses_B)


def _joined(parts: list[Tensor], like: Tensor) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if parts else like.new_empty(0)


def _is_finite(batch: BatchGradients, dtype: torch.dtype) -> bool:
    """Whether :func:`_are_finite` is true of every example; two sums know it nearly always."""
    total = abs(float(batch.norms.sum() + batch.losses.sum()))
    return total <= torch.finfo(dtype).max or bool(_are_finite(batch, dtype).all())


def _are_finite(batch: BatchGradients, dtype: torch.dtype) -> Tensor:
    """[B]: in the type of the sum, for a norm that it cannot hold has no weight that it can hold."""
    return (batch.norms.to(dtype) + batch.losses).isfinite()


def _raised(clip_norm: float) -> float:
    """The power of two that a small clipping norm is multiplied by for what is clipped to it to be about 1; 1 for others.

    What is clipped to a small norm of a huge record is made of products that float32 has too few digits for.
    """
    return 2.0 ** max(0, -math.frexp(clip_norm)[1])


def _weighted_sums(
    batch: BatchGradients, weights_B: Tensor, dtype: torch.dtype
) -> Iterator[tuple[str, Tensor]]:
    # A weight below the normal numbers has lost digits, and with them the bound: better nothing. One above all of them would
    # be infinite, and make no number of a gradient that is zero.
    known = torch.finfo(dtype)
    weights_B = weights_B.clamp_max(known.max).to(dtype)
    return batch.weighted_sum(functional.threshold(weights_B, known.tiny, 0))
