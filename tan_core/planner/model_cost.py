"""Size of the models that a study may name, by closed forms: no torch here, a test builds the real ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from tan_core import _validate
from tan_core.errors import ParameterError
from tan_core.spec import ModelSpec
from tan_core.spec.models import (
    PATCH_RESPONSES,
    SCATTER_PATHS,
    SCATTER_STEP,
    LinearModel,
    MlpModel,
    Model,
    NfResNetModel,
    PythonModel,
    ScatterCnnModel,
    ScatterLinearModel,
    TanhCnnModel,
    TimmModel,
    VitModel,
    WideResNetModel,
)
from tan_core.spec.pretrained import Pretrained

_SMALL_SIDE = 16
"""Below it the tanh network has other kernels (tan_core.models.tanh_cnn)."""
_STEM_WIDTH = 16
_WRN_STAGES = (16, 32, 64)
_NF_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
_NF_BOTTLENECK = 4
_NF_SMALL_SIDE = 64
"""Below it NF-ResNet has another stem (tan_core.models.nf_resnet)."""
_VIT_MLP_RATIO = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCost:
    """What a model weighs.

    Args:
        num_parameters: >= 1, frozen ones among them.
        num_trained: of these, >= 1; None: all.
        activation_floats_per_example: what all layers put out for one example, activations, norms and
            pools included; None where it is not known.
    """

    num_parameters: int
    activation_floats_per_example: int | None = None
    num_trained: int | None = None

    def __post_init__(self) -> None:
        _validate.positive_integer(num_parameters=self.num_parameters)
        if self.num_trained is not None:
            _validate.positive_integer(num_trained=self.num_trained)
        if self.activation_floats_per_example is not None:
            _validate.positive_integer(
                activation_floats_per_example=self.activation_floats_per_example
            )


def model_cost(spec: ModelSpec, *, shape: Sequence[int], num_classes: int) -> ModelCost | None:
    """The size of the model that a spec builds for inputs of ``shape``.

    Behind a frozen extractor it is that of the head, which is what trains: the extractor has no
    parameters, and its features are computed once.

    Args:
        spec: family and options.
        shape: of one example, channels first; ``[F]`` for a table.
        num_classes: number of logits.

    Returns:
        None for ``timm:`` and ``python:`` models: only building them would tell, and that needs torch.

    Raises:
        ParameterError: an argument is of another kind, or a model of images has inputs that are none.

    Example:
        >>> model_cost(TanhCnnModel(), shape=[1, 28, 28], num_classes=10)
        ModelCost(num_parameters=26010, activation_floats_per_example=11162, num_trained=None)
    """
    _validate.instance(Model, spec=spec)
    shape, num_classes = _validate.sides(shape=shape), _validate.plain(num_classes)
    _validate.positive_integer(num_classes=num_classes)
    tally = _Tally()
    match spec:
        case LinearModel():
            tally.linear(math.prod(shape), num_classes)
        case MlpModel():
            _count_mlp(tally, spec, math.prod(shape), num_classes)
        case TanhCnnModel():
            _count_tanh_cnn(tally, spec, _image(spec.name, shape), num_classes)
        case ScatterLinearModel() | ScatterCnnModel():
            _count_scatter(tally, spec, _image(spec.name, shape), num_classes)
        case WideResNetModel():
            _count_wide_resnet(tally, spec, _image(spec.name, shape), num_classes)
        case NfResNetModel():
            _count_nf_resnet(tally, spec, _image(spec.name, shape), num_classes)
        case VitModel():
            _count_vit(tally, spec, _image(spec.name, shape), num_classes)
        case TimmModel() | PythonModel():
            return None
    if spec.pretrained is not None:
        return tally.begun_from(spec.pretrained)
    return ModelCost(
        num_parameters=tally.parameters, activation_floats_per_example=tally.activations
    )


@dataclass(slots=True)
class _Tally:
    """Adds up layer by layer."""

    parameters: int = 0
    activations: int = 0
    of_norms: int = 0
    of_biases: int = 0
    linear_layers: list[tuple[int, int, int]] = field(default_factory=list)
    """Inputs, outputs and positions of each; the last is the classifier."""

    def begun_from(self, pretrained: Pretrained) -> ModelCost:
        """Where a study begins from a checkpoint."""
        (inputs, outputs, _), parameters = self.linear_layers[-1], self.parameters
        trained, activations = (inputs + 1) * outputs, self.activations
        match pretrained.train:
            case "all":
                trained = parameters
            case "classifier":
                pass
            case "norms":
                trained += self.of_norms
            case "biases":
                trained += self.of_biases - outputs
            case "lora":
                rank, adapted = pretrained.rank or 0, self.linear_layers[:-1]
                factors = rank * sum(inputs + outputs for inputs, outputs, _ in adapted)
                trained, parameters = trained + factors, parameters + factors
                activations += sum(
                    (rank + outputs) * positions for _, outputs, positions in adapted
                )
        return ModelCost(
            num_parameters=parameters,
            activation_floats_per_example=activations,
            num_trained=trained,
        )

    def linear(self, inputs: int, outputs: int, *, positions: int = 1) -> None:
        self.parameters += inputs * outputs
        self.biases(outputs)
        self.activations += outputs * positions
        self.linear_layers.append((inputs, outputs, positions))

    def biases(self, outputs: int) -> None:
        self.parameters += outputs
        self.of_biases += outputs

    def convolution(
        self, kernel: int, inputs: int, outputs: int, *, pixels: int, is_standardised: bool = False
    ) -> None:
        """Without a bias; a standardised one has a gain and a bias per output channel."""
        self.parameters += kernel * kernel * inputs * outputs
        self.activations += outputs * pixels
        if is_standardised:
            self._scale_and_shift(outputs)

    def norm(self, channels: int, *, pixels: int) -> None:
        self._scale_and_shift(channels)
        self.activations += channels * pixels

    def gain(self) -> None:
        self.parameters += 1
        self.of_norms += 1

    def _scale_and_shift(self, channels: int) -> None:
        self.parameters += channels
        self.of_norms += 2 * channels
        self.biases(channels)


def _count_mlp(tally: _Tally, spec: MlpModel, width: int, num_classes: int) -> None:
    for hidden in spec.hidden:
        tally.linear(width, hidden)
        tally.activations += hidden
        width = hidden
    tally.linear(width, num_classes)


def _count_tanh_cnn(
    tally: _Tally, spec: TanhCnnModel, image: tuple[int, int, int], num_classes: int
) -> None:
    inputs, *sides = image
    is_small = min(sides) < _SMALL_SIDE
    kernels = ((3, 1, 1), (3, 2, 1)) if is_small else ((8, 2, 3), (4, 2, 0))
    for (kernel, stride, padding), outputs in zip(
        kernels, (spec.width, 2 * spec.width), strict=True
    ):
        sides = [(side + 2 * padding - kernel) // stride + 1 for side in sides]
        tally.convolution(kernel, inputs, outputs, pixels=math.prod(sides))
        tally.biases(outputs)
        tally.activations += outputs * math.prod(sides)
        sides = [side - 1 for side in sides]  # a 2x2 pool of stride 1
        tally.activations += outputs * math.prod(sides)
        inputs = outputs
    tally.linear(inputs * math.prod(sides), spec.hidden)
    tally.activations += spec.hidden
    tally.linear(spec.hidden, num_classes)


def _count_scatter(
    tally: _Tally,
    spec: ScatterLinearModel | ScatterCnnModel,
    image: tuple[int, int, int],
    num_classes: int,
) -> None:
    inputs = SCATTER_PATHS * image[0] + (PATCH_RESPONSES if spec.patches else 0)
    before = math.prod(side // SCATTER_STEP for side in image[1:])
    if spec.normalization == "group":
        tally.activations += inputs * before
    if isinstance(spec, ScatterLinearModel):
        tally.linear(inputs * before, num_classes)
    elif image[0] == 1:
        after = math.prod((side // SCATTER_STEP + 1) // 2 for side in image[1:])
        _count_tanh_convolution(tally, inputs, 16, pixels=after)
        _count_tanh_convolution(tally, 16, 32, pixels=after)
        tally.linear(32 * after, 32)
        tally.activations += 32
        tally.linear(32, num_classes)
    else:
        after = math.prod(side // SCATTER_STEP // 2 for side in image[1:])
        _count_tanh_convolution(tally, inputs, 64, pixels=before)
        tally.activations += 64 * after  # the pool
        _count_tanh_convolution(tally, 64, 64, pixels=after)
        tally.linear(64 * after, num_classes)


def _count_tanh_convolution(tally: _Tally, inputs: int, outputs: int, *, pixels: int) -> None:
    """3x3, with a bias, and the activation behind it."""
    tally.convolution(3, inputs, outputs, pixels=pixels)
    tally.biases(outputs)
    tally.activations += outputs * pixels


def _count_wide_resnet(
    tally: _Tally, spec: WideResNetModel, image: tuple[int, int, int], num_classes: int
) -> None:
    channels, *sides = image
    convolution = partial(tally.convolution, is_standardised=spec.weight_standardization)
    convolution(3, channels, _STEM_WIDTH, pixels=math.prod(sides))
    inputs = _STEM_WIDTH
    for stage, thin in enumerate(_WRN_STAGES):
        outputs = thin * spec.width
        for block in range((spec.depth - 4) // 6):
            before = math.prod(sides)
            if stage > 0 and block == 0:
                sides = _halved(sides)
            after = math.prod(sides)
            # ReLU, norm, convolution, twice, and a shortcut where the shape changes.
            tally.activations += inputs * before
            tally.norm(inputs, pixels=before)
            convolution(3, inputs, outputs, pixels=after)
            tally.activations += outputs * after
            tally.norm(outputs, pixels=after)
            convolution(3, outputs, outputs, pixels=after)
            if inputs != outputs:
                convolution(1, inputs, outputs, pixels=after)
            inputs = outputs
    tally.activations += inputs * math.prod(sides)
    tally.norm(inputs, pixels=math.prod(sides))
    tally.activations += inputs  # the pool
    tally.linear(inputs, num_classes)


def _count_nf_resnet(
    tally: _Tally, spec: NfResNetModel, image: tuple[int, int, int], num_classes: int
) -> None:
    channels, *sides = image
    convolution = partial(tally.convolution, is_standardised=True)
    inputs = _STEM_WIDTH * spec.width
    if min(sides) < _NF_SMALL_SIDE:
        convolution(3, channels, inputs, pixels=math.prod(sides))
    else:
        sides = _halved(sides)
        convolution(7, channels, inputs, pixels=math.prod(sides))
        sides = _halved(sides)
        tally.activations += inputs * math.prod(sides)  # the pool
    for stage, (thin, blocks) in enumerate(_NF_STAGES):
        outputs = thin * spec.width
        inside = outputs // _NF_BOTTLENECK
        for block in range(blocks):
            before = math.prod(sides)
            if stage > 0 and block == 0:
                sides = _halved(sides)
            after = math.prod(sides)
            # ReLU, convolution, three times; a gain, and a shortcut where the shape changes.
            tally.activations += inputs * before
            convolution(1, inputs, inside, pixels=before)
            tally.activations += inside * before
            convolution(3, inside, inside, pixels=after)
            tally.activations += inside * after
            convolution(1, inside, outputs, pixels=after)
            tally.gain()
            tally.activations += outputs * after
            if block == 0:
                convolution(1, inputs, outputs, pixels=after)
            inputs = outputs
    tally.activations += inputs * math.prod(sides)
    tally.activations += inputs  # the pool
    tally.linear(inputs, num_classes)


def _count_vit(
    tally: _Tally, spec: VitModel, image: tuple[int, int, int], num_classes: int
) -> None:
    channels, *sides = image
    width = spec.width
    tokens = math.prod(math.ceil(side / spec.patch_size) for side in sides)
    tally.convolution(spec.patch_size, channels, width, pixels=tokens)
    tally.biases(width)
    tally.parameters += tokens * width  # positions
    tally.activations += tokens * width
    for _ in range(spec.depth):
        tally.norm(width, pixels=tokens)
        tally.linear(width, 3 * width, positions=tokens)
        tally.linear(width, width, positions=tokens)
        tally.norm(width, pixels=tokens)
        tally.linear(width, _VIT_MLP_RATIO * width, positions=tokens)
        tally.activations += _VIT_MLP_RATIO * width * tokens
        tally.linear(_VIT_MLP_RATIO * width, width, positions=tokens)
    tally.activations += width  # the mean
    tally.norm(width, pixels=1)
    tally.linear(width, num_classes)


def _halved(sides: Sequence[int]) -> list[int]:
    """What a stride of 2 leaves of an image that is padded to keep its size."""
    return [(side + 1) // 2 for side in sides]


def _image(name: str, shape: Sequence[int]) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise ParameterError(
            f"model {name} reads images of shape [C, H, W], got {list(shape)}", field="model.name"
        )
    channels, height, width = shape
    return channels, height, width
