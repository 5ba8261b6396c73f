"""Checkpoints and released weights on storage: safetensors with JSON metadata, never pickled.

One file holds everything, so its SHA-256 covers tensors, step and mechanism alike. The run key is not
in it: a new attempt draws fresh randomness.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from tan_core.engine.trainer import Trainer, TrainerState
from tan_core.errors import ParameterError


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCheckpoint:
    """A checkpoint whose hash was right; ``trainer.load_state(c.state)`` checks that it fits."""

    state: TrainerState
    extra: Mapping[str, Any]

    @property
    def step(self) -> int:
        """Steps taken when it was written."""
        return int(self.state.meta["step"])


def save(path: Path, trainer: Trainer, extra: Mapping[str, Any] | None = None) -> str:
    """Write the trainer's state and ``extra`` (JSON); the SHA-256 of the file, as hex.

    After a crash at any moment, ``path`` holds either what it held before or the whole checkpoint.
    """
    state = trainer.state()
    metadata = {"meta": dict(state.meta), "extra": dict(extra or {})}
    return _write(path, save_tensors(dict(state.tensors), metadata=_as_strings(metadata)))


def load(path: Path, sha256: str) -> LoadedCheckpoint:
    """The checkpoint at ``path``, if it is the very file that ``sha256`` was reported for.

    Raises:
        ParameterError: missing, changed or malformed; ``field`` is "checkpoint".
    """
    content = _read(path, sha256)
    try:
        tensors = load_tensors(content)
        metadata = _metadata(content)
        state = TrainerState(tensors=tensors, meta=metadata["meta"])
        return LoadedCheckpoint(state=state, extra=metadata["extra"])
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ParameterError(f"{path}: not a checkpoint: {error}", field="checkpoint") from error


def save_weights(
    path: Path, weights: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None
) -> str:
    """Write released weights by parameter name with JSON ``metadata``; the file's SHA-256, as hex."""
    return _write(path, save_tensors(dict(weights), metadata=_as_strings(metadata or {})))


def _as_strings(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: json.dumps(value, sort_keys=True, allow_nan=False) for key, value in metadata.items()
    }


def _metadata(content: bytes) -> dict[str, Any]:
    """The metadata of the very bytes that were hashed: a length, then a JSON header."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    return {key: json.loads(value) for key, value in header["__metadata__"].items()}


def _write(path: Path, content: bytes) -> str:
    """Temporary file, fsync, rename, fsync of the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return hashlib.sha256(content).hexdigest()


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
