"""A split as tensors, in memory or read by index, and its records as what a model reads."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import torch
from numpy.typing import NDArray
from torch import Tensor

from tan_core.data import Records
from tan_core.errors import ParameterError

Array = NDArray[Any] | Tensor
Inputs = Array | Records
"""Records of a split: all of them in memory, or read by index."""


class ByIndex:
    """What a trainer asks of a tensor of inputs, of records that are decoded when they are read."""

    dtype: Final = torch.uint8

    def __init__(self, records: Records) -> None:
        self._records = records
        self.shape: Final = torch.Size(records.shape)
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._expected: tuple[Tensor, Future[NDArray[Any]]] | None = None

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


def as_tensor(values: Array) -> Tensor:
    """A tensor over the same memory where it can be written to; torch warns of read-only arrays."""
    if isinstance(values, Tensor):
        return values
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def as_indices(values: Array, *, field: str, num: int | None = None) -> Tensor:
    """[N], int64: labels of classes, or numbers of users.

    Raises:
        ParameterError: they are no integers in one dimension, or not ``num`` of them.
    """
    found = as_tensor(values)
    if found.ndim != 1 or found.is_floating_point() or found.is_complex():
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
