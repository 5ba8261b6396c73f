"""What no rule about layers can see: a forward pass that mixes examples, draws, or keeps a state."""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from tan_core.engine.probe import INSTEAD_OF_ZERO, fed, fill_zeros, is_random, logits
from tan_core.errors import ModelError

_TOLERANCE = 1e-3
_EXAMPLES = 4
"""Two are too few: batch normalisation makes 1 and -1 of whatever they are."""


@torch.no_grad()
def check_independence(model: nn.Module, shape: Sequence[int]) -> None:
    """Refuse a model whose output for one example depends on anything but that example.

    A copy of it runs on random inputs, so this reads no data and costs no privacy. Parameters that
    are zero get random values first: a branch that starts at zero would hide what it mixes. It runs once more
    with every parameter redrawn, for a branch that starts small hides it as well, and grows.

    Args:
        model: reads [B, *shape] floats, in the type of the parameters that are trained, and gives [B, classes];
            what is frozen may be in any type.
        shape: of one example.

    Raises:
        ParameterError: the model does not run or gives something else.
        ModelError: a buffer changes when it runs, the same inputs give two outputs, or an output
            changes with the other examples of its batch.

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
    kept = {name: buffer.clone() for name, buffer in probe.named_buffers()}

    once, again, beside = logits(probe, batch), probe(batch), probe(same_first)

    for name, buffer in probe.named_buffers():
        if not torch.equal(buffer, kept[name]):
            raise ModelError(
                f"buffer {name!r} of the model changes when it runs: a state would hold private "
                "examples, and it is released with the weights",
                field="model",
            )
    if _differ(once, again):
        raise ModelError(
            "the model gives two outputs for the same inputs: it draws from torch's global "
            "generator, or keeps a state",
            field="model",
        )
    if _differ(once[0], beside[0]) or _mixes_elsewhere(probe, random, batch, same_first):
        raise ModelError(
            "the model mixes the examples of a batch: its output for one changes with the others, so "
            "no per-example gradient exists",
            field="model",
        )


def _mixes_elsewhere(
    probe: nn.Module, random: Callable[[Sequence[int]], Tensor], batch: Tensor, same_first: Tensor
) -> bool:
    """Whether the outputs for the first example differ at weights that are nothing but random."""
    for parameter in filter(is_random, probe.parameters()):
        parameter.copy_(INSTEAD_OF_ZERO * random(parameter.shape))
    try:
        once, beside = probe(batch), probe(same_first)
    except (RuntimeError, ValueError):  # not every model takes any weights, and it ran with its own
        return False
    return _differ(once[0], beside[0])


def _differ(one: Tensor, other: Tensor) -> bool:
    scale = float(one.nan_to_num(0, 0, 0).abs().max()) if one.numel() else 0.0
    return not torch.allclose(one, other, rtol=0, atol=_TOLERANCE * scale, equal_nan=True)
