"""How a model is trained: what a user fixes under ``train:`` and what a trial may vary."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from tan_core.spec.base import Frozen

PositiveFloat = Annotated[float, Field(gt=0, le=1e9)]


class Optimizer(StrEnum):
    """Optimisers over the noisy mean gradient; post-processing, so none of them costs epsilon."""

    SGD = "sgd"
    ADAM = "adam"


class TrainerConfig(Frozen):
    """Everything the engine needs beside the mechanism and the model. A trial may vary any of it.

    ``learning_rate`` is in units of one clipped gradient: the update is
    ``learning_rate * noisy_sum / (clip_norm * expected_batch_size)``, so the learning rate and the
    clipping norm do not have to be tuned together (Sander et al. 2023, eq. 5).
    """

    learning_rate: PositiveFloat = 1.0
    optimizer: Optimizer = Optimizer.SGD
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    ema_decay: Annotated[float, Field(ge=0, lt=1)] = 0.0
    clip_norm: PositiveFloat = 1.0
    augmentation_multiplicity: Annotated[int, Field(ge=1, le=256)] = 1
    crop_padding: Literal["auto"] | Annotated[int, Field(ge=0, le=64)] = "auto"
    """Pixels of reflect padding before a random crop; auto: an eighth of the side when K > 1."""
    horizontal_flip: bool = False


class TrainSpec(TrainerConfig):
    """The ``train`` section: the shape of the private run, and the trainer's fixed values."""

    batch_size: Literal["auto"] | Annotated[int, Field(ge=1, le=100_000_000)] = "auto"
    """Expected batch B. auto: the smallest power of two with noise multiplier >= 2."""
    steps: Literal["auto"] | Annotated[int, Field(ge=1, le=10_000_000)] = "auto"
    noise_multiplier: Annotated[float, Field(gt=0, le=10_000)] | None = None
    """Fixed: epsilon is computed. Absent: it is calibrated to ``privacy.epsilon``."""
    workers: Annotated[int, Field(ge=1, le=1024)] = 2
    """Ray Train ranks of the private run. They do not change the mechanism."""
    microbatch_size: Annotated[int, Field(ge=1, le=65536)] = 256
    """Examples in memory at once. A performance knob: it cannot change the update."""

    def trainer(self) -> TrainerConfig:
        """The part that the engine and the trials see."""
        return TrainerConfig.model_validate(
            {name: getattr(self, name) for name in TrainerConfig.model_fields}
        )
