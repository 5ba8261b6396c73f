"""A second opinion on a step: the gradients of a few examples by plain autograd, each alone."""

# Shape legend: A = audited examples, K = views of each.
import math
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core.engine.bookkeeping import Books
from tan_core.engine.clipping import ClippingRule, per_example_clipping
from tan_core.engine.gradients import clipped_sum
from tan_core.engine.probe import gradients
from tan_core.errors import AuditError
from tan_core.spec.train import Precision

TOLERANCE: Final[Mapping[Precision, float]] = {Precision.FLOAT32: 1e-2, Precision.BFLOAT16: 0.25}
"""Of a norm. A ReLU or a max-pool near a tie may go the other way in a batch of another size, which was
seen to move a norm by 0.3 %; in bfloat16, where numbers are often equal and a rounding that goes the other
way is met by every layer after it, by 5.6 %. What an audit is for moves it by far more."""

_LONGER = 1e-5
"""Of what an example adds to a sum, over its norm times its weight: both are made of the same numbers, in
passes of whatever precision."""

_ROUND_OFF = 1e-3
"""Of the clipping norm: gradients so much shorter are mostly round-off, and harm nobody."""

_AUDITS_PER_RUN = 50
_LEAST_STEPS_BETWEEN = 250
"""An audit takes about as long as a step on 16 small images: half a percent of 250 of them."""

_IN_CUDNN: Final = ("conv", "rnn")
"""Each by itself: of both, where they were set apart, torch refuses to say whether they may be in TF32."""

_FAILURE = (
    "an audit failed: what an example was clipped by is not the norm of the gradient that it has alone, "
    "so no epsilon would be true. The model mixes examples, uses a parameter outside its layer, or "
    "meets a defect of a kernel. No figure is told, for it would be one of private data; on public data "
    "tan_core.engine.audit.differences shows them"
)


def steps_between_audits(steps: int) -> int:
    """A fiftieth of a run, or as many as keep the cost of audits below half a percent.

    Example:
        >>> steps_between_audits(300), steps_between_audits(50_000)
        (250, 1000)
    """
    return max(_LEAST_STEPS_BETWEEN, math.ceil(steps / _AUDITS_PER_RUN))


def tolerance(model: nn.Module, precision: Precision) -> float:
    """Of a norm: that of the coarsest numbers that examples pass through.

    A backbone that is frozen in 16 bits rounds as passes in bfloat16 do: two kernels for one such product
    were seen to move a norm by 3.4 %, and which one it is may depend on the size of a batch. So does which
    convolutions a GPU makes in TF32, of 10 bits, where torch may.

    Example:
        >>> tolerance(nn.Linear(3, 2), Precision.FLOAT32)
        0.01
    """
    found = [each for each in model.parameters() if each.is_floating_point()]
    is_coarse = any(torch.finfo(each.dtype).bits < 32 for each in found)
    if any(getattr(torch.backends.cudnn, kind).fp32_precision == "tf32" for kind in _IN_CUDNN):
        is_coarse |= any(each.is_cuda and each.dtype == torch.float32 for each in found)
    return TOLERANCE[Precision.BFLOAT16 if is_coarse else precision]


def audit(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    kept_norms: Tensor,
    *,
    clip_norm: float,
    views: int = 1,
    shares: Tensor | None = None,
    rule: ClippingRule = per_example_clipping,
    precision: Precision = Precision.FLOAT32,
) -> None:
    """Refuse a step whose clipping does not rest on the examples' own gradients.

    Norms that are too small let examples pass unclipped, and the privacy guarantee is void without a
    sign of it. What no rule about layers can see shows here: a forward pass that mixes the examples
    of a batch, uses a parameter outside its layer, or a kernel that reads its input wrongly.

    NOTE: the error holds no figure and names no example, but that it was raised, and when, may depend
    on private data, as any crash may, and no accountant prices it. It ends the run for good.

    Args:
        model: as for :func:`~tan_core.engine.gradients.clipped_sum`.
        inputs: [A * K, ...]; the K views of an example stand together.
        labels: [A], or [A, K] where views have labels of their own; int64.
        kept_norms: [A]: theirs, as ``clipped_sum`` found them among their whole batch.
        clip_norm: C > 0.
        views: K >= 1.
        shares: [A, K], of each view in its example's mean; None: 1/K.
        rule: what the examples were clipped by.
        precision: of the passes in which they got their norms; plain autograd's are in the same.

    Raises:
        AuditError: one of :func:`differences` is above the :func:`tolerance`.
    """
    found = differences(
        model,
        inputs,
        labels,
        kept_norms,
        clip_norm=clip_norm,
        views=views,
        shares=shares,
        rule=rule,
        precision=precision,
    )
    most = tolerance(model, precision)
    if not all(difference <= most for difference in found):
        raise AuditError(_FAILURE)


