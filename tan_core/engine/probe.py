"""A copy of a model that runs on random inputs: what a check can see without reading data."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tan_core.errors import ParameterError, TanError

INSTEAD_OF_ZERO = 0.1


def fed(model: nn.Module) -> Tensor:
    """A parameter of the type and place in which a trainer feeds the model: one that is trained.

    What is frozen may be in any other; where the model goes from one type to the next is its own affair.
    """
    parameters = list(model.parameters())
    return next((each for each in parameters if each.requires_grad), parameters[0])


def is_random(parameter: Tensor) -> bool:
    """Whether random values can stand for its own: not for indices or truth values, which are frozen."""
    return parameter.is_floating_point() or parameter.is_complex()


@torch.no_grad()
def fill_zeros(probe: nn.Module, random: Callable[[int], Tensor]) -> None:
    """Give random values to what is zero: a branch that starts there hides what is in it.

    Args:
        probe: a copy.
        random: standard normal numbers, as many as it is asked for.
    """
    for parameter in filter(is_random, probe.parameters()):
        is_zero = parameter == 0
        parameter[is_zero] = (INSTEAD_OF_ZERO * random(int(is_zero.sum()))).to(parameter)


def gradients(
    model: nn.Module, loss: Callable[[Tensor], Tensor], inputs: Tensor
) -> dict[str, Tensor]:
    """Of each trained parameter, by plain autograd, by name; zero where it has none.

    Args:
        model: what is trained.
        loss: a number, of inputs that the model reads.
        inputs: on the device of the model.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    wanted: list[Tensor] = [*trained.values()]
    if _has_trained_group_norm(model) and inputs.is_floating_point():
        # All the way back: torch 2.13's group norm ends the process where images come to it channels-last and
        # need no gradient, as behind frozen convolutions.
        inputs = inputs.clone().requires_grad_()
        wanted.append(inputs)
    with torch.enable_grad():
        # A model may work in place on what it reads, which is not on a leaf.
        found = loss(inputs + 0 if inputs.requires_grad else inputs)
    of_all = torch.autograd.grad(found, wanted, allow_unused=True, materialize_grads=True)
    return dict(zip(trained, of_all, strict=False))


def _has_trained_group_norm(model: nn.Module) -> bool:
    return any(
        p.requires_grad
        for layer in model.modules()
        if isinstance(layer, nn.GroupNorm)
        for p in layer.parameters()
    )


def logits(model: nn.Module, inputs: Tensor) -> Tensor:
    """[B, classes]: what the model says of a batch that comes as a trainer's do.

    Raises:
        ParameterError: it does not run on such a batch, or says anything else.
    """
    shape = ", ".join(map(str, ("B", *inputs.shape[1:])))
    where = f"inputs of shape [{shape}] in {inputs.dtype}"
    try:
        found: object = model(inputs)
    except TanError:
        raise
    except Exception as error:
        raise ParameterError(
            f"the model does not run on {where}: {type(error).__name__}: {error}{_hint(model, inputs)}",
            field="model",
        ) from error
    if isinstance(found, Tensor) and found.is_floating_point():
        if found.dim() == 2 and len(found) == len(inputs) and found.shape[1] > 0:
            return found
        got = f"shape {list(found.shape)} for B = {len(inputs)}"
    else:
        got = str(found.dtype) if isinstance(found, Tensor) else f"a {type(found).__name__}"
    raise ParameterError(
        f"the model must give a tensor of logits of shape [B, classes] for {where}, got {got}",
        field="model",
    )


def _hint(model: nn.Module, inputs: Tensor) -> str:
    """What may be at fault: where there are several types, a missing step from one to the next."""
    types = {each.dtype for each in model.parameters() if is_random(each)}
    others = sorted(str(each) for each in types - {inputs.dtype})
    if not others:
        return "; accepted: a model that reads records of this shape"
    return (
        f"; inputs come in the type of what is trained, and parts in {', '.join(others)} need "
        "theirs from the model's forward: x.to(weight.dtype)"
    )
