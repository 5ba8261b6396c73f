r"""How far the small squares of an image look like squares of images made at random.

Scattering hears edges and how they repeat; squares of six pixels with their colours also hear corners, bars and
borders between two colours. The dictionary is usually cut out of the data, which would cost epsilon; cut out of
random images it reads no record.

References:
    Coates, Ng and Lee (2011), "An Analysis of Single-Layer Networks in Unsupervised Feature Learning", AISTATS:
    whitened patches, a soft threshold for either sign, sums over regions.
    Thiry et al. (2021), "The Unreasonable Effectiveness of Patches in Deep Convolutional Kernels Methods",
    arXiv:2101.07528: patches that were drawn, not learnt, do as well.
"""

# Shape legend: N = images, C = channels, H, W = rows, columns, h, w = those of places where a patch fits;
# M = patches of random images, D = C * side^2 values of a patch, K = patches in the dictionary.
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tan_core.models.extractor import Extractor
from tan_core.models.random_images import random_images

SIDE: Final = 6
"""Pixels of a patch."""
PATCHES: Final = 81
"""In the dictionary. With three times as many, accuracies on CIFAR-10 (JPEG) were the same or lower."""
_SQUARE: Final = 4
"""Pixels of an image's side to a region, as in scattering of two scales."""
_REACH: Final = 2
"""Regions to either side that an average is taken over with its own. Where exactly a patch stands matters less than
private noise in as many more directions does."""
_THRESHOLD: Final = 1.0
"""Of a response, whose variance is about 1: the greater part of them is zero."""
_CONTRAST_FLOOR: Final = 1.5e-4
"""Added to the variance of a patch before it is divided by it: the 10 of Coates et al., of pixels up to 255."""
_WHITENING_FLOOR: Final = 0.01
"""Added to the variances that are made equal."""
_CHANNELS: Final = 3 * 2048
"""Of all random images together, up to three in each; images of more channels are fewer, for the memory's sake."""
_IMAGE_SIDE: Final = 32
_STRIDE: Final = 3
"""Between the patches of a random image that moments are taken over."""


