"""Wide ResNets for private training: GroupNorm for BatchNorm, ReLU before or after each norm."""

from torch import Tensor, nn

from tan_core.models.relu_group_norm import ReluGroupNorm
from tan_core.models.shapes import image_shape
from tan_core.models.weight_standardised import WeightStandardisedConv2d
from tan_core.spec.models import WideResNetModel

STEM_WIDTH = 16
THIN_STAGES = (16, 32, 64)
"""Channels of the stages at width 1."""


class Block(nn.Module):
    """ReLU and norm, then a convolution, twice, beside a shortcut that starts after the first pair."""

    def __init__(self, spec: WideResNetModel, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        is_relu_first = spec.order == "relu_norm"
        norm = ReluGroupNorm if is_relu_first else nn.GroupNorm
        self.activation = nn.Identity() if is_relu_first else nn.ReLU()
        self.norm1 = norm(spec.groups, inputs)
        self.conv1 = _convolution(spec, inputs, outputs, kernel=3, stride=stride)
        self.norm2 = norm(spec.groups, outputs)
        self.conv2 = _convolution(spec, outputs, outputs, kernel=3)
        changes = stride != 1 or inputs != outputs
        self.shortcut = (
            _convolution(spec, inputs, outputs, kernel=1, stride=stride) if changes else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, of the stage's width and size."""
        normed = self.activation(self.norm1(x))
        out = self.conv1(normed)
        out = self.conv2(self.activation(self.norm2(out)))
        return out + (x if self.shortcut is None else self.shortcut(normed))


def build(spec: WideResNetModel, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """WRN-depth-width (Zagoruyko and Komodakis 2016) in the form of Sander et al. (2023), 4.4.

    With ``weight_standardization`` it is the network of De et al. (2022), arXiv:2204.13650, but for the
    norm that their shortcuts have of their own.
    """
    channels, _, _ = image_shape(spec, shape)
    layers: list[nn.Module] = [_convolution(spec, channels, STEM_WIDTH, kernel=3)]
    inputs = STEM_WIDTH
    for stage, thin in enumerate(THIN_STAGES):
        outputs = thin * spec.width
        for block in range((spec.depth - 4) // 6):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Block(spec, inputs, outputs, stride=stride))
            inputs = outputs
    # Two layers: the names of their parameters are those of what is stored.
    last = [nn.ReLU(), nn.GroupNorm(spec.groups, inputs)]
    return nn.Sequential(
        *layers,
        *(last if spec.order == "relu_norm" else reversed(last)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(inputs, num_classes),
    )


def _convolution(
    spec: WideResNetModel, inputs: int, outputs: int, *, kernel: int, stride: int = 1
) -> nn.Conv2d:
    """As large as its input; with gain and bias where the weights are standardised."""
    padding = kernel // 2
    if spec.weight_standardization:
        return WeightStandardisedConv2d(inputs, outputs, kernel, stride=stride, padding=padding)
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, bias=False)
