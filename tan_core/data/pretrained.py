"""Where a checkpoint lies, and which file it is. Nothing is read of it but bytes to hash."""

import hashlib
from pathlib import Path

from tan_core.errors import PretrainedError


def locate(path: str, directory: Path | None) -> Path:
    """The file of ``model.pretrained.path``, if it lies below ``directory``, links followed.

    Args:
        path: absolute, or relative to ``directory``.
        directory: the one folder that the operator allows; None: there is none.

    Raises:
        PretrainedError: no folder is allowed, the file lies elsewhere, or there is none. What lies
            elsewhere is refused alike, whether it exists or not.
    """
    field = "model.pretrained.path"
    if directory is None:
        raise PretrainedError(
            f"no checkpoint may be read here, got {path!r}; allowed by TAN_PRETRAINED_DIR: none",
            field=field,
        )
    root = directory.expanduser().resolve()
    try:
        file = (root / path).resolve()
        if not file.is_relative_to(root):
            raise PretrainedError(
                f"{path!r} does not lie below the folder allowed by TAN_PRETRAINED_DIR: {root}",
                field=field,
            )
        is_file = file.is_file()
    except (OSError, RuntimeError) as error:  # links in a circle, names that are too long
        raise PretrainedError(f"{path!r} cannot be found: {error}", field=field) from error
    if not is_file:
        raise PretrainedError(
            f"{path!r} is not a file below TAN_PRETRAINED_DIR: {root}", field=field
        )
    return file


def sha256_of(file: Path) -> str:
    """SHA-256 of the bytes, as hex.

    Raises:
        PretrainedError: they cannot be read.
    """
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise PretrainedError(
            f"{file}: cannot be read: {error.strerror}", field="model.pretrained.path"
        ) from error
