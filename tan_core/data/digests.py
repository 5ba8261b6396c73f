"""Keyed digests of records: whether two datasets hold the same ones, without the records of either.

A person whose record is in two datasets is protected by neither budget alone.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tan_core.data.images import ImageInputs
from tan_core.data.part import ArrayInputs, Inputs
from tan_core.errors import DatasetError

Digests = NDArray[np.uint64]
"""Sorted, distinct, at most :data:`MOST`."""

MOST = 2**20
"""Of larger data the smallest ones are kept, which are a sample: whoever compares two samples compares what
both must hold."""
_BYTES = 8
_WIRE = np.dtype(">u8")


def in_order(inputs: Inputs, key: bytes) -> NDArray[np.uint64]:
    """That of every record of a part, by what a model reads of it: labels and names are left out.

    Args:
        inputs: the records.
        key: at most 64 bytes. Without it nobody finds a guessed record among the digests.

    Raises:
        DatasetError: a record cannot be read.
    """
    digests = b"".join(
        hashlib.blake2b(record, digest_size=_BYTES, key=key).digest() for record in _records(inputs)
    )
    return from_bytes(digests)


def of_all(parts: Iterable[NDArray[np.uint64]]) -> Digests:
    """Those of all records of all parts."""
    found = np.zeros(0, dtype=np.uint64)
    for digests in parts:
        found = np.union1d(found, digests)[:MOST]
    return found


def shared(one: Digests, other: Digests) -> tuple[int, int, int]:
    """How many of both are the same, of how many of each: of all, or of what both samples must hold."""
    for sample in (one, other):
        if len(sample) == MOST:
            one, other = one[one <= sample[-1]], other[other <= sample[-1]]
    return len(np.intersect1d(one, other, assume_unique=True)), len(one), len(other)


def to_bytes(digests: Digests) -> bytes:
    """As they are kept."""
    return digests.astype(_WIRE).tobytes()


def from_bytes(kept: bytes) -> Digests:
    """What :func:`to_bytes` made."""
    return np.frombuffer(kept, dtype=_WIRE).astype(np.uint64)


def _records(inputs: Inputs) -> Iterator[bytes]:
    if isinstance(inputs, ArrayInputs):
        yield from map(_row, inputs.values)
    elif isinstance(inputs, ImageInputs):
        for record in inputs.records:
            try:
                yield record if isinstance(record, bytes) else record.read_bytes()
            except OSError as error:
                raise DatasetError(
                    f"{inputs.where}: cannot be read: {error}", field="path"
                ) from error
    else:
        raise TypeError(f"no records to digest in {type(inputs).__name__}")


def _row(values: NDArray[Any]) -> bytes:
    # The same numbers, whether they are kept as bytes or not; and there is one zero, whatever its sign.
    return (values.astype(np.float32) + np.float32(0)).tobytes()
