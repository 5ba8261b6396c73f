"""Arrays of a split that are kept for the next reader, each made by one process only.

They hold the records, or what was made of them: storage as private as the dataset. Files are readable
by their owner only.
"""

import errno
import fcntl
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tan_core.data.part import Labels, Role
from tan_core.errors import DatasetError
from tan_core.spec.columns import ChoiceColumn, as_json
from tan_core.wire import RECORD, DatasetRef

Arrays = tuple[NDArray[Any], Labels]
Made = tuple[Callable[[int], Iterable[NDArray[Any]]], Labels]
"""Inputs from a row on, in blocks of rows, of one dtype and one shape of a row; and the label of every row."""

Waiting = Callable[[], None]
"""Called now and then while another process is at work; what it raises ends the wait."""

_NOTED_EVERY_SECONDS: Final = 30.0
"""What a machine that crashes has to make again, at most."""
_LOOK_EVERY_SECONDS: Final = 0.5
_DAY: Final = 86_400.0
_SHARED, _ALONE = fcntl.LOCK_SH, fcntl.LOCK_EX


def cache_file(cache_dir: Path, ref: DatasetRef, split: Role, *made_by: str) -> Path:
    """Where a split is kept: a name for its content and what was done to it."""
    # Numbers that are users in CSV were text once where one of them was none, and splits others.
    of_users = [] if ref.unit == RECORD else [ref.unit, ref.records_per_unit, "numbers"]
    # A group is no feature unless it is named as one.
    beside = [] if ref.group is None or ref.features else ["without", ref.group]
    # The same Parquet files may be read as images or as the numbers beside them.
    read_as = ["source", ref.source] if ref.source == "table" else []
    # Those of CSV were read by a type that was guessed from all cells once.
    chosen = any(isinstance(each, ChoiceColumn) for each in ref.features or ())
    as_text = ["choices", "text"] if chosen else []
    # Where labels are text, these say which number each has.
    named = [] if ref.classes is None else ["classes", ref.classes]
    # Numbers of CSV counted the classes once, whatever these are called.
    by_name = ["by name"] if named and ref.source == "table" else []
    what = [
        *(ref.content_sha256, ref.label, as_json(ref.features), ref.split_seed, split),
        *of_users,
        *beside,
        *named,
        *by_name,
        *read_as,
        *as_text,
        *made_by,
    ]
    return cache_dir / f"{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]}.npy"


def cached(file: Path, make: Callable[[], Made], *, waiting: Waiting = lambda: None) -> Arrays:
    """The arrays of a file, which ``make`` provides where it is missing.

    Of several processes one makes it and the others wait. A file appears whole or not at all; where who
    makes it fails or is killed on the way, the next one goes on from there. Inputs are a copy-on-write map: readers of
    one machine share the pages, and nobody can spoil the file.

    Raises:
        DatasetError: the folder cannot be written or locked, or what it keeps is damaged.
    """
    lock = file.with_suffix(".lock")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            with _locked(lock, _SHARED, waiting):
                if file.is_file():
                    return _read(file)
            with _locked(lock, _ALONE, waiting):
                if not file.is_file():
                    _make(file, make)
    except OSError as error:
        raise DatasetError(f"{file}: cannot be kept: {error}", field="cache_dir") from error


def forget_unread(cache_dir: Path, *, days: float) -> int:
    """Delete what nobody has begun to read, nor made a part of, for so many days; how many bytes that were.

    What another process is at work on stays. Whoever has read something goes on reading it, on a disk of this machine.

    Raises:
        OSError: the folder cannot be read, or something in it cannot be deleted; all else is.
    """
    oldest, freed = time.time() - days * _DAY, 0
    failed: OSError | None = None
    for lock in cache_dir.glob("*.lock"):
        try:
            with _locked(lock, _ALONE, _give_up):
                freed += _forget(lock, oldest)
        except BlockingIOError:
            pass
        except OSError as error:
            failed = error
    if failed is not None:
        raise failed
    return freed


def _forget(lock: Path, oldest: float) -> int:
    # Inputs first: where they are, the labels are too.
    files = sorted({*lock.parent.glob(f"{lock.stem}.*")} - {lock}, key=_is_of_labels)
    stats = [file.stat() for file in (*files, lock)]
    if max(each.st_mtime for each in stats) >= oldest:
        return 0
    for file in (*files, lock):
        file.unlink()
    return sum(each.st_size for each in stats)


def _make(file: Path, make: Callable[[], Made]) -> None:
    blocks_from, labels = make()
    # Labels first: where the inputs are, the labels are too.
    with _Draft(_labels_file(file), len(labels)) as draft:
        draft.add(labels[draft.num_done :])
    with _Draft(file, len(labels)) as draft:
        for block in blocks_from(draft.num_done):
            draft.add(block)


