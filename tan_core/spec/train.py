"""How a model is trained: what a user fixes under ``train:`` and what a trial may vary."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StrictBool

from tan_core.spec.base import Frozen
from tan_core.spec.needs import Need

PositiveFloat = Annotated[float, Field(gt=0, le=1e9)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Bounding = Annotated[float, Field(ge=1e-15, le=1e9)]
"""What bounds a gradient: below it, float32 would round what is added by more than the bound, or make it infinite."""


UNAUGMENTED: Final[Mapping[str, tuple[Any, ...]]] = {
    "augmentation_multiplicity": (1,),
    "crop_padding": (0, "auto"),
    "horizontal_flip": (False,),
    "color_jitter": (0,),
}
"""Fields and values that leave every record as it is; auto pads nothing when K = 1."""


MAX_CLASSES: Final = 100_000
"""Whose shares a study may state."""
MOST_APART: Final = 1e6
"""Times that one of them may be another: of a class that is rarer, no split that a study reads would have a record."""


def _comparable(shares: list[float]) -> list[float]:
    if max(shares) > MOST_APART * min(shares):
        raise ValueError(
            f"the largest share is {max(shares) / min(shares):.3g} times the least; accepted: at most {MOST_APART:,.0f} times"
        )
    return shares


MOST_NOISE: Final = 10_000
"""Noise multiplier: more is none that a target needs."""
MICROBATCH_SIZE: Final = 256
"""Views at once where nobody chose; of a GPU it stands for as many as fit."""


class Optimizer(StrEnum):
    """Optimisers over the noisy mean gradient; post-processing, so none of them costs epsilon."""

    SGD = "sgd"
    """With momentum, if there is any."""
    ADAM = "adam"
    """Adam with the weight decay in the gradient."""
    ADAMW = "adamw"
    """Adam with the weight decay beside the gradient and not in it."""


class Schedule(StrEnum):
    """How the learning rate goes from its whole value to its last one, after the warm-up."""

    CONSTANT = "constant"
    """It stays."""
    LINEAR = "linear"
    """Along a line."""
    COSINE = "cosine"
    """Along half a cosine."""


class Clipping(StrEnum):
    """What bounds the gradient of an example."""

    PER_EXAMPLE = "per_example"
    """Shortened to the clipping norm where it is longer."""
    AUTOMATIC = "automatic"
    """Normalised to just below the clipping norm, the short ones too."""
    NONE = "none"
    """Nothing: noisy SGD, which has no epsilon. For a simulation alone, never for a study."""


class Precision(StrEnum):
    """Of the passes through the model. Norms, sums and weights are float32 in both, and noise no less."""

    FLOAT32 = "float32"
    """All of them, there and back."""
    BFLOAT16 = "bfloat16"
    """Products of matrices and convolutions round what they read and write to 8 bits: a matter of speed and of
    the gradient's quality, not of epsilon."""


