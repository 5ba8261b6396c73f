"""Checkpoints and released weights on storage: safetensors with JSON metadata, never pickled.

One file holds everything, so its SHA-256 covers tensors, step and mechanism alike. The run key is not
in it: a new attempt draws fresh randomness.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from tan_core import _validate
from tan_core.engine.trainer import Trainer, TrainerState
from tan_core.errors import ParameterError

Place: TypeAlias = str | os.PathLike[str]
"""Of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCheckpoint:
    """A checkpoint whose hash was right; ``trainer.load_state(c.state)`` checks that it fits."""

    state: TrainerState
    extra: Mapping[str, Any]

    @property
    def step(self) -> int:
        """Steps taken when it was written."""
        return int(self.state.meta["step"])


class Draft:
    """A file that storage has taken and may still lose: it is under a name of its own until it is kept.

    Args:
        path: what it will be called.
        content: all of it; in memory until it is kept.

    Raises:
        OSError: there is no room for it, or no such folder can be made; nothing of it is left.
    """

    def __init__(self, path: Path, content: bytes) -> None:
        self.path = path
        self._content = content
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        _make_folder(path.parent)
        self._stream: BinaryIO = self._temporary.open("wb")
        try:
            self._stream.write(content)
            self._stream.flush()
        except BaseException:
            self._discard()
            raise

    def keep(self) -> str:
        """Wait until it is durable, and give it its name; its SHA-256, as hex. From any thread, once.

        After a crash at any moment, ``path`` holds either what it held before or the whole file.
        """
        try:
            os.fsync(self._stream.fileno())
            self._temporary.replace(self.path)
        finally:
            self._discard()
        _sync(self.path.parent)
        return hashlib.sha256(self._content).hexdigest()

    def _discard(self) -> None:
        self._temporary.unlink(missing_ok=True)
        self._stream.close()  # which may fail again where writing has failed


def _make_folder(folder: Path) -> None:
    """Make it, and its name in the folder above durable."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        _sync(each.parent)


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def draft(path: Place, trainer: Trainer, extra: Mapping[str, Any] | None = None) -> Draft:
    """Copy the trainer's state and ``extra`` (JSON) into a checkpoint that is to be kept."""
    _validate.instance(Trainer, trainer=trainer)
    _validate.optional(Mapping, extra=extra)
    state = trainer.state()
    metadata = {"meta": dict(state.meta), "extra": dict(extra or {})}
    content = save_tensors(dict(state.tensors), metadata=_as_strings("extra", metadata))
    return Draft(_place(path), content)


def save(path: Place, trainer: Trainer, extra: Mapping[str, Any] | None = None) -> str:
    """Write the trainer's state and ``extra`` (JSON), and wait; the SHA-256 of the file, as hex.

    Raises:
        ParameterError: an argument is of another kind, or ``extra`` holds what JSON cannot.
        OSError: the file cannot be written.
    """
    return draft(path, trainer, extra).keep()


def load(path: Place, sha256: str) -> LoadedCheckpoint:
    """The checkpoint at ``path``, if it is the very file that ``sha256`` was reported for.

    Raises:
        ParameterError: missing, changed or malformed; ``field`` is "checkpoint". Or an argument is of another
            kind; ``field`` names it.
    """
    if not isinstance(sha256, str):  # pyright: ignore[reportUnnecessaryIsInstance] whoever has none would trust any file
        raise ParameterError(
            "sha256 must be the digest that save() returned, as hexadecimal text: a checkpoint is read "
            f"only if it is that very file; got {sha256!r:.80}",
            field="sha256",
        )
    content = _read(_place(path), sha256)
    try:
        tensors = load_tensors(content)
        metadata = _metadata(content)
        state = TrainerState(tensors=tensors, meta=metadata["meta"])
        return LoadedCheckpoint(state=state, extra=metadata["extra"])
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ParameterError(f"{path}: not a checkpoint: {error}", field="checkpoint") from error


def keep_weights(weights: Mapping[str, Tensor], path_of: Callable[[str], Place]) -> str:
    """Write weights by parameter name under a name that their digest is part of; the file's SHA-256, as hex.

    Args:
        weights: by name.
        path_of: the file, by the SHA-256 of what it will hold.

    Raises:
        OSError: the file cannot be written.
    """
    content = save_tensors(dict(weights))
    return Draft(_place(path_of(hashlib.sha256(content).hexdigest())), content).keep()


def save_weights(
    path: Place, weights: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None
) -> str:
    """Write released weights by parameter name with JSON ``metadata``; the file's SHA-256, as hex.

    Raises:
        ParameterError: an argument is of another kind, or ``metadata`` holds what JSON cannot.
        OSError: the file cannot be written.
    """
    _validate.instance(Mapping, weights=weights)
    _validate.optional(Mapping, metadata=metadata)
    for name, weight in weights.items():
        _validate.instance(Tensor, **{f"weights[{name!r}]": weight})
    content = save_tensors(dict(weights), metadata=_as_strings("metadata", metadata or {}))
    return Draft(_place(path), content).keep()


def load_weights(path: Place, sha256: str) -> dict[str, Tensor]:
    """Weights by parameter name, if the file at ``path`` is the very one that ``sha256`` was told of.

    Raises:
        ParameterError: missing, changed or malformed; ``field`` is "checkpoint".
    """
    content = _read(_place(path), sha256)
    try:
        return load_tensors(content)
    except SafetensorError as error:
        raise ParameterError(f"{path}: holds no weights: {error}", field="checkpoint") from error


def _as_strings(field: str, metadata: Mapping[str, Any]) -> dict[str, str]:
    try:
        return {
            key: json.dumps(value, sort_keys=True, allow_nan=False)
            for key, value in metadata.items()
        }
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{field} must be JSON: {error}", field=field) from error


def _place(path: object) -> Path:
    """Where a file is, or is to be."""
    try:
        found = Path(path)  # pyright: ignore[reportArgumentType] whatever it is
        os.fsencode(found)
    except (TypeError, ValueError):
        found = Path()
    if not found.name:
        raise ParameterError(f"path must be that of a file, got {path!r:.80}", field="path")
    return found


def _metadata(content: bytes) -> dict[str, Any]:
    """The metadata of the very bytes that were hashed: a length, then a JSON header."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    return {key: json.loads(value) for key, value in header["__metadata__"].items()}


def _read(path: Path, sha256: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ParameterError(f"{path}: {error.strerror}", field="checkpoint") from error
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        raise ParameterError(
            f"{path}: sha256 is {actual[:16]}..., reported was {sha256[:16]}...", field="checkpoint"
        )
    return content
