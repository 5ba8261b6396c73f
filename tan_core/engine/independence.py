"""What no rule about layers can see: a forward pass that mixes examples, draws, or keeps a state."""

import copy
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tan_core.engine.probe import INSTEAD_OF_ZERO, fed, fill_zeros, is_random, logits
from tan_core.errors import ModelError

_TOLERANCE = 1e-3
_REPEATED = 1e-5
"""Of two runs on the very same inputs, where a processor adds up in the same order."""
_EXAMPLES = 4
"""Two are too few: batch normalisation makes 1 and -1 of whatever they are."""
_QUIET, _LOUD = 1e-2, 1e3
"""Of an example, and of those beside it: what depends on how large a batch is shows between them."""


@torch.no_grad()
def check_independence(model: nn.Module, shape: Sequence[int]) -> None:
    """Refuse a model whose output for one example depends on anything but that example.

    A copy of it runs on random inputs, so this reads no data and costs no privacy. Parameters that
    are zero get random values first: a branch that starts at zero would hide what it mixes. It runs once more
    with every parameter redrawn, for a branch that starts small hides it as well, and grows. And it runs on a small
    example beside small and beside huge ones, there and back: a batch that is scaled, or a gradient that is clipped, by
    the largest of all is left alone where none is large. It also runs on one example alone, as a batch may be: what squeezes
    dimensions takes that one for none.

    NOTE: a model may still do anything under a condition that is not met here: its code is trusted, and this finds mistakes.

    Args:
        model: reads [B, *shape] floats, in the type of the parameters that are trained, and gives [B, classes];
            what is frozen may be in any type.
        shape: of one example.

    Raises:
        ParameterError: the model does not run or gives something else.
        ModelError: a buffer or a parameter comes into being when it runs, a buffer or a frozen parameter changes then, so
            does what its layers keep when it runs again on the same inputs, the same inputs give two outputs, or an output,
            or what the loss makes of it on the way back, changes with the other examples of its batch.

    Example:
        >>> check_independence(nn.Linear(4, 3), (4,))
    """
    probe, generator = copy.deepcopy(model), torch.Generator().manual_seed(0)
    like = fed(model)

    def random(size: Sequence[int]) -> Tensor:
        return torch.randn(tuple(size), generator=generator).to(like)

    fill_zeros(probe, lambda size: random((size,)))
    batch = random((_EXAMPLES, *shape))
    same_first = torch.cat([batch[:1], random((_EXAMPLES - 1, *shape))])
    quiet = _QUIET * batch
    loud = torch.cat([quiet[:1], _LOUD * same_first[1:]])
    fixed = {name: value.clone() for name, value in _fixed(probe)}
    own = _names(probe)

    once = logits(probe, batch)
    for name in _names(probe):
        if name not in own:
            raise ModelError(
                f"{name!r} comes into being when the model runs, so what it is made of would be private examples, and no check has seen "
                "it; make it with the model, or run the model once before",
                field="model",
            )
    # Not of before: a model may bring its weights into some form, or note a shape, the first time.
    trained, kept = _trained(probe), _kept(probe)
    again = probe(batch)
    changed = [name for name, own in _kept(probe).items() if not _are_same(own, kept.get(name))]
    beside = probe(same_first)

    written = [name for name, value in _fixed(probe) if not _is_same(value, fixed[name])]
    written += [
        name for name, value in _trained(probe).items() if _differ(value, trained[name], _REPEATED)
    ]
    for name in written:
        raise ModelError(
            f"{name} of the model changes when it runs: a state would hold private "
            "examples, and it is released with the weights",
            field="model",
        )
    for name in changed:
        raise ModelError(
            f"{name} of the model changes when it runs again on the same inputs: a state would carry private examples "
            "from one step to the next",
            field="model",
        )
    if _differ(once, again, _REPEATED if like.device.type == "cpu" else _TOLERANCE):
        raise ModelError(
            "the model gives two outputs for the same inputs: it draws from torch's global "
            "generator, or keeps a state",
            field="model",
        )
    pairs = [(batch, same_first), (quiet, loud)]
    cotangents = random(once.shape)
    if _differ(once[0], beside[0]) or _mixes_elsewhere(probe, random, pairs, cotangents):
        raise ModelError(
            "the model mixes the examples of a batch: its output for one, or its gradient, changes with the others, so "
            "no per-example gradient exists",
            field="model",
        )