def differences(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    kept_norms: Tensor,
    *,
    clip_norm: float,
    views: int = 1,
    shares: Tensor | None = None,
    rule: ClippingRule = per_example_clipping,
    precision: Precision = Precision.FLOAT32,
) -> list[float]:
    """How far each example's norm, or what it alone adds to a sum, is from plain autograd's.

    Never to leave a private run. Relative to the truth; ``_ROUND_OFF`` of the clipping norm, or of 1
    where that is less, counts as nothing. Arguments as of :func:`audit`.

    ========================================  ==============================
    Edge case                                 Difference
    ========================================  ==============================
    non-finite norm                           0 if non-finite in both ways
    a sum longer than its own norm allows     infinite
    ========================================  ==============================

    Example:
        >>> model, inputs, labels = nn.Linear(3, 2), torch.ones(2, 3), torch.tensor([0, 1])
        >>> kept = clipped_sum(model, inputs, labels, clip_norm=1.0).norms
        >>> max(differences(model, inputs, labels, kept, clip_norm=1.0)) < 1e-5
        True
    """
    found: list[float] = []
    books = Books(model, precision)
    for example, label in enumerate(labels):
        own = inputs[example * views : (example + 1) * views].contiguous()
        of_views = None if shares is None else shares[example : example + 1]
        norm = _norm(books, own, label.expand(views), of_views).to(kept_norms.dtype)
        alone = clipped_sum(
            books,
            own,
            label[None],
            clip_norm=clip_norm,
            views=views,
            shares=of_views,
            rule=rule,
        )
        added = float(alone.sum.double().norm())
        allowed = _clipped(alone.norms[0], clip_norm, rule)
        # Squares of very small numbers are lost to a norm and not to a sum: a record that is classified
        # with all confidence.
        if added > allowed + _LONGER * max(allowed, _ROUND_OFF * min(clip_norm, 1.0)):
            found.append(math.inf)
            continue
        found.append(
            max(
                _difference(float(kept_norms[example]), float(norm), clip_norm),
                _difference(added, _clipped(norm, clip_norm, rule), clip_norm),
            )
        )
    return found


def _clipped(norm: Tensor, clip_norm: float, rule: ClippingRule) -> float:
    """What is left of a norm; nothing of one that is not finite, or so long that its weight is below the normal numbers."""
    weight = rule(norm[None], clip_norm)[0]
    is_kept = norm.isfinite() and weight >= torch.finfo(norm.dtype).tiny
    return float(norm * weight) if is_kept else 0.0


def _norm(books: Books, inputs_K: Tensor, labels_K: Tensor, shares: Tensor | None) -> Tensor:
    if books.runs_in_pairs and len(inputs_K) == 1:  # the mean of both is that of one
        inputs_K, labels_K, shares = inputs_K.repeat_interleave(2, 0), labels_K.repeat(2), None

    def loss(read_K: Tensor) -> Tensor:
        with books.passes():
            logits_KO = books.model(read_K)
        logits_KO = logits_KO.to(books.dtype)
        losses_K = functional.cross_entropy(logits_KO, labels_K, reduction="none")
        return losses_K.mean() if shares is None else losses_K @ shares.flatten()

    found = gradients(books.model, loss, inputs_K).values()
    return torch.stack([g.double().square().sum() for g in found]).sum().sqrt()


def _difference(found: float, truth: float, clip_norm: float) -> float:
    if not (math.isfinite(found) or math.isfinite(truth)):
        return 0.0
    apart = abs(found - truth) - _ROUND_OFF * min(clip_norm, 1.0)
    return 0.0 if apart <= 0 else apart / max(truth, torch.finfo(torch.float32).tiny)
