"""``model.pretrained``: weights that a study begins from, and what is declared about them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, ValidationError, model_validator

from tan_core.spec.base import Frozen, fault

Part = Literal["norms", "biases"]
"""Parameters that are few, and all through the backbone: trained beside the classifier, all else frozen."""

Beside = Literal[Part, "lora"]
"""What may be trained beside the classifier: a part, or low-rank factors that are put beside linear layers."""

Trained = Literal["all", "classifier", Beside]

DEFAULT_RANK = 8

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
    all normalisations, all biases, or low-rank factors of the other linear layers (LoRA)."""
    rank: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """Of the factors of ``train: lora``, 8 unless said; of nothing else."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Of the file. Left out: fixed when the study is submitted."""

    @model_validator(mode="before")
    @classmethod
    def _has_a_rank_where_it_is_of_factors(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        rank, train = given.get("rank"), given.get("train", "all")
        if train == "lora" and rank is None:
            return {**given, "rank": DEFAULT_RANK}
        if train != "lora" and rank is not None:
            message = f"rank is of the factors of train: lora, and nothing else; train is {train}"
            found = fault("rank", ("rank",), rank, message)
            raise ValidationError.from_exception_data(cls.__name__, [found])
        return given


_LACKED: dict[Beside, str] = {
    "norms": "no normalisation that has a scale or a shift",
    "biases": "no bias but that of its classifier",
    "lora": "no linear layer before its classifier that factors can be put beside",
}


def lacking(part: Beside, name: str, *, accepted: Sequence[str]) -> str:
    """Why a part of a model of this name cannot be trained.

    Example:
        >>> lacking("norms", "mlp", accepted=["all", "biases"])
        'train: norms: model mlp has no normalisation that has a scale or a shift; accepted: all, biases'
    """
    return f"train: {part}: model {name} has {_LACKED[part]}; accepted: {', '.join(accepted)}"
