"""The files of a dataset and the digest of its content: what it is known by, wherever it lies."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tan_core.data import columns, digits, image_folder
from tan_core.data.part import Source, files_by_role
from tan_core.data.sources import existing
from tan_core.errors import DatasetError


class File(NamedTuple):
    """One of the files: in which part it is, its path below the dataset's and the digest of its bytes."""

    role: str
    name: str
    sha256: str


def hashed_files(source: Source, path: str | None) -> list[File]:
    """Every file that is read, named as seen from ``path``; ``digits`` count as one file."""
    if source == "digits":
        return [File("train", "digits", digits.content_sha256())]
    place = existing(path)
    root = place if place.is_dir() else place.parent
    try:
        return [
            File(role, file.relative_to(root).as_posix(), _file_sha256(file))
            for role, file in _files(source, place)
        ]
    except OSError as error:
        raise DatasetError(f"{place}: cannot be read: {error}", field="path") from error


def _files(source: Source, place: Path) -> list[tuple[str, Path]]:
    if source == "npz":
        return [("train", place)]
    if source == "image_folder":
        return [
            (f"{role}/{name}", file)
            for role, classes in image_folder.files_by_class(place).items()
            for name, files in classes.items()
            for file in files
        ]
    by_role = (
        columns.table_files(place) if source == "table" else files_by_role(place, suffix=".parquet")
    )
    return [(role, file) for role, files in by_role.items() for file in files]


def _file_sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content_sha256(source: Source, files: Sequence[File]) -> str:
    """SHA-256 over (role, digest of the file) of every file, by role and in the order in which they are read.

    Records are known by their place: which are cut off for another split, which are a user's, and which a cache
    or another node holds there. Renaming files changes nothing as long as it leaves their order. The class
    folder of an image is part of its role, because there it is the label. The bundled ``digits`` are known
    by their own digest.
    """
    if source == "digits":
        return files[0].sha256
    entries = [f"{file.role}:{file.sha256}" for file in sorted(files, key=lambda file: file.role)]
    return hashlib.sha256("\n".join(entries).encode()).hexdigest()


def name_by_digest(files: Sequence[File]) -> dict[str, str]:
    """The first name of each digest, by digest."""
    names: dict[str, str] = {}
    for file in sorted(files, key=lambda file: (file.sha256, file.name)):
        names.setdefault(file.sha256, file.name)
    return names
