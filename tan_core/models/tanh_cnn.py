"""The tanh network of Papernot et al. (2021), also used by Tramèr and Boneh (2021)."""

from torch import nn

from tan_core.models.shapes import image_shape
from tan_core.spec.models import TanhCnnModel

_SMALL_SIDE = 16


def build(spec: TanhCnnModel, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Two tanh convolutions with overlapping max-pools and two linear layers.

    26,010 parameters on 28x28 grey images with the default options. Below 16 pixels a side the 8x8
    and 4x4 kernels do not fit and both become 3x3, the first with stride 1.
    """
    channels, height, width = image_shape(spec, shape)
    if min(height, width) >= _SMALL_SIDE:
        first = nn.Conv2d(channels, spec.width, kernel_size=8, stride=2, padding=3)
        second = nn.Conv2d(spec.width, 2 * spec.width, kernel_size=4, stride=2)
    else:
        first = nn.Conv2d(channels, spec.width, kernel_size=3, padding=1)
        second = nn.Conv2d(spec.width, 2 * spec.width, kernel_size=3, stride=2, padding=1)
    rows, columns = (_pooled(second, _pooled(first, side)) for side in (height, width))
    return nn.Sequential(
        first,
        nn.Tanh(),
        nn.MaxPool2d(kernel_size=2, stride=1),
        second,
        nn.Tanh(),
        nn.MaxPool2d(kernel_size=2, stride=1),
        nn.Flatten(),
        nn.Linear(2 * spec.width * rows * columns, spec.hidden),
        nn.Tanh(),
        nn.Linear(spec.hidden, num_classes),
    )


def _pooled(layer: nn.Conv2d, side: int) -> int:
    """Pixels left of a side after the convolution and its 2x2 pool of stride 1."""
    padding = int(layer.padding[0])
    return (side + 2 * padding - layer.kernel_size[0]) // layer.stride[0]
