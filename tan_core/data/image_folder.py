"""One folder per class, below ``train/`` and ``test/`` when those are present."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tan_core.data.images import ImageFiles, ImageInputs
from tan_core.data.part import Part, Parts, Role, refuse_twice, role_of
from tan_core.errors import DatasetError

SUFFIXES = frozenset([".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"])  # fmt: skip


def recognises(path: Path) -> bool:
    """Whether some class folder below holds an image."""
    return path.is_dir() and any(_images(c) for r in _roots(path).values() for c in _folders(r))


def files_by_class(path: Path) -> dict[Role, dict[str, list[Path]]]:
    """Image files of every class of every part; the classes of train say what a label means."""
    found: dict[Role, dict[str, list[Path]]] = {
        role: {folder.name: _images(folder) for folder in _folders(root)}
        for role, root in _roots(path).items()
    }
    for classes in found.values():
        refuse_twice([file for files in classes.values() for file in files])
    if "train" not in found or not any(found["train"].values()):
        raise DatasetError(f"{path}: no class folders with images", field="path")
    empty = [name for name, files in found["train"].items() if not files]
    if empty:
        raise DatasetError(f"{path}: class folder {empty[0]!r} holds no images", field="path")
    return found


def num_folders_within(path: Path) -> int:
    """Folders with images in the class folders of every part: no class says that these are its own."""
    within = [
        folder
        for root in _roots(path).values()
        for of_class in _folders(root)
        for folder in _folders(of_class)
    ]
    return sum(_may_be_read(folder) and bool(_images(folder)) for folder in within)


def _may_be_read(folder: Path) -> bool:
    return os.access(folder, os.R_OK | os.X_OK)


def class_names(path: Path) -> list[str]:
    """Names of the class folders of train, by their label."""
    folders = _folders(_roots(path)["train"])
    return sorted((folder.name for folder in folders), key=_class_order)


def read(path: Path, classes: Sequence[str] | None = None) -> Parts:
    """Every part; labels number the classes, or else the class folders in order of their names, digits by value."""
    found = files_by_class(path)
    names = sorted(found["train"], key=_class_order) if classes is None else classes
    number = {name: label for label, name in enumerate(names)}
    parts: Parts = {}
    for role, folders in found.items():
        unknown = sorted(set(folders) - set(number))
        if unknown:
            raise DatasetError(
                f"{path}: {role} has the class {unknown[0]!r} that "
                + ("train does not have" if classes is None else "is none of those named"),
                field="path" if classes is None else "classes",
            )
        pairs = [
            (f, number[name]) for name in sorted(folders, key=_class_order) for f in folders[name]
        ]
        if not pairs:
            continue
        parts[role] = Part(
            ImageInputs(ImageFiles([file for file, _ in pairs]), f"{path} ({role})"),
            np.array([label for _, label in pairs], dtype=np.int64),
        )
    return parts


def _roots(path: Path) -> dict[Role, Path]:
    roots: dict[Role, Path] = {}
    for child in _folders(path):
        role = role_of(child.name)
        if role is None:
            continue
        if role in roots:
            raise DatasetError(
                f"{path}: folders {roots[role].name!r} and {child.name!r} both name the {role} part; "
                "accepted: one of each",
                field="path",
            )
        roots[role] = child
    return roots or {"train": path}


def _folders(path: Path) -> list[Path]:
    return sorted(c for c in path.iterdir() if c.is_dir() and not c.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    return sorted(f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES and f.is_file())


def _class_order(name: str) -> tuple[int, int, str]:
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)
