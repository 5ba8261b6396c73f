"""Arrays of a split that are kept for the next reader, each made by one process only.

They hold the records, or what was made of them: storage as private as the dataset. Files are readable
by their owner only.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tan_core.data.part import Labels, Role
from tan_core.errors import DatasetError
from tan_core.spec.columns import ChoiceColumn, as_json
from tan_core.wire import RECORD, DatasetRef

Arrays = tuple[NDArray[Any], Labels]
Made = tuple[Iterable[NDArray[Any]], Labels]
"""Inputs in blocks of rows, at least one block, and the label of every row."""


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


def cached(file: Path, make: Callable[[], Made]) -> Arrays:
    """The arrays of a file, which ``make`` provides where it is missing.

    Of several processes one makes it and the others wait. A file appears whole or not at all; who is
    killed on the way leaves what the next one overwrites. Inputs are a copy-on-write map: readers of
    one machine share the pages, and nobody can spoil the file.

    Raises:
        DatasetError: the folder cannot be written or locked, or what it keeps is damaged.
    """
    if not file.is_file():
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _locked(file.with_suffix(".lock")):
                if not file.is_file():
                    blocks, labels = make()
                    # Labels first: where the inputs are, the labels are too.
                    _write(_labels_file(file), [labels], num_rows=len(labels))
                    _write(file, blocks, num_rows=len(labels))
        except OSError as error:
            raise DatasetError(f"{file}: cannot be kept: {error}", field="cache_dir") from error
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


def _write(file: Path, blocks: Iterable[NDArray[Any]], *, num_rows: int) -> None:
    """One block after the other through a temporary file: a split need not fit into memory."""
    temporary = file.with_suffix(".tmp")
    with _owners_file(temporary) as stream:
        for number, block in enumerate(blocks):
            if number == 0:
                header = {
                    "descr": npy.dtype_to_descr(block.dtype),
                    "fortran_order": False,
                    "shape": (num_rows, *block.shape[1:]),
                }
                npy.write_array_header_1_0(stream, header)
            stream.write(np.ascontiguousarray(block).data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(file)


def _owners_file(file: Path) -> BinaryIO:
    return os.fdopen(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb")


@contextmanager
def _locked(file: Path) -> Generator[None]:
    """Held by one process at a time; the system releases it when the process ends, however it does."""
    with _owners_file(file) as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
