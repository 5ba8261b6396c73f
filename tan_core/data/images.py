"""Encoded images: headers checked one by one, pixels decoded in threads only when asked."""

import math
import os
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from tan_core.data.growth import MAX_BYTES
from tan_core.errors import DatasetError

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
MAX_PIXELS = 2**24
"""Of one image. A few kilobytes can claim to be gigapixels; nothing is decoded above this."""

_GREY_MODES = frozenset(["1", "L"])
_COLOUR_MODES = frozenset(["P", "RGB", "RGBA", "LA", "PA", "CMYK", "YCbCr"])
_CHUNK = 512


@dataclass(frozen=True, slots=True)
class ImageInputs:
    """Images as files or as encoded bytes. Grey stays one channel; any colour makes all RGB."""

    records: Sequence[Path | bytes]
    where: str

    def __len__(self) -> int:
        return len(self.records)

    def shape(self) -> tuple[int, ...]:
        """(C, H, W) of every image, from the headers alone.

        Raises:
            DatasetError: an image is unreadable, too large, or of another size than the first.
        """
        first: tuple[int, int] | None = None
        channels = 1
        for row, record in enumerate(self.records):
            with self._opened(row, record) as image:
                size = image.size
                if image.mode not in _GREY_MODES:
                    channels = 3
            if first is None:
                first = size
            elif size != first:
                raise DatasetError(
                    f"{self.where}: images must be of one size; record 0 is "
                    f"{first[0]}x{first[1]}, record {row} is {size[0]}x{size[1]}",
                    field="path",
                )
        if first is None:
            raise DatasetError(f"{self.where}: no records", field="path")
        shape = (channels, first[1], first[0])
        if len(self.records) * math.prod(shape) > MAX_BYTES:
            raise DatasetError(
                f"{self.where}: {len(self.records):,} images of shape {list(shape)} are more than "
                f"{MAX_BYTES:,} bytes",
                field="path",
            )
        return shape

    def load(self, indices: NDArray[np.intp]) -> NDArray[Any]:
        """uint8 [N, C, H, W] in the order of ``indices``."""
        channels, height, width = self.shape()
        out = np.empty((len(indices), channels, height, width), dtype=np.uint8)
        mode = "L" if channels == 1 else "RGB"

        def decode(start: int) -> None:
            for at in range(start, min(start + _CHUNK, len(indices))):
                row = int(indices[at])
                with self._opened(row, self.records[row]) as image:
                    pixels = np.asarray(image if image.mode == mode else image.convert(mode))
                out[at] = pixels if channels == 1 else pixels.transpose(2, 0, 1)

        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            for _ in pool.map(decode, range(0, len(indices), _CHUNK)):
                pass
        return out

    @contextmanager
    def _opened(self, row: int, record: Path | bytes) -> Generator[Image.Image]:
        """The image with only its header read; whatever goes wrong inside names the record."""
        name = f"{self.where}, record {row}" + (
            f" ({record.name})" if isinstance(record, Path) else ""
        )
        try:
            stream = BytesIO(record) if isinstance(record, bytes) else record
            with Image.open(stream, formats=FORMATS) as image:
                width, height = image.size
                if width * height > MAX_PIXELS:
                    raise DatasetError(
                        f"{name}: {width}x{height} is more than {MAX_PIXELS:,} pixels", field="path"
                    )
                if image.mode not in _GREY_MODES | _COLOUR_MODES:
                    raise DatasetError(
                        f"{name}: pixel mode {image.mode!r}; accepted: 8 bits per channel, "
                        "grey or colour",
                        field="path",
                    )
                yield image
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise DatasetError(f"{name}: {error}", field="path") from error
        except UnidentifiedImageError as error:
            raise DatasetError(
                f"{name}: not a readable image ({', '.join(FORMATS)}): none of these begins so",
                field="path",
            ) from error
        # Pillow warns of some broken files, and whoever runs it may make errors of warnings.
        except (OSError, SyntaxError, ValueError, UserWarning) as error:
            if isinstance(error, DatasetError):
                raise
            raise DatasetError(
                f"{name}: not a readable image ({', '.join(FORMATS)}): {error}", field="path"
            ) from error
