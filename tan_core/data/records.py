"""Images of one split as they are stored, packed for random access and decoded when they are asked for.

A split that would not fit into memory once decoded is read by index in every step. Its images lie one after
the other in one file on the node's own disk; in memory are where each begins and its label, 16 bytes a record.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tan_core.data.images import Record, Shape, decode_all, decoding_threads
from tan_core.data.part import Labels
from tan_core.data.store import Room
from tan_core.errors import DatasetError

_IMAGES, _ENDS, _LABELS = "images", "ends.npy", "labels.npy"
_BLOCK_BYTES = 2**23
"""In memory at once while they are packed."""


def write(folder: Path, room: Room, records: Iterable[Record], labels: Labels) -> None:
    """Pack the records, some at a time, and their labels into an empty folder."""
    ends = np.zeros(len(labels) + 1, dtype=np.int64)
    room(ends.nbytes + labels.nbytes)
    np.save(folder / _LABELS, labels)
    number = 0
    with (folder / _IMAGES).open("wb") as stream:
        for block in _blocks(records):
            room(sum(map(len, block)))
            for image in block:
                number += 1
                stream.write(image)
                ends[number] = stream.tell()
    if number != len(labels):
        raise DatasetError(f"{number} images but {len(labels)} labels", field="path")
    np.save(folder / _ENDS, ends)


def _blocks(records: Iterable[Record]) -> Iterator[list[bytes]]:
    block, num_bytes = list[bytes](), 0
    for record in records:
        block.append(record if isinstance(record, bytes) else record.read_bytes())
        num_bytes += len(block[-1])
        if num_bytes >= _BLOCK_BYTES:
            yield block
            block, num_bytes = [], 0
    yield block


class Records:
    """A read-only uint8 [N, C, H, W] whose rows are decoded as they are read, in threads.

    Safe to share between threads. A copy in another process opens the file again, or has it made there.

    Args:
        folder: what :func:`write` filled.
        shape: of one record.
        where: what errors call the split.
        reopen: a function and its arguments that give these records on whatever node it is called.
    """

    dtype = np.dtype(np.uint8)

    def __init__(
        self, folder: Path, shape: Shape, where: str, reopen: tuple[Any, tuple[Any, ...]]
    ) -> None:
        try:
            self._file = os.open(folder / _IMAGES, os.O_RDONLY)
            self._ends: NDArray[np.int64] = np.load(folder / _ENDS, allow_pickle=False)
            self.labels: Labels = np.load(folder / _LABELS, allow_pickle=False)
            is_whole = os.fstat(self._file).st_size == self._ends[-1]
        except (OSError, EOFError, ValueError, IndexError) as error:
            raise _damaged(folder, str(error)) from error
        if not is_whole or len(self._ends) != len(self.labels) + 1:
            raise _damaged(folder, "it is not as long as it was")
        self.shape: Shape = (len(self.labels), *shape)
        self._where, self._reopen = where, reopen
        self._threads = decoding_threads()

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self._reopen

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)
        if hasattr(self, "_threads"):
            self._threads.shutdown(wait=False)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice) -> NDArray[np.uint8]:
        return self.take(np.arange(*rows.indices(len(self))))

    def take(self, rows: NDArray[np.intp]) -> NDArray[np.uint8]:
        """The records of these rows, in this order."""
        out = np.empty((len(rows), *self.shape[1:]), dtype=np.uint8)
        decode_all(
            self._threads,
            lambda number: self._read(rows[number]),
            rows,
            into=out,
            where=self._where,
        )
        return out

    def _read(self, row: np.intp) -> bytes:
        begin, end = int(self._ends[row]), int(self._ends[row + 1])
        # Not a memory map: waiting for the disk, that would keep every other thread waiting too.
        return os.pread(self._file, end - begin, begin)


def _damaged(folder: Path, why: str) -> DatasetError:
    return DatasetError(f"{folder}: what is kept is damaged, delete it: {why}", field="cache_dir")
