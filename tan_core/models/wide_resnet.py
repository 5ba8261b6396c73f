"""WRN-16-4 for private training: GroupNorm for BatchNorm, ReLU before each norm."""

from torch import Tensor, nn

from tan_core.models.shapes import image_shape
from tan_core.spec.models import WideResNetModel

STEM_WIDTH = 16
STAGE_WIDTHS = (64, 128, 256)
BLOCKS_PER_STAGE = 2


class Block(nn.Module):
    """ReLU, norm, convolution, twice, beside a shortcut that starts after the first norm."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, groups: int) -> None:
        super().__init__()
        self.activation = nn.ReLU()
        self.norm1 = nn.GroupNorm(groups, inputs)
        self.conv1 = _convolution(inputs, outputs, stride=stride)
        self.norm2 = nn.GroupNorm(groups, outputs)
        self.conv2 = _convolution(outputs, outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = (
            nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False)
            if changes
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, of the stage's width and size."""
        normed = self.norm1(self.activation(x))
        out = self.conv1(normed)
        out = self.conv2(self.norm2(self.activation(out)))
        return out + (x if self.shortcut is None else self.shortcut(normed))


def build(spec: WideResNetModel, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Depth 16, width 4 (Zagoruyko and Komodakis 2016) in the form of Sander et al. (2023), 4.4."""
    channels, _, _ = image_shape("wrn-16-4", shape, smallest=8)
    layers: list[nn.Module] = [_convolution(channels, STEM_WIDTH)]
    inputs = STEM_WIDTH
    for stage, outputs in enumerate(STAGE_WIDTHS):
        for block in range(BLOCKS_PER_STAGE):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Block(inputs, outputs, stride=stride, groups=spec.groups))
            inputs = outputs
    return nn.Sequential(
        *layers,
        nn.ReLU(),
        nn.GroupNorm(spec.groups, inputs),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(inputs, num_classes),
    )


def _convolution(inputs: int, outputs: int, *, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