class TrainerConfig(Frozen):
    """Everything the engine needs beside the mechanism and the model. A trial may vary any of it.

    ``learning_rate`` is in units of one clipped gradient: the update is
    ``learning_rate * noisy_sum / (clip_norm * expected_batch_size)``, so the learning rate and the
    clipping norm do not have to be tuned together (Sander et al. 2023, eq. 5). The optimisers are those
    of torch on that gradient. Schedule and warm-up are over the run, whatever its number of steps.

    A field that another one makes idle, as ``beta2`` under SGD, is ignored, for a search may combine
    them freely; a study in which no candidate reads it is refused (:data:`NEEDS`).
    """

    learning_rate: PositiveFloat = 1.0
    """In units of one clipped gradient, so that it does not have to be tuned with ``clip_norm``."""
    schedule: Schedule = Schedule.CONSTANT
    """How the learning rate goes to its last value."""
    warmup_fraction: Fraction = 0.0
    """Part of the steps in which the learning rate rises to its whole value."""
    final_learning_rate_fraction: Fraction = 0.0
    """Where linear and cosine end, as a part of ``learning_rate``."""
    optimizer: Optimizer = Optimizer.SGD
    """Over the noisy mean gradient; none of them costs epsilon."""
    momentum: Fraction = 0.0
    """Of SGD; above 0 it replaces ``beta1`` of Adam, unless a search varies both."""
    dampening: Fraction = 0.0
    """Part of each gradient but the first that the momentum of SGD leaves out."""
    beta1: Fraction = 0.9
    """Of Adam: how much of the mean gradient is kept at each step."""
    beta2: Fraction = 0.999
    """Of Adam: how much of the mean square is kept at each step."""
    adam_epsilon: PositiveFloat = 1e-8
    """Of Adam: what is added to the root of the mean square. No privacy parameter."""
    weight_decay: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """Times the weights: into the gradient (sgd, adam), or off the weights at each step (adamw)."""
    ema_decay: Fraction = 0.0
    """Of the averaged weights; the first steps have at most (1 + t) / (10 + t)."""
    clip_norm: Bounding = 1.0
    """C: the L2 norm that no example's gradient exceeds."""
    clipping: Clipping = Clipping.PER_EXAMPLE
    """What bounds the gradient of an example."""
    clipping_stability: Bounding = 0.01
    """Of automatic clipping: what is added to each norm, so that tiny gradients stay small."""
    class_shares: (
        Annotated[
            list[PositiveFloat],
            Field(min_length=2, max_length=MAX_CLASSES),
            AfterValidator(_comparable),
        ]
        | None
    ) = Field(default=None, exclude_if=lambda value: value is None)
    """Of each label among the records, in the order of the labels and in any unit, as far as they are publicly known: stated
    here, for counting them in private records would be one more access. None: all records count alike."""
    class_balance: Annotated[float, Field(ge=0, le=1)] = 1.0
    """How far ``class_shares`` are made up for: after it is clipped, the gradient of a record is multiplied by (the least share /
    that of its class) to this power. 0: not at all; 1: every class adds as much as the others."""
    augmentation_multiplicity: Annotated[int, Field(ge=1, le=256)] = 1
    """K: views of an example that are averaged before its one clip."""
    crop_padding: Literal["auto"] | Annotated[int, Field(ge=0, le=64)] = "auto"
    """Pixels of reflect padding before a random crop; auto: an eighth of the side when K > 1."""
    horizontal_flip: StrictBool = False
    """Whether half of the views are mirrored."""
    color_jitter: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Brightness, contrast and saturation of a view are each multiplied by 1 - j to 1 + j."""
    precision: Precision = Precision.FLOAT32
    """Of the passes through the model, in the simulations as in the private run; epsilon does not depend on it."""


def _is_adam(value: object) -> bool:
    return value in (Optimizer.ADAM, Optimizer.ADAMW)


NEEDS: Final = (
    Need("dampening", "optimizer", lambda value: value == Optimizer.SGD, "sgd"),
    Need("dampening", "momentum", lambda value: value > 0, "above 0"),
    *(
        Need(field, "optimizer", _is_adam, "adam or adamw")
        for field in ("beta1", "beta2", "adam_epsilon")
    ),
    Need("class_balance", "class_shares", lambda value: value is not None, "given"),
    Need("clipping_stability", "clipping", lambda value: value == Clipping.AUTOMATIC, "automatic"),
    Need("beta1", "momentum", lambda value: value == 0, "0, for a momentum replaces it"),
    Need(
        "final_learning_rate_fraction",
        "schedule",
        lambda value: value in (Schedule.LINEAR, Schedule.COSINE),
        "linear or cosine",
    ),
)
"""Each is decided by the ends of a range, so the ends are all that a study has to ask."""

NEEDS_OF_BOTH: Final = (
    *(need for need in NEEDS if (need.field, need.other) != ("beta1", "momentum")),
    Need(
        "momentum",
        "optimizer",
        lambda value: value == Optimizer.SGD,
        "sgd, for adam and adamw have the beta1 that is searched beside it",
    ),
)
"""The same where both are searched: a momentum out of a range is above 0, and no candidate would read beta1."""


class TrainSpec(TrainerConfig):
    """The ``train`` section: the shape of the private run, and the trainer's fixed values."""

    batch_size: Literal["auto"] | Annotated[int, Field(ge=1, le=100_000_000)] = "auto"
    """Expected batch B. auto: the smallest power of two with noise multiplier >= 2."""
    max_batch_size: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """A batch above it keeps a random part of this size; six standard deviations above B it is free.
    Only where the number of units is public: neighbouring relation zero_out or replace_one."""
    steps: Literal["auto"] | Annotated[int, Field(ge=1, le=10_000_000)] = "auto"
    """S, of the private run and of every simulation. auto: as the planner chooses, or searched."""
    noise_multiplier: Annotated[float, Field(gt=0, le=MOST_NOISE)] | None = None
    """Fixed: epsilon is computed. Absent: it is calibrated to ``privacy.epsilon``."""
    begin_from: Literal["auto", "scratch", "trial"] = "auto"
    """Whose weights the private run begins with. trial: those that its trial left, where it was charged, and so paid for, or
    read a public proxy. scratch: fresh ones, or those of ``model.pretrained``. auto: trial where the search is charged."""
    workers: Annotated[int, Field(ge=1, le=1024)] = 2
    """Ray Train ranks of the private run. They do not change the mechanism."""
    microbatch_size: Annotated[int, Field(ge=1, le=65536)] = MICROBATCH_SIZE
    """Views in memory at once. A performance knob: it cannot change the update. Left at its default, a GPU
    takes as many as half of its free memory holds, up to 8,192."""

    def trainer(self) -> TrainerConfig:
        """The part that the engine and the trials see."""
        return TrainerConfig.model_validate(
            {name: getattr(self, name) for name in TrainerConfig.model_fields}
        )
