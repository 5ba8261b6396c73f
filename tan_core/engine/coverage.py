"""What no rule about layers can see: a parameter that is used behind its layer's back, examples in another order."""

import copy
import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core.engine.bookkeeping import Books
from tan_core.engine.clipping import no_clipping
from tan_core.engine.gradients import clipped_sum
from tan_core.engine.probe import fed, fill_zeros, gradients, logits
from tan_core.errors import ParameterError
from tan_core.spec.train import Precision

_LENGTHS = (0.75, 0.5, 1.0, 0.25)
"""Of the examples of the last batch: parts of them, the rest are zeros, as where short ones are filled up."""
_TOLERANCE = 1e-2
"""Of a parameter's own gradient. A ReLU near a tie may go the other way in another memory layout."""
_ROUND_OFF = 1e-3
"""Of the longest gradient of all parameters."""


def check_coverage(
    model: nn.Module, shape: Sequence[int], precision: Precision = Precision.FLOAT32
) -> None:
    """Refuse a model that has another gradient by plain autograd than by the engine's books.

    Where a parameter is used outside of its layer, the model would not be trained as it says. Where a layer gets the
    examples in another order, sorted say, parts of different examples would be taken for one: none of them would
    be clipped by its own norm. So each example of the compared sums has a weight of its own. A copy of the model
    runs on random inputs, so this reads no data. Parameters that are zero get random values first: a branch that
    starts at zero has no gradient.

    Args:
        model: passes :func:`~tan_core.engine.check.check_model`; reads [B, *shape] floats, in the type of the
            parameters that are trained, and gives [B, classes].
        shape: of one example.
        precision: of the passes. What a parameter's gradient is made of shows in float32; in a lower one
            the model must run.

    Raises:
        ParameterError: a layer does not run, does not have examples as first dimension and in their order, or works in
            place; or a parameter has another gradient. The message names it.

    Example:
        >>> check_coverage(nn.Linear(4, 3), (4,))
    """
    probe, generator = copy.deepcopy(model), torch.Generator().manual_seed(0)
    like = fed(model)
    fill_zeros(probe, lambda size: torch.randn(size, generator=generator).to(like))
    for inputs in _batches(shape, generator):
        inputs = inputs.to(like)
        hidden = _hidden(probe, inputs)
        # A deep network of ReLUs has inputs near so many ties that float32 fails one start in four;
        # with 29 more bits a tie is met no more, and what a layer does not see is missing as before.
        if hidden is not None and _is_hidden_in_float64(probe, inputs):
            raise ParameterError(
                f"parameter {hidden!r} is used outside of the forward pass of its layer, or its layer does not have the examples, "
                "in their order, as first dimension: what its layer sees is not the gradient of each example; move the use "
                "into the layer, and leave the examples as they come",
                field="model",
            )
        if precision is not Precision.FLOAT32:
            _check_runs(probe, inputs, precision)


def _batches(shape: Sequence[int], generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Of three and of four examples: what counts as many positions as one batch has examples shows in the other.

    The first examples come in both directions, for what sorts them finds them sorted in one of these at most, and those of the
    last batch are of several lengths. By these they are not sorted in either direction.
    """
    first, another = torch.randn((4, *shape), generator=generator).split((3, 1))
    second = torch.cat([first.flip(0), another])
    third = second.clone()
    for example, length in zip(third.view(4, -1), _LENGTHS, strict=True):
        example[math.ceil(length * len(example)) :] = 0
    return first, second, third


def _check_runs(probe: nn.Module, inputs: Tensor, precision: Precision) -> None:
    """The model by itself first, for that tells which layer it is that does not run."""
    books, entered = Books(probe, precision), list[str]()
    listeners = [
        listener
        for name, layer in probe.named_modules()
        for listener in (
            layer.register_forward_pre_hook(partial(_enter, entered, name)),
            layer.register_forward_hook(partial(_leave, entered)),
        )
    ]
    try:
        with torch.no_grad(), books.passes():
            labels = torch.arange(len(inputs), device=inputs.device) % probe(inputs).shape[1]
    except RuntimeError as error:
        raise ParameterError(
            f"layer {entered[-1]!r} does not run in {precision.value}: {error}; accepted: "
            f"{Precision.FLOAT32.value}",
            field="precision",
        ) from error
    finally:
        for listener in listeners:
            listener.remove()
    try:
        clipped_sum(books, inputs, labels, clip_norm=1.0)
    except RuntimeError as error:
        raise ParameterError(
            f"the model cannot be trained privately in {precision.value}: {error}; accepted: "
            f"{Precision.FLOAT32.value}",
            field="precision",
        ) from error


def _enter(entered: list[str], name: str, *_: object) -> None:
    entered.append(name)


def _leave(entered: list[str], *_: object) -> None:
    entered.pop()


def _is_hidden_in_float64(probe: nn.Module, inputs: Tensor) -> bool:
    """Whether the second look finds something, too; a model that cannot run so stays refused."""
    try:
        return _hidden(copy.deepcopy(probe).double(), inputs.double()) is not None
    except (RuntimeError, ParameterError):
        return True


def _hidden(probe: nn.Module, inputs: Tensor) -> str | None:
    """The first parameter with another gradient by plain autograd than by the books, by name."""
    with torch.no_grad():
        labels = torch.arange(len(inputs), device=inputs.device) % logits(probe, inputs).shape[1]
    try:
        # Equal ones would not tell the parts of one example from those of another.
        weights_B = torch.arange(1, len(inputs) + 1, device=inputs.device).to(inputs) / len(inputs)
        truth = _by_autograd(probe, inputs, labels, weights_B)
        got = clipped_sum(
            probe, inputs, labels, clip_norm=1.0, rule=no_clipping, weights=weights_B
        ).sum
    except RuntimeError as error:
        raise ParameterError(
            f"the model cannot be trained privately: {error}", field="model"
        ) from error
    sizes = [gradient.numel() for gradient in truth.values()]
    longest = max(float(gradient.norm()) for gradient in truth.values())
    for (name, gradient), kept in zip(truth.items(), got.split(sizes), strict=True):
        off = float((kept - gradient).norm())
        if off > _TOLERANCE * float(gradient.norm()) + _ROUND_OFF * longest:
            return name
    return None


def _by_autograd(
    model: nn.Module, inputs: Tensor, labels: Tensor, weights_B: Tensor
) -> dict[str, Tensor]:
    """The gradients of the weighted sum of losses, flat, by name."""

    def loss(read: Tensor) -> Tensor:
        logits_BO = model(read).to(inputs.dtype)
        return functional.cross_entropy(logits_BO, labels, reduction="none") @ weights_B

    return {name: g.flatten() for name, g in gradients(model, loss, inputs).items()}
