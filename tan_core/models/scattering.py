"""The scattering transform of an image: wavelets, modulus, average, twice. Nothing in it is learnt.

References:
    Bruna and Mallat (2013), arXiv:1203.1513; the filters are those of Kymatio (Andreux et al. 2020).
"""

# Shape legend: N = images, C = channels, L = angles, h, w = sides at the resolution of the moment.
import math
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tan_core import _validate
from tan_core.errors import ParameterError
from tan_core.models.extractor import Extractor

Real = NDArray[np.float64]

_OPPONENT: Final = (
    (1 / math.sqrt(3), 1 / math.sqrt(3), 1 / math.sqrt(3)),
    (1 / math.sqrt(2), 0.0, -1 / math.sqrt(2)),
    (1 / math.sqrt(6), -2 / math.sqrt(6), 1 / math.sqrt(6)),
)
"""Brightness, red against blue, green against both; an orthonormal basis."""


class Scattering(Extractor):
    r"""Scattering coefficients up to order two, averaged over squares of :math:`2^J` pixels.

    .. math::

        S_0 = x * \phi, \quad S_1 = |x * \psi_{j, l}| * \phi, \quad
        S_2 = \big||x * \psi_{j, l}| * \psi_{j', l'}\big| * \phi \quad (j < j')

    with Morlet wavelets :math:`\psi` of zero mean at J scales and L angles, and a Gaussian
    :math:`\phi`. Images are continued by reflection. It holds no parameters and no buffers, so a
    model's state is that of its head.

    Args:
        scales: :math:`J >= 1`.
        angles: :math:`L >= 1`, evenly over half a turn.
        opponent_colours: turn three channels into brightness and two differences of colour first, by
            an orthonormal change of basis. Red, green and blue of a photograph are nearly one
            picture; a normalisation behind the transform then hears what is different in them.
    """

    def __init__(self, scales: int = 2, angles: int = 8, *, opponent_colours: bool = False) -> None:
        super().__init__()
        _validate.positive_integer(scales=scales, angles=angles)
        self.scales = scales
        self.angles = angles
        self.opponent_colours = opponent_colours

    @property
    def fingerprint(self) -> str:
        """The options, and the version of what is computed."""
        colours = "opponent" if self.opponent_colours else "as given"
        return f"scattering-1 scales={self.scales} angles={self.angles} colours={colours}"

    @property
    def paths(self) -> int:
        """Coefficients of each channel and place: 1 + LJ + L²J(J - 1)/2, 81 by default."""
        first = self.scales * self.angles
        return 1 + first + first * self.angles * (self.scales - 1) // 2

    def forward(self, images: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, C * paths, H // 2^J, W // 2^J]; each channel's paths stand together.

        Within a channel: order 0, then order 1 by scale and angle, then order 2 by its first scale
        and angle, then by its second.

        Raises:
            ParameterError: a side is not longer than :math:`2^J`.
        """
        padded = self._padded(images)
        if self.opponent_colours and images.shape[1] == len(_OPPONENT):
            padded = torch.einsum("oc,nchw->nohw", padded.new_tensor(_OPPONENT), padded)
        bank = filter_bank(padded.shape[-2], padded.shape[-1], self.scales, self.angles).on(padded)
        spectrum = torch.fft.fft2(padded)
        orders = [[bank.average(padded, 0).unsqueeze(2)], [], []]
        for first in range(self.scales):
            bands = bank.modulus(spectrum, first, resolution=0)
            orders[1].append(bank.average(bands, first))
            if first + 1 < self.scales:
                spectra = torch.fft.fft2(bands)
                pairs = [
                    bank.average(bank.modulus(spectra, second, resolution=first), second)
                    for second in range(first + 1, self.scales)
                ]
                orders[2].append(torch.cat(pairs, dim=3).flatten(2, 3))
        return torch.cat([part for order in orders for part in order], dim=2).flatten(1, 2)

    def _padded(self, images: Tensor) -> Tensor:
        """Sides that :math:`2^J` divides, with a margin of at least half of that all around."""
        step = 2**self.scales
        if images.dim() != 4 or min(images.shape[-2:]) <= step:
            raise ParameterError(
                f"scattering of {self.scales} scales reads images [N, C, H, W] with sides above "
                f"{step}, got {list(images.shape)}",
                field="images",
            )
        margins: list[int] = []
        for side in reversed(images.shape[-2:]):
            missing = (side // step + 2) * step - side
            margins += [missing // 2, missing - missing // 2]
        return functional.pad(images, margins, mode="reflect")


@dataclass(frozen=True, slots=True)
class FilterBank:
    """Wavelets in Fourier space, where they are real, and averages as matrices.

    A band of scale j is kept at resolution j: every :math:`2^j`-th pixel.
    """

    wavelets: tuple[tuple[Tensor, ...], ...]
    """[scale][resolution] -> [L, h, w], for resolutions up to the scale, below J."""
    rows: tuple[Tensor, ...]
    """[resolution] -> [H // 2^J, h]: average over rows, every :math:`2^J`-th, margins cut."""
    columns: tuple[Tensor, ...]
    """[resolution] -> [w, W // 2^J]."""

    def on(self, like: Tensor) -> "FilterBank":
        """The same filters in the precision and on the device of ``like``."""
        return FilterBank(
            wavelets=tuple(tuple(each.to(like) for each in scale) for scale in self.wavelets),
            rows=tuple(each.to(like) for each in self.rows),
            columns=tuple(each.to(like) for each in self.columns),
        )

    def modulus(self, spectra: Tensor, scale: int, *, resolution: int) -> Tensor:
        """[..., h, w] spectra at a resolution -> [..., L, h', w'], the bands of a scale."""
        wavelets = self.wavelets[scale][resolution]
        bands = _folded(spectra.unsqueeze(-3), wavelets, times=2 ** (scale - resolution))
        return torch.fft.ifft2(bands).abs()

    def average(self, bands: Tensor, resolution: int) -> Tensor:
        """[..., h, w] at a resolution -> [..., H // 2^J, W // 2^J]."""
        return self.rows[resolution] @ bands @ self.columns[resolution]


def _folded(spectra: Tensor, wavelets: Tensor, *, times: int) -> Tensor:
    """The spectrum of what is left when a filtered image keeps every ``times``-th pixel."""
    height, width = (side // times for side in spectra.shape[-2:])
    total = spectra[..., :height, :width] * wavelets[..., :height, :width]
    for row, column in product(range(times), range(times)):
        if (row, column) != (0, 0):
            rows = slice(row * height, (row + 1) * height)
            columns = slice(column * width, (column + 1) * width)
            total = total + spectra[..., rows, columns] * wavelets[..., rows, columns]
    return total / times**2


@cache
def filter_bank(height: int, width: int, scales: int, angles: int) -> FilterBank:
    """The filters for images of these padded sides, float64 on the CPU."""
    wavelets: list[tuple[Tensor, ...]] = []
    for scale in range(scales):
        full = np.stack(
            [_morlet(height, width, scale=scale, angle=a, angles=angles) for a in range(angles)]
        )
        levels = range(max(1, min(scale + 1, scales - 1)))
        wavelets.append(
            tuple(torch.from_numpy(_kept(_kept(full, -1, level), -2, level)) for level in levels)
        )
    rows, columns = (
        tuple(torch.from_numpy(_average(side, level, scales)) for level in range(scales))
        for side in (height, width)
    )
    return FilterBank(tuple(wavelets), rows, tuple(each.T.contiguous() for each in columns))


def _morlet(height: int, width: int, *, scale: int, angle: int, angles: int) -> Real:
    """[h, w], in Fourier space: a Gabor filter less what makes its mean zero."""
    deviation = 0.8 * 2**scale
    frequency = 3 * math.pi / 4 / 2**scale
    slant = 4 / angles
    theta = (angles // 2 - 1 - angle) * math.pi / angles
    envelope, wave = (
        _gabor(height, width, deviation, theta, each, slant) for each in (0.0, frequency)
    )
    morlet = wave - wave.sum() / envelope.sum() * envelope
    return np.fft.fft2(morlet).real.copy()


def _gabor(
    height: int, width: int, deviation: float, theta: float, frequency: float, slant: float
) -> NDArray[np.complex128]:
    """A wave along ``theta`` under a Gaussian that is 1 / slant as wide across, periodic."""
    y, x = np.ogrid[-2 * height : 3 * height, -2 * width : 3 * width]
    along = y * math.cos(theta) + x * math.sin(theta)
    across = x * math.cos(theta) - y * math.sin(theta)
    squared = (along**2 + (slant * across) ** 2) / deviation**2
    periods = np.exp(-squared / 2 + 1j * frequency * along).reshape(5, height, 5, width)
    total: NDArray[np.complex128] = periods.sum((0, 2))
    return total * (slant / (2 * math.pi * deviation**2))


def _average(side: int, level: int, scales: int) -> Real:
    """[side / 2^J - 2, side / 2^level]: the Gaussian at every place that is kept, margins cut."""
    deviation = 0.8 * 2 ** (scales - 1)
    places = np.arange(-2 * side, 3 * side)
    gaussian = np.exp(-(places**2) / (2 * deviation**2)).reshape(5, side).sum(0)
    gaussian /= math.sqrt(2 * math.pi) * deviation
    response = np.fft.ifft(_kept(np.fft.fft(gaussian), -1, level)).real
    step = 2 ** (scales - level)
    out = np.arange(1, side // 2**scales - 1)
    return response[(out[:, None] * step - np.arange(len(response))) % len(response)]


def _kept(spectrum: NDArray, axis: int, level: int) -> NDArray:
    """The lowest 2^-level of the frequencies along an axis."""
    half = spectrum.shape[axis] // 2 ** (level + 1)
    low, high = np.split(spectrum, [half], axis=axis)[0], np.split(spectrum, [-half], axis=axis)[1]
    return np.concatenate([low, high], axis=axis)
