"""``model.pretrained``: weights that a study begins from, and what is declared about them."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from tan_core.spec.base import Frozen

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
    train: Literal["all", "classifier"] = "all"
    """Every layer, or the last linear layer alone, which then starts anew."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Of the file. Left out: fixed when the study is submitted."""
