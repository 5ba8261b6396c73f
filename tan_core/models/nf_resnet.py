"""Normaliser-free ResNet-50: standardised weights and known variances in place of norms."""

import math

from torch import Tensor, nn
from torch.nn import functional

from tan_core.models.gain import Gain
from tan_core.models.shapes import image_shape
from tan_core.models.weight_standardised import WeightStandardisedConv2d
from tan_core.spec.models import NfResNetModel

ALPHA = 0.2
"""Standard deviation that a block adds to the signal, in units of what enters it."""
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Output channels at width 1, and blocks."""
STEM_WIDTH = 16
"""Channels of the stem at width 1."""
BOTTLENECK = 4
"""Output channels of a block for each channel inside it."""
SMALL_SIDE = 64
"""Below it the stem keeps the size: such images have no pixels to spare."""
_RELU_GAIN = math.sqrt(2 / (1 - 1 / math.pi))


class ScaledReLU(nn.Module):
    """ReLU that gives a standard normal signal the variance 1."""

    def forward(self, x: Tensor) -> Tensor:
        """Of the shape of ``x``."""
        return functional.relu(x) * _RELU_GAIN


class Block(nn.Module):
    r"""Pre-activation bottleneck: :math:`h + \alpha g f(\beta h)` with a learned gain :math:`g`.

    Args:
        spec: options.
        inputs, outputs: channels.
        stride: of the 3x3 convolution and of the shortcut.
        std: of what enters, at initialisation; :math:`\beta` is its inverse.
    """

    def __init__(
        self, spec: NfResNetModel, inputs: int, outputs: int, *, stride: int, std: float
    ) -> None:
        super().__init__()
        inside = outputs // BOTTLENECK
        self.beta = 1 / std
        self.activation = ScaledReLU()
        self.conv1 = WeightStandardisedConv2d(inputs, inside, 1)
        self.conv2 = WeightStandardisedConv2d(inside, inside, 3, stride=stride, padding=1)
        self.conv3 = WeightStandardisedConv2d(inside, outputs, 1)
        self.gain = Gain(initial=spec.skip_gain)
        changes = stride != 1 or inputs != outputs
        self.shortcut = (
            WeightStandardisedConv2d(inputs, outputs, 1, stride=stride) if changes else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, of the stage's width and size."""
        entered = self.activation(x) * self.beta
        out = self.conv1(entered)
        out = self.conv2(self.activation(out))
        out = self.conv3(self.activation(out))
        return self.gain(out) * ALPHA + (x if self.shortcut is None else self.shortcut(entered))


def build(spec: NfResNetModel, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """NF-ResNet-50 as De et al. (2022) train it on ImageNet, without stochastic depth.

    Below 64 pixels a side its 7x7 stem of stride 2 and the pool become one 3x3 convolution.

    References:
        Brock, De and Smith (2021), arXiv:2101.08692, section 3; De et al. (2022), arXiv:2204.13650.
    """
    channels, height, width = image_shape(spec, shape)
    inputs = STEM_WIDTH * spec.width
    is_small = min(height, width) < SMALL_SIDE
    layers: list[nn.Module] = (
        [WeightStandardisedConv2d(channels, inputs, 3, padding=1)]
        if is_small
        else [
            WeightStandardisedConv2d(channels, inputs, 7, stride=2, padding=3),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        ]
    )
    variance = 1.0
    for stage, (thin, blocks) in enumerate(STAGES):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            outputs = thin * spec.width
            layers.append(Block(spec, inputs, outputs, stride=stride, std=math.sqrt(variance)))
            inputs = outputs
            # A stage's first shortcut starts after the activation and beta, so at variance 1.
            variance = (1.0 if block == 0 else variance) + ALPHA**2
    return nn.Sequential(
        *layers,
        ScaledReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(inputs, num_classes),
    )