class PatchResponses(Extractor):
    r"""Responses to a dictionary of patches, averaged around each region.

    A patch p of the image, less its mean and over its deviation, is whitened by the mean :math:`\mu` and the
    covariance :math:`\Sigma` of such patches of random images, and compared with K of these:

    .. math::

        r_k = d_k^\top (\Sigma + f)^{-1/2} \Big(\frac{p - \bar p}{\sqrt{\mathrm{var}\,p + c}} - \mu\Big),
        \qquad (r_k - t)_+ \text{ and } (-r_k - t)_+

    There are no parameters and no buffers; the dictionary is computed when first needed, once for each number of
    channels. The square root is symmetric, so it depends on no choice of eigenvectors.
    """

    channels: Final = 2 * PATCHES
    """Each patch has a response of either sign."""

    @property
    def fingerprint(self) -> str:
        """The version of what is computed."""
        return "patches-1"

    def forward(self, images: Tensor) -> Tensor:
        """[N, C, H, W] in [-1, 1] -> [N, 2K, H // 4, W // 4], first what is like a patch, then what is its negative.

        The sides are at least 8.
        """
        filters, offsets_K = _dictionary(images.shape[1]).on(images)
        height, width = (side - SIDE + 1 for side in images.shape[2:])
        rows, columns = (
            _averages(side // _SQUARE, places).to(images)
            for side, places in zip(images.shape[2:], (height, width), strict=True)
        )
        # Channels last is several times as fast on a CPU.
        compared = functional.conv2d(images.contiguous(memory_format=torch.channels_last), filters)
        like_NHWK = compared.permute(0, 2, 3, 1) / _deviations(images) - offsets_K
        either = [
            columns
            @ (rows @ functional.relu(each - _THRESHOLD).flatten(2)).unflatten(2, (width, -1))
            for each in (like_NHWK, -like_NHWK)
        ]
        return torch.cat(either, dim=3).permute(0, 3, 1, 2).contiguous()


def _deviations(images: Tensor) -> Tensor:
    """[N, h, w, 1]: of the values of each patch."""
    mean, square = (
        functional.avg_pool2d(each.mean(1, keepdim=True), SIDE, stride=1)
        for each in (images, images.square())
    )
    variance = (square - mean.square()).clamp_min(0)
    return (variance + _CONTRAST_FLOOR).sqrt().permute(0, 2, 3, 1)


def _averages(regions: int, places: int) -> Tensor:
    """[regions, places], float64 on the CPU: the mean over the places in and near each region of a side."""
    matrix = torch.zeros(regions, places, dtype=torch.float64)
    for region in range(regions):
        first = max(region - _REACH, 0) * places // regions
        # Rounded up: neighbours share a place where regions do not divide them.
        last = -(-min(region + _REACH + 1, regions) * places // regions)
        matrix[region, first:last] = 1 / (last - first)
    return matrix


class WithPatches(Extractor):
    """Coefficients and patch responses of the same regions, one after the other.

    Args:
        extractor: of a region to each four pixels of a side.
    """

    def __init__(self, extractor: Extractor) -> None:
        super().__init__()
        self._extractor = extractor
        self._patches = PatchResponses()

    @property
    def records_at_once(self) -> int:
        """As the extractor has it."""
        return self._extractor.records_at_once

    @property
    def fingerprint(self) -> str:
        """What stands first, and what follows it."""
        return f"{self._extractor.fingerprint} {self._patches.fingerprint}"

    def forward(self, images: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, as the extractor has it + 2K, H // 4, W // 4]."""
        return torch.cat([self._extractor(images), self._patches(images)], dim=1)


@dataclass(frozen=True, slots=True)
class _Dictionary:
    """Whitened patches, and what whitening them takes off."""

    filters: Tensor
    """[K, C, side, side], of mean zero each, float64 on the CPU."""
    offsets: Tensor
    """[K]."""

    def on(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """In the precision and on the device of ``like``."""
        filters = self.filters.to(like).contiguous(memory_format=torch.channels_last)
        return filters, self.offsets.to(like)


@lru_cache(maxsize=4)
def _dictionary(channels: int) -> _Dictionary:
    with torch.inference_mode(mode=False), torch.no_grad():
        count = _CHANNELS // max(channels, 3)
        images = torch.from_numpy(random_images(count, channels, _IMAGE_SIDE, _IMAGE_SIDE))
        cut = functional.unfold(images, SIDE, stride=_STRIDE)
        values_MD = cut.transpose(1, 2).flatten(0, 1)
        values_MD = values_MD - values_MD.mean(1, keepdim=True)
        variances_M = values_MD.square().mean(1)
        even_MD = values_MD / (variances_M + _CONTRAST_FLOOR).sqrt().unsqueeze(1)
        mean_D = even_MD.mean(0)
        centred_MD = even_MD - mean_D
        among_D, directions_DD = torch.linalg.eigh(centred_MD.T @ centred_MD / len(centred_MD))
        whitening_DD = directions_DD * (among_D + _WHITENING_FLOOR).rsqrt() @ directions_DD.T
        # Patches of one colour are all alike.
        varied_M = torch.nonzero(variances_M > _CONTRAST_FLOOR).squeeze(1)
        chosen_KD = centred_MD[varied_M[_drawn(PATCHES, len(varied_M))]] @ whitening_DD
        atoms_KD = functional.normalize(chosen_KD, dim=1) @ whitening_DD
        # A patch is compared as it is, so its mean is taken off here.
        filters_KD = atoms_KD - atoms_KD.mean(1, keepdim=True)
        shape = (PATCHES, channels, SIDE, SIDE)
        return _Dictionary(filters_KD.view(shape), atoms_KD @ mean_D)


def _drawn(count: int, total: int) -> Tensor:
    """[count] of ``total``, the same on every machine."""
    # The raw stream of Philox is fixed for ever. Above the streams that random images are of.
    bits = np.random.Philox(key=100).random_raw(count)
    return torch.from_numpy((bits % np.uint64(total)).astype(np.int64))
