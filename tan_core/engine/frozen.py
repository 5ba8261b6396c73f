"""What a model holds beside what is trained, in a few numbers: a checkpoint holds the trained part alone.

Whoever goes on with a run needs the rest as it was, or what was trained makes no sense. Numbers and no digest: weights
that are drawn or computed again on another processor differ in their last digits, and a run goes on with them.
"""

import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from tan_core.errors import ParameterError

_TOLERANCE: Final = 1e-3
"""Of a length. Other draws of equal length agree so well in one of a thousand, and in every tensor never."""
_REPEATED: Final = 1e-5
"""Of a length. What a model writes anew each time it runs differs by less, where it is the same."""
_NOTHING: Final = 1e-6
"""Of tensors that are round-off themselves."""
_LARGEST: Final = 1e100
_AT_ONCE: Final = 2**20

Sketch = Mapping[str, tuple[float, float]]
"""Of each tensor by name its length, and how far it goes along a fixed direction."""
_SKETCH: Final[TypeAdapter[Any]] = TypeAdapter(dict[str, tuple[float, float]])


@torch.no_grad()
def sketch(model: nn.Module) -> Sketch:
    """Of a model's buffers and of the parameters that are not trained.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> nn.init.constant_(layer.weight, 3.0).requires_grad_(False).sum().item(), sketch(layer).keys()
        (6.0, dict_keys(['weight']))
    """
    frozen = ((name, p) for name, p in model.named_parameters() if not p.requires_grad)
    return {**{name: _numbers(value) for name, value in frozen}, **sketch_of_buffers(model)}


@torch.no_grad()
def sketch_of_buffers(model: nn.Module) -> Sketch:
    """Of a model's buffers alone, which are small mostly."""
    return {name: _numbers(value) for name, value in model.named_buffers()}


def changed(before: Sketch, now: Sketch) -> str | None:
    """The first tensor of those of now that is another one than before, or was not there, by name; None where there is none.

    Example:
        >>> changed({"mean": (1.0, 1.0)}, {"mean": (1.0 + 1e-9, 1.0)}), changed({"mean": (1.0, 1.0)}, {"mean": (1.1, 1.0)})
        (None, 'mean')
    """
    return next((name for name in sorted(now) if not _is_same(before.get(name), now[name])), None)


def _is_same(one: tuple[float, float] | None, other: tuple[float, float]) -> bool:
    return one is not None and is_close(one, other, tolerance=_REPEATED)


def numbers_of(tensors: Iterable[Tensor]) -> tuple[float, float]:
    """The length of all together, and how far they go along a direction."""
    found = [_numbers(tensor) for tensor in tensors]
    return math.hypot(*(length for length, _ in found)), sum(along for _, along in found)


def check_sketch(found: object, own: Sketch) -> None:
    """Refuse what was noted of other weights.

    Raises:
        ParameterError: it was, or is no :data:`Sketch`; the message names the tensor.
    """
    try:
        noted: Sketch = _SKETCH.validate_python(found)
    except ValidationError as error:
        raise ParameterError(
            f"the checkpoint's frozen weights are none: {error.errors()[0]['msg']}", field="frozen"
        ) from error
    for name in sorted({*noted, *own}):
        if name not in noted or name not in own or not is_close(noted[name], own[name]):
            raise ParameterError(
                f"the checkpoint is of another run: {name!r} of the model, which is not trained, was another one; what was "
                "trained beside it needs the very same, drawn from the same seed or loaded from the same file",
                field="frozen",
            )


def is_close(
    one: tuple[float, float], other: tuple[float, float], *, tolerance: float = _TOLERANCE
) -> bool:
    """Whether two tensors are the same, but for last digits, by their numbers."""
    slack = tolerance * max(one[0], other[0]) + _NOTHING
    return all(abs(a - b) <= slack for a, b in zip(one, other, strict=True))


def _numbers(tensor: Tensor) -> tuple[float, float]:
    values = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    # A GPU reads its own in no time; elsewhere float64 may be unknown.
    place = tensor.device if tensor.is_cuda else torch.device("cpu")
    direction = _direction(place)
    squared = along = 0.0
    for piece in values.reshape(-1).split(_AT_ONCE):
        # Beside an infinity, as masks have, no other number would show.
        numbers = piece.to(place, torch.float64).nan_to_num(0.0, 1.0, -1.0)
        numbers = numbers.clamp(-_LARGEST, _LARGEST)
        squared += float(numbers @ numbers)
        along += float(numbers @ direction[: len(numbers)])
    return math.sqrt(squared), along


@cache
def _direction(device: torch.device) -> Tensor:
    return torch.arange(_AT_ONCE, dtype=torch.float64).cos_().to(device)
