"""NumPy archives: ``x_train, y_train, x_test, y_test``; train may be called ``x, y``. Never pickled.

Where no array has such a name, ``X`` and what other collections write are the same: ``train_images, train_labels``.
"""

import math
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tan_core.data.growth import check_growth
from tan_core.data.part import (
    ArrayInputs,
    Members,
    Part,
    Parts,
    Role,
    as_float32,
    integer_labels,
    named_labels,
)
from tan_core.errors import DatasetError

_UNREADABLE = (
    OSError,
    EOFError,
    IndexError,  # a header that ends in its version
    ValueError,
    RuntimeError,  # encrypted, or packed in a way that is not known here
    MemoryError,  # an array that claims to be larger than any memory
    zipfile.BadZipFile,
    zlib.error,
)

_SUFFIXES: dict[str, Role] = {
    "": "train",
    "_train": "train",
    "_validation": "validation",
    "_val": "validation",
    "_test": "test",
}
_AXES = {
    **dict.fromkeys(("x", "image", "images", "data"), "x"),
    **dict.fromkeys(("y", "label", "labels", "target", "targets"), "y"),
}


def read(path: Path, classes: Sequence[str] | None = None) -> Parts:
    """Every part of the archive; labels that are text are numbered by the classes.

    Images are uint8 [N, H, W], [N, H, W, C] or [N, C, H, W] with 1 or 3 channels; anything of two
    dimensions is a table of features.
    """
    arrays = _under_our_names(_arrays(path), path)
    parts: Parts = {}
    types: dict[Role, np.dtype[Any]] = {}
    for suffix, role in _SUFFIXES.items():
        present = {"x" + suffix, "y" + suffix} & set(arrays)
        if present and role in parts:
            raise DatasetError(
                f"{path} holds x{suffix} beside other arrays of {role}; accepted: one of them",
                field="path",
            )
        if len(present) == 1:
            raise DatasetError(
                f"{path} holds {present.pop()} alone; accepted: x{suffix} with y{suffix}",
                field="path",
            )
        if present:
            where = f"{path} (x{suffix}, y{suffix})"
            x, y = arrays["x" + suffix], arrays["y" + suffix]
            parts[role] = _part(x, y, classes, where=where)
            if x.ndim == 2:
                types[role] = x.dtype
    if len({each == np.uint8 for each in types.values()}) > 1:
        said = ", ".join(f"of {role} {each}" for role, each in types.items())
        raise DatasetError(
            f"{path}: features {said}: bytes alone would be mapped to [-1, 1]; accepted: one type",
            field="features",
        )
    if "train" not in parts:
        raise DatasetError(
            f"{path} holds the arrays {sorted(arrays)}; accepted: x and y, or x_train and y_train "
            "with x_test and y_test; images and labels are as good",
            field="path",
        )
    read_names = {axis + suffix for suffix in _SUFFIXES for axis in "xy"}
    unread = tuple(name for name in arrays if name not in read_names)
    parts["train"] = replace(parts["train"], unread=unread)
    return parts


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            check_growth(total, stored=path.stat().st_size, where=path)
            for member in members:
                _check_claim(archive, member)
        with np.load(path, allow_pickle=False) as archive:
            # A member that is no array comes as its bytes.
            found = {name: archive[name] for name in archive.files}
            return {name: each for name, each in found.items() if isinstance(each, np.ndarray)}
    except _UNREADABLE as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"{path}: not a readable .npz archive: {error}", field="path") from error


def _under_our_names(arrays: dict[str, NDArray[Any]], path: Path) -> dict[str, NDArray[Any]]:
    """The arrays by the names that are read; as they are where one of the inputs has its name already."""
    if any("x" + suffix in arrays for suffix in _SUFFIXES):
        return arrays
    named: dict[str, tuple[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        ours = _our_name(name)
        if ours in named:
            raise DatasetError(
                f"{path} holds {name} beside {named[ours][0]}; accepted: one of them, or {ours}",
                field="path",
            )
        named[ours] = (name, array)
    return {ours: array for ours, (_, array) in named.items()}


def _our_name(name: str) -> str:
    words = name.lower().split("_")
    axes = [_AXES[word] for word in words if word in _AXES]
    suffix = "".join(f"_{word}" for word in words if word not in _AXES)
    return axes[0] + suffix if len(axes) == 1 and suffix in _SUFFIXES else name


def _check_claim(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Refuse an array whose header claims more than its member holds: it is allocated as claimed."""
    with archive.open(member) as stream:
        if stream.read(len(npy.MAGIC_PREFIX)) != npy.MAGIC_PREFIX:
            return
        version = (stream.read(1)[0], stream.read(1)[0])
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(stream)
        if dtype.hasobject:  # as the text of a pandas column is
            raise ValueError(
                f"{member.filename.removesuffix('.npy')} holds Python objects, which would be unpickled; accepted: "
                "numbers, and text as text, as array.astype(str) makes it"
            )
        claimed = math.prod(shape) * dtype.itemsize
        if claimed > member.file_size:
            raise ValueError(
                f"{member.filename} claims {claimed:,} bytes, holds {member.file_size:,}"
            )


def _part(x: NDArray[Any], y: NDArray[Any], classes: Sequence[str] | None, *, where: str) -> Part:
    if x.ndim == 0 or y.ndim == 0:
        raise DatasetError(
            f"{where}: a single number is no array of records, got shapes {list(x.shape)} and "
            f"{list(y.shape)}",
            field="path",
        )
    if x.size == 0:
        raise DatasetError(f"{where}: no records, got shape {list(x.shape)}", field="path")
    if len(x) != len(y):
        raise DatasetError(f"{where}: {len(x)} records but {len(y)} labels", field="path")
    inputs = _features(x, where=where) if x.ndim == 2 else _images(x, where=where)
    if np.issubdtype(y.dtype, np.str_) and y.size == len(y):
        names, of = np.unique(y.ravel(), return_inverse=True)
        members = Members(tuple(names.tolist()), of.astype(np.int64))
        return Part(ArrayInputs(inputs), named_labels(members, classes, where=where))
    return Part(ArrayInputs(inputs), integer_labels(y, where=where))


def _features(x: NDArray[Any], *, where: str) -> NDArray[np.float32]:
    if x.dtype == np.uint8:
        return x.astype(np.float32) / np.float32(127.5) - np.float32(1)
    if x.dtype.kind not in "iuf":  # a span of time is an integer to NumPy
        raise DatasetError(f"{where}: features must be numbers, got {x.dtype}", field="features")
    values = as_float32(x)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise DatasetError(
            f"{where}: feature {column} of record {row} is {x[row, column]}, not finite in float32",
            field="features",
        )
    return values


def _images(x: NDArray[Any], *, where: str) -> NDArray[np.uint8]:
    if x.ndim not in (3, 4):
        raise DatasetError(
            f"{where}: images have 3 or 4 dimensions and tables 2, got shape {list(x.shape)}",
            field="path",
        )
    in_range = x.dtype.kind in "iu" and (
        x.dtype == np.uint8 or x.size == 0 or (x.min() >= 0 and x.max() <= 255)
    )
    if not in_range:
        raise DatasetError(
            f"{where}: pixels must be integers from 0 to 255, got {x.dtype}", field="path"
        )
    pixels = x.astype(np.uint8, copy=False)
    if pixels.ndim == 3:
        return pixels[:, None]
    if pixels.shape[3] in (1, 3):
        return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    if pixels.shape[1] in (1, 3):
        return pixels
    raise DatasetError(
        f"{where}: images need 1 or 3 channels, first or last, got shape {list(x.shape)}",
        field="path",
    )
