"""Weights in a file: safetensors, or tensors that ``torch.save`` wrote. Nothing in it is ever run."""

import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from safetensors.torch import load as load_safetensors
from torch import Tensor

from tan_core.errors import PretrainedError
from tan_core.spec.models import Model, ModelSpec

_NESTED_UNDER = ("state_dict", "model_state_dict", "model")
_OF_CODE = re.compile(r"Unsupported global: GLOBAL (\S+)")
"""How torch says what it would have had to import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Weights by name, as they lie in a file."""

    path: str
    weights: Mapping[str, Tensor]
    model: Model | None = None
    """Of which model they are, as the released weights of a study say; None: not known."""


def read(file: Path, sha256: str | None) -> Checkpoint:
    """The checkpoint at ``file``, if it is the very file that was hashed before.

    Args:
        file: ``.safetensors``; or a torch file of a mapping from names to tensors, which may stand
            under ``state_dict``, ``model_state_dict`` or ``model``. It is read with ``weights_only=True``.
        sha256: fixed at submission; None fits no file.

    Raises:
        PretrainedError: missing, changed, or anything but names and tensors.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise PretrainedError(
            f"{file}: cannot be read: {error.strerror}", field="model.pretrained.path"
        ) from error
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        raise PretrainedError(
            f"{file}: is not the file that was submitted: its sha256 is {actual}, expected {sha256}",
            field="model.pretrained.sha256",
        )
    try:
        if file.suffix == ".safetensors":
            weights, model = load_safetensors(content), _stated_model(content)
        else:
            weights, model = _load_torch(content), None
    except Exception as error:  # whatever a malformed file makes the readers trip over
        raise PretrainedError(
            f"{file}: expected a file of named tensors and nothing else, as torch.save(model.state_dict(), PATH) "
            f"writes: {_reason(error)}",
            field="model.pretrained.path",
        ) from error
    return Checkpoint(path=str(file), weights=weights, model=model)


def _reason(error: Exception) -> str:
    """In a line. What torch says of code in a file is how to run it all the same."""
    if of_code := _OF_CODE.search(str(error)):
        return f"it holds a {of_code[1]}, which is code"
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _load_torch(content: bytes) -> dict[str, Tensor]:
    loaded: Any = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if not isinstance(loaded, Mapping):
        raise TypeError(f"it holds a {type(loaded).__name__}")
    for key in _NESTED_UNDER:
        if isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
            break
    for name, value in loaded.items():
        if not (isinstance(name, str) and isinstance(value, Tensor)):
            raise TypeError(f"{name!r} is a {type(value).__name__}")
    return dict(loaded)


def _stated_model(content: bytes) -> Model | None:
    """What the metadata say, where a study of this product wrote them."""
    size = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + size]).get("__metadata__") or {}
    if not {"study_id", "model"} <= metadata.keys():
        return None
    stated: Model = TypeAdapter(ModelSpec).validate_json(metadata["model"])
    return stated
