"""One stored part of a dataset (train, validation or test), before it is split or decoded."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tan_core.errors import DatasetError
from tan_core.spec.columns import Feature

Source = Literal["digits", "parquet", "image_folder", "npz", "table"]
Role = Literal["train", "validation", "test"]
Labels = NDArray[np.int64]

AS_NUMBERS = "integers from 0, as numpy.unique(values, return_inverse=True)[1] makes of any"
"""What labels have to be unless their classes are named, and numbers of users."""
_NAMED_AT_ONCE = 10
ROLES: tuple[Role, ...] = ("train", "validation", "test")
_STEMS: Mapping[str, Role] = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}


class Inputs(Protocol):
    """The records of one part: cheap to describe, decoded only when asked."""

    def __len__(self) -> int:
        """How many records."""
        ...

    def shape(self) -> tuple[int, ...]:
        """Shape of every record, channels first; a DatasetError when they differ."""
        ...

    def check_whole(self) -> None:
        """Raise a DatasetError where a record was cut off, as far as can be told without decoding it."""
        ...

    def load(self, indices: NDArray[np.intp]) -> NDArray[Any]:
        """The records at ``indices``, in that order."""
        ...


@dataclass(frozen=True, slots=True)
class Members:
    """Which of the named ones each record belongs to."""

    names: tuple[str, ...]
    """Distinct."""
    of: NDArray[np.int64]
    """[records], into ``names``."""

    def at(self, indices: NDArray[np.intp]) -> Self:
        """Those of some records."""
        return type(self)(self.names, self.of[indices])


@dataclass(frozen=True, slots=True)
class Part:
    """Records and labels that were stored together under one role."""

    inputs: Inputs
    labels: Labels
    users: Members | None = None
    """Whose each record is; None: every record is a unit of its own."""
    groups: Members | None = None
    unread: tuple[str, ...] = ()
    """What is stored beside the records and nothing reads: columns of a table, where no number is in them and nobody asked for
    them; arrays of other names."""
    features: tuple[str, ...] = ()
    """Names of a table's features, in their order, where they have any."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns hold the label and the features, whose a record is, and which group's."""

    label: str = "label"
    classes: tuple[str, ...] | None = None
    """What text in the label column may be, by the number of its class."""
    features: tuple[Feature, ...] | None = None
    user: str | None = None
    group: str | None = None

    @property
    def are_plain(self) -> bool:
        """Whether a source without named columns has all that is asked for."""
        return self.user is None and self.group is None


Parts = dict[Role, Part]
"""At least ``train``."""


@dataclass(frozen=True, slots=True)
class ArrayInputs:
    """Records that are in memory already: uint8 [N, C, H, W] or float32 [N, F]."""

    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)

    def shape(self) -> tuple[int, ...]:
        """Shape of every record."""
        return self.values.shape[1:]

    def check_whole(self) -> None:
        """They are in memory, whole."""

    def load(self, indices: NDArray[np.intp]) -> NDArray[Any]:
        """The records at ``indices``."""
        return self.values[indices]


def role_of(name: str) -> Role | None:
    """The role that a file's stem or a folder's name claims: ``train-00000-of-00002`` is train."""
    head = name.lower().split(".")[0]
    for separator in ("-", "_"):
        head = head.split(separator)[0]
    return _STEMS.get(head)


def files_by_role(path: Path, *, suffix: str) -> dict[Role, list[Path]]:
    """The files with this suffix and the part each belongs to; one file alone is all train.

    A folder may hold the files itself, under ``data/``, or under one folder per role.
    """
    if path.is_file():
        return {"train": [path]}
    found = _files_by_role(path, suffix=suffix)
    for files in found.values():
        refuse_twice(files)
    return found


def _files_by_role(path: Path, *, suffix: str) -> dict[Role, list[Path]]:
    found: dict[Role, list[Path]] = {}
    unnamed: list[Path] = []
    for file in sorted(visible_files(path, suffix=suffix)):
        role = role_of(file.name)
        if role is None and file.parent != path:  # what the folder itself is called says nothing
            role = role_of(file.parent.name)
        if role is None:
            unnamed.append(file)
        else:
            found.setdefault(role, []).append(file)
    if not found and unnamed:
        return {"train": unnamed}
    if unnamed:
        raise DatasetError(
            f"{unnamed[0]}: cannot tell which split this file belongs to; "
            "names start with train, validation or test",
            field="path",
        )
    if found and "train" not in found:
        raise DatasetError(f"{path} holds no train part, only {sorted(found)}", field="path")
    return found


def refuse_twice(files: Collection[Path]) -> None:
    """Refuse a file that a part would hold under two names, by a link: each of its records would be two, at half the protection.

    Links to one file elsewhere are let pass, as equal files are: where contents are stored by their hash, equal records are one.

    Raises:
        DatasetError: naming both.
    """
    places = {folder: folder.resolve() for folder in {file.parent for file in files}}
    named: dict[Path, Path] = {}
    for file in files:
        _refuse_two(named.setdefault(places[file.parent] / file.name, file), file)
    for file in filter(Path.is_symlink, files):
        _refuse_two(named.get(file.resolve(), file), file)


def _refuse_two(one: Path, other: Path) -> None:
    if one is not other:
        raise DatasetError(
            f"{one} and {other} are one file, whose records would count twice; accepted: every file under one name",
            field="path",
        )


def visible_files(folder: Path, *, suffix: str) -> list[Path]:
    """Files of a folder and of its ``data``, ``train``, ... sub-folders; hidden ones are left out."""
    folders = [folder, *(f for f in (folder / "data", *_role_folders(folder)) if f.is_dir())]
    return [
        file
        for place in folders
        for file in place.iterdir()
        if file.suffix.lower() == suffix and not file.name.startswith(".") and file.is_file()
    ]


def _role_folders(folder: Path) -> list[Path]:
    return [child for child in folder.iterdir() if child.is_dir() and role_of(child.name)]


def named_labels(members: Members, classes: Sequence[str] | None, *, where: str) -> Labels:
    """The number of each record's class among those that were named, or a DatasetError that says what is missing."""
    if classes is None:
        raise DatasetError(
            f"{where}: labels are text: name their classes in the order of their numbers; to read them off "
            "private records would tell which there are",
            field="classes",
        )
    number = {name: label for label, name in enumerate(classes)}
    of_names = np.array([number.get(name, -1) for name in members.names], dtype=np.int64)
    labels = of_names[members.of]
    unknown = np.flatnonzero(labels < 0)
    if unknown.size:
        row = int(unknown[0])
        accepted = ", ".join(map(repr, classes[:_NAMED_AT_ONCE]))
        more = (
            f" and {len(classes) - _NAMED_AT_ONCE:,} more" if len(classes) > _NAMED_AT_ONCE else ""
        )
        raise DatasetError(
            f"{where}: record {row} has the label {members.names[members.of[row]]!r}; "
            f"accepted: the classes {accepted}{more}, letter by letter",
            field="label",
        )
    return labels


def integer_labels(values: NDArray[Any], *, where: str) -> Labels:
    """Labels as int64, true as 1, or a DatasetError that says what they are instead."""
    flat = values.reshape(len(values)) if values.size == len(values) else values
    if flat.ndim != 1:
        raise DatasetError(
            f"{where}: labels must be one integer per record, got shape {list(values.shape)}",
            field="label",
        )
    if flat.dtype.kind == "b":
        return flat.astype(np.int64)
    if flat.dtype.kind not in "iu":  # a span of time is an integer to NumPy
        raise DatasetError(
            f"{where}: labels must be integers from 0 or truth values, got {flat.dtype}",
            field="label",
        )
    above = np.flatnonzero(flat > np.iinfo(np.int64).max)
    if above.size:
        row = int(above[0])
        raise DatasetError(
            f"{where}: record {row} has label {flat[row]}, above every number of classes",
            field="label",
        )
    return flat.astype(np.int64)


def as_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Numbers as float32; infinite where they are too large for it."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)
