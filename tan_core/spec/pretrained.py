"""``model.pretrained``: weights that a study begins from, and what is declared about them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from tan_core.spec.base import Frozen

Part = Literal["norms", "biases"]
"""Parameters that are few, and all through the backbone: trained beside the classifier, all else frozen."""

Trained = Literal["all", "classifier", Part]

CheckpointDirectory = Annotated[Path | None, BeforeValidator(lambda value: value or None)]
"""The one folder below which checkpoints are read; an empty text is none, not the working folder."""


class Pretrained(Frozen):
    """A checkpoint, what it was trained on, and how much of it is trained further."""

    path: Annotated[
        str, Field(max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+\.(safetensors|pt|pth)$")
    ]
    """Below the folder that the server allows, ``TAN_PRETRAINED_DIR``: absolute, or relative to it."""
    data: Annotated[
        str,
        StringConstraints(
            strip_whitespace=True, max_length=2000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]+$"
        ),
    ]
    """What it was trained on and under which privacy, in words; the signed statement repeats them."""
    train: Trained = "all"
    """Every layer, or the last linear layer alone, which then starts anew; or, beside that layer, scale and shift of
    all normalisations, or all biases."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Of the file. Left out: fixed when the study is submitted."""


_LACKED: dict[Part, str] = {
    "norms": "no normalisation that has a scale or a shift",
    "biases": "no bias but that of its classifier",
}


def lacking(part: Part, name: str, *, accepted: Sequence[str]) -> str:
    """Why a part of a model of this name cannot be trained.

    Example:
        >>> lacking("norms", "mlp", accepted=["all", "biases"])
        'train: norms: model mlp has no normalisation that has a scale or a shift; accepted: all, biases'
    """
    return f"train: {part}: model {name} has {_LACKED[part]}; accepted: {', '.join(accepted)}"
