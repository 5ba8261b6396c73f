"""Images made at random, of shapes with edges: what pictures have in common before anybody looks at one."""

# Shape legend: N = images, C = channels, H, W = rows, columns.
from typing import Final

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]

_SMOOTHNESS: Final = 1.5, 3.0
"""Powers of 1 / frequency in the amplitude of a field: from ragged to round."""
_THRESHOLDS: Final = -1.5, 1.5
"""Standard deviations above which a field is bright."""
_STEEPNESS: Final = 3.0
"""Of edges: from dark to bright within a third of a standard deviation."""
_COLOURFULNESS: Final = 0.3
"""What a channel has of its own, over what all channels of an image share."""


def random_images(count: int, channels: int, height: int, width: int) -> Real:
    """[N, C, H, W] in [0, 1], equal on every machine up to rounding.

    A channel is bright where a smooth random field is above the image's threshold. Channels are nearly alike, as
    those of photographs are.
    """
    smoothness = _between(*_SMOOTHNESS, count, stream=2)
    fields = _fields((count, 1, height, width), smoothness, stream=3)
    if channels > 1:
        own = _fields((count, channels, height, width), smoothness, stream=5)
        fields = _normalized(fields + _COLOURFULNESS * own)
    above = fields - _between(*_THRESHOLDS, count, stream=1)
    return (above * _STEEPNESS + 0.5).clip(0, 1)


def _fields(shape: tuple[int, int, int, int], smoothness: Real, *, stream: int) -> Real:
    """Gaussian fields of mean 0 and variance 1 over each image."""
    rows, columns = (np.fft.fftfreq(side) for side in shape[2:])
    frequency = np.hypot(rows[:, None], columns)
    frequency[0, 0] = 1 / max(shape[2:])
    # Box and Muller: numpy promises the bits of Philox for ever, and its normal numbers not.
    radius = np.sqrt(-2 * np.log1p(-_uniform(shape, stream=stream)))
    white = radius * np.cos(2 * np.pi * _uniform(shape, stream=stream + 1))
    smooth: Real = np.fft.ifft2(np.fft.fft2(white) / frequency**smoothness).real
    return _normalized(smooth)


def _normalized(fields: Real) -> Real:
    return (fields - fields.mean((2, 3), keepdims=True)) / fields.std((2, 3), keepdims=True)


def _between(low: float, high: float, count: int, *, stream: int) -> Real:
    """[N, 1, 1, 1], one for each image."""
    return low + (high - low) * _uniform((count, 1, 1, 1), stream=stream)


def _uniform(shape: tuple[int, ...], *, stream: int) -> Real:
    """In [0, 1), 53 bits of each number."""
    bits = np.random.Philox(key=stream).random_raw(int(np.prod(shape)))
    return (bits >> np.uint64(11)).astype(np.float64).reshape(shape) * 2.0**-53
