"""The models a study may name, and their options. Data only: no torch here.

``tan_core.models`` builds each of these; a test holds the two lists together.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tan_core.spec.base import Frozen, fault, listed
from tan_core.spec.needs import Need
from tan_core.spec.pretrained import Beside, Pretrained, lacking

OptionValue = bool | int | float | str
Options = Annotated[dict[str, OptionValue], Field(max_length=64)]
_Channel = Annotated[float, Field(ge=-255, le=255)]


class Model(Frozen):
    """What every model says of itself."""

    smallest_side: ClassVar[int | None] = None
    """Of the images that it reads, in pixels; None: it is not bound to images."""
    has_frozen_features: ClassVar[bool] = False
    """Whether it begins with a fixed extractor, whose features are computed once: no augmentation."""
    feature_options: ClassVar[frozenset[str]] = frozenset()
    """What those features depend on."""
    is_one_layer: ClassVar[bool] = False
    """Whether one linear layer is all that is trained."""
    needs: ClassVar[tuple[Need, ...]] = ()
    """Of options that another option makes idle."""
    one_is_enough: ClassVar[frozenset[str]] = frozenset()
    """Options that are lists and may be given as one value: so a search can vary them."""
    parts: ClassVar[tuple[Beside, ...] | None] = ()
    """What can be trained before its classifier; None: only its code tells."""
    pretrained: Pretrained | None = Field(default=None, exclude_if=lambda value: value is None)
    """Weights to begin from; None: they are drawn at random."""

    @property
    def features(self) -> tuple[bool, ...]:
        """Equal where features are, of models of one name."""
        return ()

    @property
    def is_whitened(self) -> bool:
        """Whether features are on the scale of a whitening, and learning rates with them."""
        return False

    @property
    def trains_network(self) -> bool:
        """Whether more than one linear layer is trained."""
        return not (self.is_one_layer or self.trains_classifier_alone)

    @property
    def trains_classifier_alone(self) -> bool:
        """Whether all that stands before its classifier stays as a checkpoint has it."""
        return self.pretrained is not None and self.pretrained.train == "classifier"

    @model_validator(mode="after")
    def _has_what_is_trained(self) -> Self:
        train = "all" if self.pretrained is None else self.pretrained.train
        if train in ("all", "classifier") or self.parts is None or train in self.parts:
            return self
        accepted = ["all", *(() if self.is_one_layer else ("classifier",)), *self.parts]
        message = lacking(train, getattr(self, "name", ""), accepted=accepted)
        found = fault("part", ("pretrained", "train"), train, message)
        raise ValidationError.from_exception_data(type(self).__name__, [found])


class LinearModel(Model):
    """Multinomial logistic regression on the flattened input."""

    is_one_layer = True
    name: Literal["linear"] = "linear"


def _as_list(given: Any) -> Any:
    """A single number as a list of it; whatever else it is, it is for others to refuse."""
    return [given] if isinstance(given, int | float) and not isinstance(given, bool) else given


class MlpModel(Model):
    """Fully connected network."""

    one_is_enough = frozenset(["hidden"])
    parts = ("biases", "lora")
    name: Literal["mlp"] = "mlp"
    hidden: Annotated[
        list[Annotated[int, Field(ge=1, le=65536)]],
        Field(min_length=1, max_length=8),
        BeforeValidator(_as_list),
    ] = Field(default=[64])
    """Units of each hidden layer; one number is one layer."""
    activation: Literal["tanh", "relu"] = "tanh"
    """After each hidden layer."""


class TanhCnnModel(Model):
    """Two tanh convolutions and two linear layers (Papernot et al. 2021)."""

    smallest_side = 4
    parts = ("biases", "lora")
    name: Literal["tanh-cnn"] = "tanh-cnn"
    width: Annotated[int, Field(ge=1, le=1024)] = 16
    """Channels of the first convolution; the second has twice as many."""
    hidden: Annotated[int, Field(ge=1, le=65536)] = 32
    """Units of the layer before the classifier."""


WHITENED_GROUPS = 27
"""Of the normalisation before the whitening, over all channels."""


class ScatterModel(Model):
    """A head on the scattering coefficients of an image, of 2 scales and 8 angles."""

    smallest_side = 8
    has_frozen_features = True
    feature_options = frozenset(["normalization", "flip_invariant", "patches"])
    needs = (Need("groups", "normalization", lambda value: value == "group", "group"),)
    normalization: Literal["group", "none", "whitened"] = "group"
    """Of the features of each example; without parameters. Whitened: in 27 groups, and then by the moments of images
    made at random, which cost no epsilon."""
    groups: Literal[1, 3, 9, 27, 81] = 27
    """GroupNorm groups; they divide the 81 coefficients of each channel, and the responses. Whitened: 27."""
    flip_invariant: StrictBool = False
    """The mean of the features of an image and of its mirror image, for images whose label both share."""
    patches: StrictBool = False
    """Beside the coefficients 162 responses to patches of images made at random, which cost no epsilon."""

    @property
    def features(self) -> tuple[bool, ...]:
        """Whitened, flip-invariant, beside responses to patches."""
        return self.is_whitened, self.flip_invariant, self.patches

    @property
    def is_whitened(self) -> bool:
        """As asked for by ``normalization``."""
        return self.normalization == "whitened"

    @field_validator("groups")
    @classmethod
    def _are_read(cls, groups: int, info: ValidationInfo) -> int:
        if groups != WHITENED_GROUPS and info.data.get("normalization") == "whitened":
            raise ValueError(
                f"normalization: whitened is of {WHITENED_GROUPS} groups; accepted: leave it out, or "
                f"{WHITENED_GROUPS}"
            )
        return groups


_MOST_WHITENED = 2**16
"""Features of an image, about 3x64x64 pixels of coefficients; their moments take some gigabytes to compute."""

SCATTER_PATHS, SCATTER_STEP, PATCH_RESPONSES = 81, 4, 162
"""Coefficients of each channel and region, pixels of a region's side, and responses of each region."""