def _read(file: Path) -> Arrays:
    os.utime(file)  # not every disk notes when it is read
    try:
        # As a plain array: Ray would copy a memmap for every process that reads it.
        inputs = np.asarray(np.load(file, mmap_mode="c", allow_pickle=False))
        return inputs, np.load(_labels_file(file), allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise DatasetError(
            f"{file}: what is kept is damaged, delete it: {error}", field="cache_dir"
        ) from error


def stacked(blocks: Iterable[NDArray[Any]], *, num_rows: int) -> NDArray[Any]:
    """The blocks as one array, in no more memory than it needs."""
    rest = iter(blocks)
    first = next(rest)
    array = np.empty((num_rows, *first.shape[1:]), first.dtype)
    array[: len(first)] = first
    at = len(first)
    for block in rest:
        array[at : at + len(block)] = block
        at += len(block)
    return array


def _labels_file(file: Path) -> Path:
    return file.with_suffix(".labels.npy")


def _is_of_labels(file: Path) -> bool:
    return ".labels" in file.suffixes


class _Draft:
    """A file until it is whole: rows come one block after the other, for a split need not fit into memory.

    A note beside it says how many rows are on the disk, so that the next maker goes on behind them. What was written
    after it may be lost, or be zeros, once the machine has crashed.
    """

    def __init__(self, file: Path, num_rows: int) -> None:
        self._file, self._note = file, file.with_suffix(".rows")
        self._num_rows = num_rows
        self._stream = _owners_file(file.with_suffix(".tmp"))
        self._row: tuple[np.dtype[Any], tuple[int, ...]] | None = None
        self.num_done = self._noted()
        self._noted_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._stream:
            if kind is not None:
                with suppress(OSError):
                    self.note()
                return
            self._sync()
        self._file.with_suffix(".tmp").replace(self._file)
        self._note.unlink(missing_ok=True)

    def add(self, block: NDArray[Any]) -> None:
        """Write the next rows."""
        row = (block.dtype, block.shape[1:])
        if self._row is None:
            header = {
                "descr": npy.dtype_to_descr(block.dtype),
                "fortran_order": False,
                "shape": (self._num_rows, *block.shape[1:]),
            }
            npy.write_array_header_1_0(self._stream, header)
            self._row = row
        elif row != self._row:
            raise ValueError(f"rows are {self._row}, got {row}")
        self._stream.write(np.ascontiguousarray(block).data)
        self.num_done += len(block)
        if time.monotonic() - self._noted_at >= _NOTED_EVERY_SECONDS:
            self.note()

    def note(self) -> None:
        """See to it that the next maker finds what is written."""
        self._sync()
        draft = self._note.with_suffix(".note")
        draft.write_text(str(self.num_done))
        draft.replace(self._note)
        self._noted_at = time.monotonic()

    def _noted(self) -> int:
        """How many rows an earlier maker has left; the stream then stands behind them."""
        size = self._stream.seek(0, os.SEEK_END)
        self._stream.seek(0)
        try:
            num_done = int(self._note.read_text())
            npy.read_magic(self._stream)
            shape, _, dtype = npy.read_array_header_1_0(self._stream)
        except (OSError, ValueError):
            num_done, shape, dtype = 0, (self._num_rows,), np.dtype(np.uint8)
        end = self._stream.tell() + num_done * math.prod(shape[1:]) * dtype.itemsize
        if 0 < num_done <= self._num_rows == shape[0] and end <= size:
            self._row = (dtype, shape[1:])
        else:
            self._note.unlink(missing_ok=True)
            num_done = end = 0
        if end < size:
            self._stream.truncate(end)
        self._stream.seek(end)
        return num_done

    def _sync(self) -> None:
        self._stream.flush()
        os.fsync(self._stream.fileno())


def _owners_file(file: Path) -> BinaryIO:
    return os.fdopen(os.open(file, os.O_CREAT | os.O_RDWR, 0o600), "r+b")


@contextmanager
def _locked(file: Path, how: int, waiting: Waiting) -> Generator[None]:
    """Until the block ends; the system releases it too when the process ends, however it does."""
    while True:
        with _owners_file(file) as stream:
            while not _is_had(stream, how):
                waiting()
                time.sleep(_LOOK_EVERY_SECONDS)
            if not _is_gone(file, stream):
                yield
                return


def _is_had(stream: BinaryIO, how: int) -> bool:
    """Whether the lock is held, or there is none to wait for any more."""
    try:
        fcntl.flock(stream, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
    return True


def _is_gone(file: Path, stream: BinaryIO) -> bool:
    """Whether it was deleted meanwhile, and may be another process's by now."""
    try:
        held = os.fstat(stream.fileno())
        return held.st_nlink == 0 or not os.path.samestat(file.stat(), held)
    except OSError as error:
        # A shared disk says ESTALE of what another machine has deleted.
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
        return True


def _give_up() -> None:
    raise BlockingIOError
