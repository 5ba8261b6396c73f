"""Checks of a model that are made once for all simulations of one architecture in a process.

A search builds one model thousands of times, and finding out that it can be trained takes longer than
many of its steps. A private run never asks here: it always checks.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import torch
from torch import Tensor, nn

from tan_core.engine.coverage import check_coverage
from tan_core.engine.independence import check_independence
from tan_core.spec.train import Precision

_MOST: Final = 64
"""Architectures remembered; a process that has seen more starts anew."""

_passed: set[Hashable] = set()

_VALUES: Final = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, type(None))


def check_once(
    model: nn.Module, shape: Sequence[int], precision: Precision = Precision.FLOAT32
) -> None:
    """Check independence and coverage, unless an equal model has passed before in this process.

    Equal are models of one :func:`architecture`, whatever their parameters hold.

    Args:
        model: passes :func:`~tan_core.engine.check.check_model`; reads [B, *shape] floats.
        shape: of one example.
        precision: of the passes.

    Raises:
        ParameterError: as :func:`~tan_core.engine.independence.check_independence` and
            :func:`~tan_core.engine.coverage.check_coverage` raise it; nothing is remembered then.

    Example:
        >>> check_once(nn.Linear(4, 3), (4,))
    """
    described = architecture(model)
    key = (described, tuple(shape), precision)
    if described is not None and key in _passed:
        return
    check_independence(model, shape)
    check_coverage(model, shape, precision)
    if described is not None:
        if len(_passed) >= _MOST:
            _passed.clear()
        _passed.add(key)


def architecture(model: nn.Module) -> Hashable | None:
    """All that decides what a model computes but for the values of its parameters.

    The class and every attribute of every layer, hooks and replaced methods among them; shape, layout,
    type and place of every tensor, what is shared and what is trained; the values of buffers. None
    where an attribute is an object that may hold anything: such a model equals no other.

    Example:
        >>> architecture(nn.Linear(4, 3)) == architecture(nn.Linear(4, 3))
        True
        >>> architecture(nn.Linear(4, 3)) == architecture(nn.Linear(4, 3, bias=False))
        False
    """
    try:
        return _Description().of(model)
    except Exception:  # noqa: BLE001 - what cannot be described, however it fails, equals nothing
        return None


class _UnknownError(Exception):
    """Something that may hold anything."""


class _Description:
    """Of one model: what has been met before is named by when."""

    def __init__(self) -> None:
        self._met: dict[Hashable, int] = {}

    def of(self, value: Any) -> Hashable:
        """Equal for two values only if they do the same."""
        kind = type(value)
        if kind in _VALUES or isinstance(value, type | Enum):
            return kind, value
        if kind in (tuple, list, torch.Size):
            return kind, *map(self.of, value)
        if kind in (set, frozenset):
            return kind, frozenset(map(self.of, value))
        if kind in (dict, OrderedDict):
            return kind, *((self.of(name), self.of(own)) for name, own in value.items())
        if kind in (Tensor, nn.Parameter) or isinstance(value, nn.Module):
            is_new, number = id(value) not in self._met, self._number(id(value))
            if not is_new:
                return kind, number
            own = self.of(vars(value)) if isinstance(value, nn.Module) else self._tensor(value)
            return kind, number, own
        if isinstance(value, FunctionType):
            seen = tuple(cell.cell_contents for cell in value.__closure__ or ())
            state = (seen, value.__defaults__, value.__kwdefaults__, vars(value))
            return kind, value, self.of(state)
        if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType | None):
            return kind, value
        raise _UnknownError

    def _tensor(self, tensor: Tensor) -> Hashable:
        storage = self._number(("storage", tensor.untyped_storage().data_ptr()))
        layout = tensor.shape, tensor.stride(), tensor.storage_offset(), storage
        place = tensor.dtype, tensor.device, tensor.requires_grad
        return layout, place, None if type(tensor) is nn.Parameter else _digest(tensor)

    def _number(self, own: Hashable) -> int:
        return self._met.setdefault(own, len(self._met))


def _digest(tensor: Tensor) -> bytes:
    values = tensor.detach().to("cpu").contiguous().view(-1).view(torch.uint8)
    return hashlib.blake2b(values.numpy().tobytes(), digest_size=16).digest()
