"""The clipped sum of a linear classifier in one pass over its inputs: no autograd, no books.

With few classes the time goes into reading the inputs, which forward and backward pass each do, after they
have been gathered, widened and normalised. Here a block of examples is read where it lies, normalised,
scored, weighted and summed while it is in the cache.
"""

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from tan_core.engine import native
from tan_core.engine.chain import taken_apart
from tan_core.engine.inputs import Picked
from tan_core.engine.layers import is_changed_both_ways
from tan_core.models.changed import is_refitted

_MOST_CLASSES: Final = 16
"""With more, two matrix products over the whole batch are as fast."""


@dataclass(frozen=True, slots=True)
class LinearClassifier:
    """A trained linear layer, behind a normalisation of each example that has no parameters."""

    layer: nn.Linear
    norm: nn.GroupNorm | None


def linear_classifier(model: nn.Module) -> LinearClassifier | None:
    """The layers of a model that the kernels may compute as one, if they are all that it has."""
    containers, layers = taken_apart(model)
    *before, last = layers or [model]
    norm = before[0] if before and type(before[0]) is nn.GroupNorm else None
    if norm is not None and norm.affine:
        return None
    if not all(_is_flat(layer) for layer in before[norm is not None :]):
        return None
    if norm is not None and not any(type(layer) is nn.Flatten for layer in before):
        return None  # the linear layer sees pixel by pixel
    if type(last) is not nn.Linear or last.out_features > _MOST_CLASSES:
        return None
    is_trained = all(parameter.requires_grad for parameter in last.parameters())
    if not is_trained or any(map(is_changed_both_ways, (*containers, *before, last))):
        return None
    # The kernel reads so many numbers of each, and a sum of its own has them in this order.
    if is_refitted(last) or next(iter(last.parameters())) is not last.weight:
        return None
    return LinearClassifier(last, norm)


def _is_flat(layer: nn.Module) -> bool:
    if type(layer) is nn.Flatten:
        return (layer.start_dim, layer.end_dim) == (1, -1)
    return type(layer) is nn.Identity


def in_one_pass(
    classifier: LinearClassifier, inputs: Tensor | Picked, labels: Tensor, *, clip_norm: float
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Sum [P], norms [B] in float64 and losses [B]; None where the kernels cannot read the batch.

    Args:
        classifier: of :func:`linear_classifier`.
        inputs: [B, ...].
        labels: [B], int64.
        clip_norm: C > 0, of each example.
    """
    x = _examples(classifier, inputs)
    if x is None:
        return None
    # The kernel reads 64 bits for each label, and writes where it says.
    if labels.dtype != torch.int64 or len(labels) == 0:
        return None
    if labels.min() < 0 or labels.max() >= classifier.layer.out_features:
        return None
    return native.linear_classifier(x, labels, *_parameters(classifier), clip_norm)


def scores(classifier: LinearClassifier, inputs: Picked) -> Tensor | None:
    """[B, O]: what the model says of records; None where the kernels cannot read them."""
    x = _examples(classifier, inputs)
    return None if x is None else native.linear(x, *_parameters(classifier))[0]


def _parameters(classifier: LinearClassifier) -> tuple[Tensor, Tensor | None]:
    """Weight and bias, as a kernel reads them."""
    weight, *bias = (p.detach() for p in classifier.layer.parameters())
    return weight, bias[0] if bias else None


def _examples(classifier: LinearClassifier, inputs: Tensor | Picked) -> native.Examples | None:
    """The inputs as a kernel of the layer's type reads them; None where it cannot, or there is none."""
    weight = classifier.layer.weight
    if not native.accepts(*classifier.layer.parameters()):
        return None
    values = inputs.source if isinstance(inputs, Picked) else inputs
    rows = inputs.rows if isinstance(inputs, Picked) else None
    if isinstance(inputs, Tensor) and values.dtype != weight.dtype:
        return None  # a model is not shown such a tensor
    if math.prod(values.shape[1:]) != classifier.layer.in_features:
        return None
    norm, groups = classifier.norm, 0
    if norm is not None:
        # Torch refuses to normalise one number, and other channels.
        groups, size = norm.num_groups, classifier.layer.in_features
        if values.dim() < 2 or values.shape[1] != norm.num_channels or size == groups:
            return None
    if rows is not None and len(rows) and (rows.min() < 0 or rows.max() >= len(values)):
        return None  # gathering them says what is wrong
    # Of a batch a copy may be made, of all the records that rows are picked from never.
    values = values.contiguous() if rows is None else values
    epsilon = 0.0 if norm is None else norm.eps
    found = native.Examples(values, rows, groups, epsilon)
    return found if found.is_readable(weight) else None