def _mixes_elsewhere(
    probe: nn.Module,
    random: Callable[[Sequence[int]], Tensor],
    pairs: Sequence[tuple[Tensor, Tensor]],
    cotangents: Tensor,
) -> bool:
    """Whether the outputs or the gradients for the first example of a pair differ, at its own weights or at random ones; or
    its outputs where it is alone.
    """
    (batch, _), *_ = pairs
    if _differ(probe(batch)[0], logits(probe, batch[:1])[0]):
        return True
    if any(_differ_there_or_back(probe, one, other, cotangents) for one, other in pairs):
        return True
    for parameter in filter(is_random, probe.parameters()):
        parameter.copy_(INSTEAD_OF_ZERO * random(parameter.shape))
    return any(_differ_there_or_back(probe, one, other, cotangents) for one, other in pairs)


def _differ_there_or_back(probe: nn.Module, one: Tensor, other: Tensor, cotangents: Tensor) -> bool:
    """Whether it shows in the first example which ones are beside it; False where the model does not take any inputs or weights."""
    try:
        if _differ(probe(one)[0], probe(other)[0]):
            return True
        alone = _back(probe, one, cotangents)
        # Long gradients come back beside it: what clips all of them together does nothing to short ones.
        beside = _back(probe, other, torch.cat([cotangents[:1], _LOUD * cotangents[1:]]))
    except (RuntimeError, ValueError, IndexError):
        return False
    return alone is not None and beside is not None and _differ(alone[0], beside[0])


def _back(probe: nn.Module, inputs: Tensor, cotangents: Tensor) -> Tensor | None:
    """What comes back to the inputs; None where nothing does."""
    with torch.enable_grad():
        read = inputs.clone().requires_grad_()
        # A model may work in place on what it reads, which is not on a leaf.
        found = probe(read + 0)
        if not found.requires_grad:
            return None
        (g,) = torch.autograd.grad(found, read, cotangents.to(found.dtype), allow_unused=True)
    return g


def _names(probe: nn.Module) -> list[str]:
    """Of its parameters and buffers."""
    return [name for name, _ in (*probe.named_parameters(), *probe.named_buffers())]


def _fixed(probe: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What neither a run nor training changes: buffers and frozen parameters, as they are called in a message."""
    for name, buffer in probe.named_buffers():
        yield f"buffer {name!r}", buffer
    for name, parameter in probe.named_parameters():
        if not parameter.requires_grad:
            yield f"frozen parameter {name!r}", parameter


def _trained(probe: nn.Module) -> dict[str, Tensor]:
    """Copies of what training changes, and a run does not."""
    return {
        f"parameter {name!r}": parameter.detach().clone()
        for name, parameter in probe.named_parameters()
        if parameter.requires_grad
    }


def _kept(probe: nn.Module) -> dict[str, list[Tensor | float]]:
    """Copies of the tensors and fractions that layers have as attributes, as these are called in a message.

    Whole numbers are none of them: they count steps, say.
    """
    return {
        f"attribute {f'{name}.{key}'.lstrip('.')!r}": [*_numbers(value)]
        for name, layer in probe.named_modules()
        for key, value in vars(layer).items()
        if key not in ("_parameters", "_buffers", "_modules")
    }


def _numbers(value: Any) -> Iterator[Tensor | float]:
    if isinstance(value, Tensor):
        yield value.detach().clone()
    elif isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        yield from _numbers([*value.values()])
    elif isinstance(value, list | tuple | set | frozenset | deque):
        for each in value:
            yield from _numbers(each)


def _are_same(now: list[Tensor | float], before: list[Tensor | float] | None) -> bool:
    if before is None:
        return not now
    return len(now) == len(before) and all(map(_is_same, now, before))


def _is_same(one: Tensor | float, other: Tensor | float) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and (
            torch.equal(one, other) or not _differ(one, other, 0.0)
        )
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return False
    return one == other or (math.isnan(one) and math.isnan(other))


def _differ(one: Tensor, other: Tensor, tolerance: float = _TOLERANCE) -> bool:
    if not (is_random(one) and is_random(other)):
        return not torch.equal(one, other)
    scale = float(one.nan_to_num(0, 0, 0).abs().max()) if one.numel() else 0.0
    return not torch.allclose(one, other, rtol=0, atol=tolerance * scale, equal_nan=True)
