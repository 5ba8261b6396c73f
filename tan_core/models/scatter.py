"""Models on scattering coefficients (Tramèr and Boneh 2021, arXiv:2011.11660).

Unlike theirs, the normalisation is of each example alone, so it costs nothing, and colours are opponent
colours: at epsilon 3 on CIFAR-10 these are worth 1.4 points to a linear head.
"""

from torch import nn

from tan_core.models.extractor import Extractor
from tan_core.models.flip_invariant import FlipInvariant
from tan_core.models.patches import PatchResponses, WithPatches
from tan_core.models.scattering import Scattering
from tan_core.models.shapes import image_shape
from tan_core.models.whitening import Whitened, check_size
from tan_core.spec.models import ScatterCnnModel, ScatterLinearModel

Spec = ScatterLinearModel | ScatterCnnModel
Shape = tuple[int, int, int]


def build_linear(spec: Spec, shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
    """Scattering, normalisation and a linear layer: 39,700 parameters on 28x28 grey images."""
    begin, (channels, height, width) = _features(spec, shape)
    return nn.Sequential(
        begin,
        *_normalization(spec, channels),
        nn.Flatten(),
        nn.Linear(channels * height * width, num_classes),
    )


def build_cnn(spec: Spec, shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
    """Scattering, normalisation and two tanh convolutions, as published.

    Grey images get the network of MNIST: 33,066 parameters at 28x28. Images of several channels get
    that of CIFAR-10: 187,210 at 32x32.
    """
    begin, features = _features(spec, shape)
    head = _grey_head if shape[0] == 1 else _colour_head
    return nn.Sequential(begin, *_normalization(spec, features[0]), *head(features, num_classes))


def _grey_head(features: Shape, num_classes: int) -> list[nn.Module]:
    channels, height, width = features
    return [
        nn.Conv2d(channels, 16, kernel_size=3, stride=2, padding=1),
        nn.Tanh(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(32 * ((height + 1) // 2) * ((width + 1) // 2), 32),
        nn.Tanh(),
        nn.Linear(32, num_classes),
    ]


def _colour_head(features: Shape, num_classes: int) -> list[nn.Module]:
    channels, height, width = features
    return [
        nn.Conv2d(channels, 64, kernel_size=3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(kernel_size=2),
        nn.Conv2d(64, 64, kernel_size=3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(64 * (height // 2) * (width // 2), num_classes),
    ]


def extractor(spec: Spec) -> Extractor:
    """What these models begin with; it is the same wherever :attr:`ScatterModel.features` are."""
    found: Extractor = WithPatches(_scattering()) if spec.patches else _scattering()
    if spec.is_whitened:
        found = Whitened(found)
    return FlipInvariant(found) if spec.flip_invariant else found


def _scattering() -> Scattering:
    return Scattering(opponent_colours=True)


def _features(spec: Spec, shape: tuple[int, ...]) -> tuple[Extractor, Shape]:
    """The extractor, and the shape of what it makes of an image."""
    channels, height, width = image_shape(spec, shape)
    if spec.is_whitened:
        check_size((channels, height, width), has_patches=spec.patches)
    scattering = _scattering()
    step = 2**scattering.scales
    features = scattering.paths * channels + (PatchResponses.channels if spec.patches else 0)
    return extractor(spec), (features, height // step, width // step)


def _normalization(spec: Spec, channels: int) -> list[nn.Module]:
    """Of each example and without parameters: statistics over examples would cost epsilon."""
    if spec.normalization == "group":
        return [nn.GroupNorm(spec.groups, channels, affine=False)]
    return []
