"""A split as tensors, in memory or read by index, and its records as what a model reads."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tan_core.data import Records
from tan_core.data.part import AS_NUMBERS
from tan_core.errors import ParameterError

Array = NDArray[Any] | Tensor | Sequence[Any]
"""A sequence is one of numbers, or of sequences of equal length."""
Inputs = Array | Records
"""Records of a split: all of them in memory, or read by index."""

_NUMBERS: Final = "biuf"
"""Kinds of NumPy's numbers that torch has, up to eight bytes each."""


class ByIndex:
    """What a trainer asks of a tensor of inputs, of records that are decoded when they are read."""

    dtype: Final = torch.uint8

    def __init__(self, records: Records) -> None:
        self._records = records
        self.shape: Final = torch.Size(records.shape)
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._expected: tuple[Tensor, Future[NDArray[Any]]] | None = None

    def __reduce__(self) -> tuple[type["ByIndex"], tuple[Records]]:
        return ByIndex, (self._records,)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, rows: slice) -> Tensor:
        return torch.from_numpy(self._records[rows])

    def expect(self, rows: Tensor) -> None:
        """Begin to read these rows, which are asked for next, while something else is computed."""
        self._expected = rows, self._ahead.submit(self._records.take, rows.numpy())

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        """The rows, as a tensor's method of this name."""
        if dim != 0:
            raise IndexError(f"records are selected along dimension 0, got {dim}")
        expected, self._expected = self._expected, None
        if expected is not None and torch.equal(expected[0], rows):
            return torch.from_numpy(expected[1].result())
        return torch.from_numpy(self._records.take(rows.numpy()))


@dataclass(frozen=True, slots=True)
class Picked:
    """Records of a split in memory, not gathered before something needs them in a row."""

    source: Tensor
    """[N, ...]: all the records."""
    rows: Tensor
    """[B], int64 in [0, N)."""

    def __len__(self) -> int:
        return len(self.rows)

    def floats(self, dtype: torch.dtype) -> Tensor:
        """[B, ...], as a model reads them."""
        return as_floats(self.source.index_select(0, self.rows), dtype)


def as_tensor(
    values: Array, *, field: str = "inputs", accepted: str = "integers or floats of up to 64 bits"
) -> Tensor:
    """A tensor over the same memory where torch can read and write it there, else over a copy.

    Raises:
        ParameterError: they are no real numbers in one block, or lie on a GPU.
    """
    found = values if isinstance(values, Tensor) else _as_array(values, field, accepted)
    if found.ndim == 0:
        raise ParameterError(
            f"{field} must be one for each record, got {type(values).__name__} without a dimension",
            field=field,
        )
    if not isinstance(found, Tensor):
        return torch.from_numpy(found)
    if found.is_complex() or found.is_quantized or found.layout != torch.strided:
        raise ParameterError(
            f"{field} must be dense real numbers, got {found.dtype} in layout {found.layout}",
            field=field,
        )
    if not found.is_cpu:
        # A step would end in an error of torch's once it has drawn: a draw is made and looked up on the processor.
        raise ParameterError(
            f"{field} must lie in the processor's memory, got a tensor on {found.device}; accepted: {field}.cpu(), of which each step "
            "sends what it has drawn to where the model computes",
            field=field,
        )
    return found


def _as_array(values: object, field: str, accepted: str) -> NDArray[Any]:
    """An array that torch can share."""
    if isinstance(values, Dataset | DataLoader):
        raise ParameterError(
            f"{field} must be all records in one array or tensor, as the engine draws its batches itself, got a "
            f"{type(values).__name__}: stack what a dataset holds, as by torch.stack([x for x, _ in dataset])",
            field=field,
        )
    if np.ma.is_masked(values):
        # NumPy would give what lies under the mask, whatever that is.
        raise ParameterError(
            f"{field} must hold a number everywhere, got a masked array that leaves some out: fill them, as by values.filled(0)",
            field=field,
        )
    try:
        array = np.asarray(values)
    except (
        TypeError,
        ValueError,
        RuntimeError,
    ) as error:  # ragged, or whatever its own type raises
        raise ParameterError(
            f"{field} must be an array, a tensor or lists of numbers of equal length, got a "
            f"{type(values).__name__} that NumPy makes no array of",
            field=field,
        ) from error
    if array.dtype.kind not in _NUMBERS or array.dtype.itemsize > 8:
        raise ParameterError(
            f"{field} must be {accepted}, got {array.dtype} in {type(values).__name__}",
            field=field,
        )
    # Torch knows one order of bytes, steps forward over whole numbers, and memory to write to.
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    is_in_steps = all(step >= 0 and step % array.itemsize == 0 for step in array.strides)
    return array if is_in_steps and array.flags.writeable else array.copy()


def as_indices(values: Array, *, field: str, num: int | None = None) -> Tensor:
    """[N], int64: labels of classes, or numbers of users.

    Raises:
        ParameterError: they are no integers in one dimension, or not ``num`` of them.
    """
    found = as_tensor(values, field=field, accepted=AS_NUMBERS)
    if found.ndim != 1 or found.is_floating_point():
        raise ParameterError(
            f"{field} must be integers of shape [N], got {found.dtype} of shape {list(found.shape)}",
            field=field,
        )
    if num is not None and len(found) != num:
        raise ParameterError(f"{num} inputs but {len(found)} {field}", field=field)
    return found.long()


def as_inputs(values: Inputs) -> Tensor | ByIndex:
    """A tensor, or what stands for one."""
    return ByIndex(values) if isinstance(values, Records) else as_tensor(values)


def as_floats(inputs: Tensor, dtype: torch.dtype) -> Tensor:
    """Pixels as floats in [-1, 1], by fixed constants; features as they are."""
    if inputs.dtype == torch.uint8:
        return inputs.to(dtype).mul_(1 / 127.5).sub_(1)
    return inputs.to(dtype)