def too_large_to_whiten(shape: Sequence[int], *, has_patches: bool) -> str | None:
    """Why images [C, H, W] are too large for ``normalization: whitened``; None: they are not."""
    channels, height, width = shape
    of_region = SCATTER_PATHS * channels + (PATCH_RESPONSES if has_patches else 0)
    features = of_region * (height // SCATTER_STEP) * (width // SCATTER_STEP)
    if features <= _MOST_WHITENED:
        return None
    return (
        f"whitened reads at most {_MOST_WHITENED:,} features of an image, {channels}x{height}x{width} "
        f"pixels have {features:,}{' with patches' if has_patches else ''}; accepted: group, none, or smaller images"
    )


class ScatterLinearModel(ScatterModel):
    """One linear layer on scattering coefficients (Tramèr and Boneh 2021)."""

    is_one_layer = True
    name: Literal["scatter-linear"] = "scatter-linear"


class ScatterCnnModel(ScatterModel):
    """Two tanh convolutions on scattering coefficients (Tramèr and Boneh 2021)."""

    parts = ("biases",)
    name: Literal["scatter-cnn"] = "scatter-cnn"


class WideResNetModel(Model):
    """Wide ResNet with GroupNorm: WRN-depth-width (Sander et al. 2023, 4.4; De et al. 2022)."""

    smallest_side = 8
    parts = ("norms", "biases")
    name: Literal["wrn-16-4", "wrn-40-4", "wrn-28-10"] = "wrn-16-4"
    """Its depth, and its width as a multiple of the thin network's."""
    groups: Literal[1, 2, 4, 8, 16] = 16
    """GroupNorm groups; they divide every width of the network."""
    weight_standardization: StrictBool = False
    """Scaled weight standardisation with gain and bias, as De et al. (2022) train it."""
    order: Literal["relu_norm", "norm_relu"] = "relu_norm"
    """ReLU before each norm as Sander et al. (2023) have it, or after it."""

    @property
    def depth(self) -> int:
        """Layers with weights, counted along the residual branches."""
        return int(self.name.split("-")[1])

    @property
    def width(self) -> int:
        """Times the channels of the thin network."""
        return int(self.name.split("-")[2])


class NfResNetModel(Model):
    """Normaliser-free ResNet-50 (Brock et al. 2021)."""

    smallest_side = 8
    parts = ("norms", "biases")
    name: Literal["nf-resnet-50"] = "nf-resnet-50"
    width: Annotated[int, Field(ge=1, le=16)] = 4
    """Times the channels of the thinnest network; 4 is ResNet-50's own width."""
    skip_gain: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Factor of every residual branch before training: SkipInit starts at 0, De et al. at 1."""


class VitModel(Model):
    """Small vision transformer (Dosovitskiy et al. 2021), pre-norm, averaged over the patches."""

    smallest_side = 4
    parts = ("norms", "biases", "lora")
    name: Literal["vit-tiny"] = "vit-tiny"
    patch_size: Annotated[int, Field(ge=1, le=64)] = 4
    """Pixels of a patch's side: 4 for images of 32 pixels, 16 for those of 224."""
    depth: Annotated[int, Field(ge=1, le=64)] = 12
    """Blocks, one after the other."""
    width: Annotated[int, Field(ge=1, le=4096)] = 192
    """Of a patch's vector."""
    heads: Annotated[int, Field(ge=1, le=64)] = 3
    """They divide the width."""

    @field_validator("heads")
    @classmethod
    def _divide_the_width(cls, heads: int, info: ValidationInfo) -> int:
        width = info.data.get("width", heads)
        if width % heads:
            raise ValueError(f"must divide width = {width}, got {heads}")
        return heads


_NOT_ARCHITECTURE = frozenset(
    [
        "model_name",
        "num_classes",
        "in_chans",
        "pretrained",
        "pretrained_cfg",
        "pretrained_cfg_overlay",
        "checkpoint_path",
        "cache_dir",
        "scriptable",
        "exportable",
    ]
)
"""What ``timm.create_model`` takes besides the architecture: files to load, and what the data say."""


def _architecture_only(options: dict[str, OptionValue]) -> dict[str, OptionValue]:
    if refused := sorted(options.keys() & _NOT_ARCHITECTURE):
        raise ValueError(
            f"{', '.join(refused)}: set by the data or never; accepted are the architecture's options"
        )
    return options


InPlaceOfBatchNorm = Literal["group", "frozen"]


class ModelInput(Frozen):
    """How the pixels of a dataset become those that a network was trained on."""

    size: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Of a side in pixels, to which images are scaled; None: as they are."""
    mean: Annotated[list[_Channel], Field(min_length=1, max_length=16)] | None = None
    """Of each channel, subtracted from pixels between 0 and 1. Images of one channel become as many as these are."""
    std: Annotated[list[Annotated[_Channel, Field(gt=0)]], Field(max_length=16)] | None = None
    """By which they are divided then."""

    @model_validator(mode="after")
    def _is_of_one_piece(self) -> Self:
        if (self.mean is None) != (self.std is None):
            missing = "std" if self.std is None else "mean"
            raise ValueError(
                f"mean and std belong together, {missing} is missing; accepted: both, or neither"
            )
        if self.mean is not None and self.std is not None and len(self.mean) != len(self.std):
            raise ValueError(
                f"mean and std must be of as many channels, got {len(self.mean)} and {len(self.std)} numbers"
            )
        if self.size is None and self.mean is None:
            raise ValueError("nothing is said; accepted: size, or mean and std, or all of them")
        return self

    def shape_of(self, shape: Sequence[int]) -> tuple[int, ...]:
        """What becomes of images of ``shape``, channels first.

        Raises:
            ValueError: they are no images, or have another number of channels.

        Example:
            >>> ModelInput(size=224, mean=[0.5] * 3, std=[0.5] * 3).shape_of([1, 28, 28])
            (3, 224, 224)
        """
        if len(shape) != 3:
            raise ValueError(f"is of images [C, H, W], got records of shape {[*shape]}")
        channels, *sides = shape
        if self.mean is not None and channels not in (1, len(self.mean)):
            raise ValueError(
                f"has the mean of {len(self.mean)} channels, got images of {channels}; accepted: as many, or "
                "images of one channel"
            )
        channels = channels if self.mean is None else len(self.mean)
        sides = sides if self.size is None else [self.size, self.size]
        return (channels, *sides)


class ExternalModel(Model):
    """A model whose code is not ours."""

    parts = None
    input: ModelInput | None = Field(default=None, exclude_if=lambda value: value is None)
    """Before it: what it reads of an image. None: images as they are, and pixels between -1 and 1."""
    replace_batch_norm: InPlaceOfBatchNorm | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """Group: each batch normalisation, which mixes examples, becomes a group normalisation of as many groups as divide its
    channels, 32 at most. Frozen: it keeps the mean and the variance of ``pretrained``, as when a network is used. None: a model
    with batch normalisation is refused."""


class TimmModel(ExternalModel):
    """An architecture of the package timm, without weights: ``timm:resnet18``."""

    smallest_side = 1
    name: Annotated[str, Field(pattern=r"^timm:[a-z0-9_.]+$", max_length=200)]
    """``timm:`` and the name of the architecture in timm."""
    options: Annotated[Options, AfterValidator(_architecture_only)] = Field(default={})
    """Of the architecture, as ``timm.create_model`` takes them."""

    @property
    def architecture(self) -> str:
        """Its name in timm."""
        return self.name.removeprefix("timm:")


_WORD = r"[A-Za-z_][A-Za-z0-9_]*"


ModulePrefixes = Annotated[
    tuple[Annotated[str, Field(pattern=rf"^{_WORD}(\.{_WORD})*$")], ...], BeforeValidator(listed)
]
"""Dotted names of modules and packages, also as one text with commas: ``lab.models, zoo``."""


class PythonModel(ExternalModel):
    """Whatever a function makes: ``python:package.module:factory``.

    It is called as ``factory(shape=..., num_classes=..., **options)`` and returns an ``nn.Module``.
    """

    name: Annotated[str, Field(pattern=rf"^python:{_WORD}(\.{_WORD})*:{_WORD}$", max_length=300)]
    """``python:``, the module, a colon, and the function in it."""
    options: Options = Field(default={})
    """What the function is called with, beside shape and number of classes."""

    @property
    def module(self) -> str:
        """The dotted name of the module that holds the factory."""
        return self.name.split(":")[1]

    @property
    def factory(self) -> str:
        """The name of the factory in its module."""
        return self.name.split(":")[2]

    def is_allowed(self, prefixes: Sequence[str]) -> bool:
        """Whether the module is one of ``prefixes``, or lies below one of these packages.

        Example:
            >>> model = PythonModel(name="python:lab.models.cnn:small")
            >>> model.is_allowed(["lab.models"]), model.is_allowed(["lab.mod"])
            (True, False)
        """
        return any(f"{self.module}.".startswith(f"{prefix}.") for prefix in prefixes)


MODEL_TYPES: dict[str, type[Model]] = {
    "linear": LinearModel,
    "mlp": MlpModel,
    "tanh-cnn": TanhCnnModel,
    "scatter-linear": ScatterLinearModel,
    "scatter-cnn": ScatterCnnModel,
    "wrn-16-4": WideResNetModel,
    "wrn-40-4": WideResNetModel,
    "wrn-28-10": WideResNetModel,
    "nf-resnet-50": NfResNetModel,
    "vit-tiny": VitModel,
}
"""The models with a name of their own."""
MODEL_SOURCES: dict[str, type[Model]] = {"timm": TimmModel, "python": PythonModel}
"""Where other models come from, by what stands before the colon of their name."""
MODEL_TAGS = frozenset(kind.__name__ for kind in (*MODEL_TYPES.values(), *MODEL_SOURCES.values()))
ACCEPTED_NAMES = (*MODEL_TYPES, "timm:NAME", "python:MODULE:FACTORY")


def type_of(value: Any) -> type[Model] | None:
    """The class that a model's name belongs to, whatever else is wrong with it."""
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    if not isinstance(name, str):
        return None
    source, colon, _ = name.partition(":")
    return MODEL_SOURCES.get(source) if colon else MODEL_TYPES.get(name)


def _tag(value: Any) -> str | None:
    kind = type_of(value)
    return None if kind is None else kind.__name__


ModelSpec = Annotated[
    Annotated[LinearModel, Tag("LinearModel")]
    | Annotated[MlpModel, Tag("MlpModel")]
    | Annotated[TanhCnnModel, Tag("TanhCnnModel")]
    | Annotated[ScatterLinearModel, Tag("ScatterLinearModel")]
    | Annotated[ScatterCnnModel, Tag("ScatterCnnModel")]
    | Annotated[WideResNetModel, Tag("WideResNetModel")]
    | Annotated[NfResNetModel, Tag("NfResNetModel")]
    | Annotated[VitModel, Tag("VitModel")]
    | Annotated[TimmModel, Tag("TimmModel")]
    | Annotated[PythonModel, Tag("PythonModel")],
    Discriminator(_tag),
]
