r"""Features of images whitened by what images made at random say of them.

Coefficients of neighbouring places and angles say nearly the same, so gradients of a head point into few
directions and private noise, which knows no directions, drowns the rest. Whitening by the data's own
moments would cost epsilon, and those of random images read no record. On MNIST they are worth half as much; on
CIFAR-10 nothing, once the learning rate is searched (docs/results.md). The constants below were chosen with accuracies
on these two in sight.

References:
    Tang et al. (2023), "Differentially Private Image Classification by Learning Priors from Random
    Processes", arXiv:2306.06076: random images in place of records, there to pre-train networks.
"""

# Shape legend: N = records, M = random images, F = features of an image, R = directions (below M).
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from tan_core.errors import ParameterError
from tan_core.models.extractor import Extractor
from tan_core.models.patches import WithPatches
from tan_core.models.random_images import random_images
from tan_core.spec.models import WHITENED_GROUPS, too_large_to_whiten

_COUNT: Final = 2048
"""Random images."""
_POWER: Final = 0.25
"""Half of the power that would make all variances equal."""
_FLOOR: Final = 1e-5
"""Added to each direction's share of the variance; that of the directions which random images do not have."""
_NEGLIGIBLE: Final = 1e-9
"""Of the largest variance; directions below it are rounding."""
_CHUNK: Final = 32
"""Random images at once."""


class Whitened(Extractor):
    r"""Features, a normalisation of each example, and a fixed symmetric matrix.

    .. math::

        z = \big(\Sigma / \mathrm{tr} \Sigma + f\big)^{-1/4} f^{1/4} (s - \mu)

    with mean :math:`\mu` and covariance :math:`\Sigma` of the normalised features s of random images. The matrix
    is symmetric: it depends on no choice of eigenvectors, where eigenvalues are close. There are no
    parameters and no buffers; the moments are computed when first needed, once for each shape of image.

    Args:
        extractor: whose features are whitened; [N, C', h, w], with channels in 27 equal groups.
    """

    def __init__(self, extractor: Extractor) -> None:
        super().__init__()
        self._extractor = extractor

    @property
    def records_at_once(self) -> int:
        """The matrices are read once for as many."""
        return 256

    @property
    def fingerprint(self) -> str:
        """What is whitened, and the version of how."""
        return f"{self._extractor.fingerprint} whitened-1"

    def forward(self, images: Tensor) -> Tensor:
        """[N, C, H, W] in [-1, 1] -> as the extractor has it, [N, C', h, w]."""
        source = _Source(self._extractor.fingerprint, self._extractor)
        moments = _moments(source, tuple(images.shape[1:]), images.device, images.dtype)
        chunks = images.split(self._extractor.records_at_once)
        normalized = torch.cat([_normalized(self._extractor, chunk) for chunk in chunks])
        return moments.whiten(normalized)


@dataclass(frozen=True, slots=True)
class _Source:
    """An extractor by what it computes: equal ones share their moments."""

    fingerprint: str
    extractor: Extractor = field(compare=False)


@dataclass(frozen=True, slots=True)
class _Moments:
    """Of random images: where the middle is, and what is shortened by how much."""

    mean: Tensor
    """[F]."""
    directions: Tensor
    """[F, R], of length 1, orthogonal."""
    changes: Tensor
    """[R], what is added along each direction; all others stay as they are."""

    def whiten(self, features: Tensor) -> Tensor:
        """[N, ...] -> the same shape."""
        centred_NF = features.flatten(1) - self.mean
        along_NR = (centred_NF @ self.directions) * self.changes
        return centred_NF.addmm(along_NR, self.directions.T).view_as(features)


def check_size(shape: tuple[int, int, int], *, has_patches: bool) -> None:
    """Refuse images whose moments would fill the memory, before any of it is used.

    Raises:
        ParameterError: there are too many features.
    """
    problem = too_large_to_whiten(shape, has_patches=has_patches)
    if problem:
        raise ParameterError(problem, field="model.normalization")


@lru_cache(maxsize=2)
def _moments(
    source: _Source, shape: tuple[int, int, int], device: torch.device, dtype: torch.dtype
) -> _Moments:
    """Kept where they are used, as up to 0.5 GB would be copied there for each block of records."""
    check_size(shape, has_patches=isinstance(source.extractor, WithPatches))
    images = torch.from_numpy(random_images(_COUNT, *shape))
    with torch.inference_mode(mode=False), torch.no_grad():
        features_MF = torch.cat(
            [_normalized(source.extractor, chunk).flatten(1) for chunk in images.split(_CHUNK)]
        )
        mean_F = features_MF.mean(0)
        centred_MF = features_MF - mean_F
        # F may be 15,552: what M images span is found among M.
        variances_R, among_MR = torch.linalg.eigh(centred_MF @ centred_MF.T)
        is_there = variances_R > _NEGLIGIBLE * variances_R[-1]
        variances_R, among_MR = variances_R[is_there], among_MR[:, is_there]
        directions_FR = centred_MF.T @ (among_MR / variances_R.sqrt())
        shares_R = variances_R / variances_R.sum()
        changes_R = (shares_R / _FLOOR + 1) ** -_POWER - 1
        return _Moments(*(each.to(device, dtype) for each in (mean_F, directions_FR, changes_R)))


def _normalized(extractor: Extractor, images: Tensor) -> Tensor:
    return functional.group_norm(extractor(images), WHITENED_GROUPS)
