"""What lies at a path: which source it is, and its parts as they are stored."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from tan_core.data import columns, digits, image_folder, npz
from tan_core.data.part import Columns, Parts, Source, files_by_role, visible_files
from tan_core.errors import DatasetError
from tan_core.spec.columns import Feature
from tan_core.wire import RECORD

SOURCES: tuple[Source, ...] = get_args(Source)
MAX_CLASSES = 100_000


def source_at(path: str | None, asked: str | None) -> Source:
    """The source at ``path``; ``asked`` must fit it."""
    if asked not in (None, *SOURCES):
        raise DatasetError(f"source must be one of {list(SOURCES)}, got {asked!r}", field="source")
    if path is not None and asked in (None, "table"):
        _refuse_two_kinds(existing(path))
    for known in SOURCES:
        if asked == known:
            return known
    if path is None:
        raise DatasetError("a path is needed; only source digits has none", field="path")
    place = existing(path)
    if place.suffix.lower() == ".npz":
        return "npz"
    if place.suffix.lower() == ".csv" or (place.is_dir() and files_by_role(place, suffix=".csv")):
        return "table"
    if place.suffix.lower() == ".parquet" or place.is_dir():
        if files_by_role(place, suffix=".parquet"):
            return "parquet" if columns.has_images(place) else "table"
        if image_folder.recognises(place):
            return "image_folder"
    raise DatasetError(
        f"{place}: found no Parquet, CSV or .npz file and no class folders with images",
        field="path",
    )


def _refuse_two_kinds(place: Path) -> None:
    """CSV beside Parquet: one of them would not be read, and its part of the data be missed by nobody."""
    if not place.is_dir():
        return
    kinds = [visible_files(place, suffix=suffix) for suffix in (".csv", ".parquet")]
    if all(kinds):
        first, second = (min(files).relative_to(place) for files in kinds)
        raise DatasetError(
            f"{place} holds CSV and Parquet files, such as {first} and {second}; accepted: a folder with one kind of them, "
            "or source parquet for images in Parquet",
            field="path",
        )


def existing(path: str | None) -> Path:
    """The file or folder of this path, which is there and holds something."""
    if not path:
        raise DatasetError("a path is needed; only source digits has none", field="path")
    place = Path(path)
    try:
        if not place.exists():
            raise DatasetError(f"{path}: no such file or folder", field="path")
        if not (place.is_dir() or place.is_file()):
            raise DatasetError(f"{path}: neither a file nor a folder", field="path")
        if place.is_dir() and not any(place.iterdir()):
            raise DatasetError(f"{path}: the folder is empty", field="path")
        if place.is_file() and place.stat().st_size == 0:
            raise DatasetError(f"{path}: the file is empty", field="path")
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}", field="path") from error
    return place


def columns_of(
    label: str,
    classes: Sequence[str] | None,
    features: Sequence[Feature] | None,
    unit: str,
    group: str | None,
) -> Columns:
    """What a registration says of columns, as readers take it."""
    return Columns(
        label=label,
        classes=None if classes is None else tuple(classes),
        features=tuple(features) if features else None,
        user=None if unit == RECORD else unit,
        group=group,
    )


def read_parts(source: Source, path: str | None, names: Columns) -> Parts:
    """Every part that is stored, ``train`` at least.

    Raises:
        DatasetError: it cannot be read, or has no columns to say what is asked for.
    """
    if source not in ("parquet", "table") and not names.are_plain:
        raise DatasetError(
            f"source {source} has no columns to say whose or which group's a record is; accepted: "
            "Parquet and CSV files",
            field="unit" if names.user is not None else "group",
        )
    if source == "digits":
        return digits.read()
    place = existing(path)
    try:
        parts = _read_files(source, place, names)
    except OSError as error:
        raise DatasetError(f"{place}: cannot be read: {error}", field="path") from error
    if "train" not in parts:
        raise DatasetError(f"{place}: no records for source {source}", field="path")
    return parts


def _read_files(source: Source, place: Path, names: Columns) -> Parts:
    if source == "parquet":
        return columns.read_images(place, names)
    if source == "table":
        return columns.read_table(place, names)
    if source == "npz":
        return npz.read(place, names.classes)
    return image_folder.read(place, names.classes)


def check_labels(parts: Parts, num_classes: int) -> None:
    """Refuse labels that number no class, and numbers of classes that no model has."""
    most = max(num_classes, 2) - 1  # of one class alone the number of classes is refused, below
    for role, part in parts.items():
        bad = np.flatnonzero((part.labels < 0) | (part.labels > most))
        if bad.size:
            row = int(bad[0])
            raise DatasetError(
                f"{role} record {row} has label {part.labels[row]}; accepted: 0 to {most}",
                field="label",
            )
    if num_classes < 2:
        raise DatasetError(
            f"at least 2 classes are needed, got num_classes {num_classes}", field="num_classes"
        )
    if num_classes > MAX_CLASSES:
        raise DatasetError(
            f"at most {MAX_CLASSES:,} classes are accepted, got num_classes {num_classes:,}; labels "
            "number the classes from 0",
            field="num_classes",
        )
