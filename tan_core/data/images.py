"""Encoded images: headers checked one by one, pixels decoded in threads only when asked."""

import math
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from tan_core.data import growth
from tan_core.errors import DatasetError

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
MAX_PIXELS = 2**24
"""Of one image. A few kilobytes can claim to be gigapixels; nothing is decoded above this."""
MAX_BYTES = 2**42
"""Of all images of a part together once decoded, which they never are at once."""

_GREY_MODES = frozenset(["1", "L"])
_COLOUR_MODES = frozenset(["P", "RGB", "RGBA", "LA", "PA", "CMYK", "YCbCr"])
_SPOILED = (OSError, SyntaxError, ValueError, UserWarning)
"""What Pillow raises of broken files. It warns of some, and whoever runs it may make errors of warnings."""
_CHUNK = 64
"""Images that a thread decodes in a row: some milliseconds of work."""
_JPEG_SCAN, _JPEG_END = b"\xff\xda", b"\xff\xd9"
_HELD = 4096
"""Encoded images in memory at once, on the way through a part."""

Record = Path | bytes
"""An encoded image: its file, or what such a file would hold."""
Shape = tuple[int, ...]


class Encoded(Protocol):
    """Encoded images in stored order, read as they are asked for."""

    def __len__(self) -> int:
        """How many."""
        ...

    def __iter__(self) -> Iterator[Record]:
        """All of them."""
        ...

    def select(self, rows: NDArray[np.intp]) -> Iterator[Record]:
        """Those of the rows, which rise."""
        ...


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """Images that are files of their own."""

    files: Sequence[Path]

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.files)

    def select(self, rows: NDArray[np.intp]) -> Iterator[Record]:
        """Those of the rows."""
        return (self.files[row] for row in rows)


@dataclass(frozen=True, slots=True)
class ImageInputs:
    """The images of one part. Grey stays one channel; any colour makes all RGB."""

    records: Encoded
    where: str

    def __len__(self) -> int:
        return len(self.records)

    def shape(self) -> Shape:
        """(C, H, W) of every image, from the headers alone.

        Raises:
            DatasetError: an image is unreadable, too large, or of another size than the first.
        """
        first: tuple[int, int] | None = None
        channels = 1
        for row, record in enumerate(self.records):
            with _opened(record, self.where, row) as image:
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

    def check_whole(self) -> None:
        """Look for images that were cut off, which no header shows: where they are read by index, one would end a run.

        Large images are not decoded for it, which takes ten to fifty times as long.

        Raises:
            DatasetError: an image lacks its end.
        """
        for row, record in enumerate(self.records):
            with _opened(record, self.where, row) as image:
                _check_whole(image, record)

    def load(self, indices: NDArray[np.intp]) -> NDArray[Any]:
        """uint8 [N, C, H, W] in the order of ``indices``, all in memory."""
        shape = self.shape()
        if len(indices) * math.prod(shape) > growth.MAX_BYTES:
            raise DatasetError(
                f"{self.where}: {len(indices):,} images of shape {list(shape)} do not go into memory "
                f"({growth.MAX_BYTES:,} bytes): a folder is needed where they are kept",
                field="cache_dir",
            )
        out = np.empty((len(indices), *shape), dtype=np.uint8)
        places = np.argsort(indices, kind="stable")
        rising = self.records.select(indices[places])
        with decoding_threads() as pool:
            for start in range(0, len(indices), _HELD):
                held = list(islice(rising, _HELD))
                at = places[start : start + len(held)]
                decode_all(pool, held.__getitem__, indices[at], into=out, at=at, where=self.where)
        return out


def decoding_threads() -> ThreadPoolExecutor:
    """One for every core that this process may use: decoders compute outside of Python's lock."""
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="decode")


def decode_all(
    pool: ThreadPoolExecutor,
    record: Callable[[int], Record],
    rows: NDArray[np.intp],
    *,
    into: NDArray[Any],
    at: Iterable[int] | None = None,
    where: str,
) -> None:
    """Images decoded into an array of their shape.

    Args:
        pool: the threads that decode.
        record: the k-th of the images, read by the thread that decodes it.
        rows: what errors call each of them.
        into: uint8 [N, C, H, W].
        at: the place of each in ``into``; None: one after the other.
        where: what errors call their part.
    """
    places = np.arange(len(rows)) if at is None else np.asarray(at)
    shape = into.shape[1:]

    def some(start: int) -> None:
        for number in range(start, min(start + _CHUNK, len(rows))):
            into[places[number]] = _decoded(record(number), shape, where, int(rows[number]))

    # An error of one ends all: what has not begun is not waited for.
    futures = [pool.submit(some, start) for start in range(0, len(rows), _CHUNK)]
    try:
        for future in futures:
            future.result()
    finally:
        for future in futures:
            future.cancel()


def _decoded(record: Record, shape: Shape, where: str, row: int) -> NDArray[Any]:
    channels, height, width = shape
    mode = "L" if channels == 1 else "RGB"
    with _opened(record, where, row) as image:
        if image.size != (width, height):
            raise DatasetError(
                f"{where}, record {row}: is {image.size[0]}x{image.size[1]}, expected was "
                f"{width}x{height}",
                field="path",
            )
        pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    return pixels if channels == 1 else pixels.transpose(2, 0, 1)


def begins_as_image(content: bytes) -> bool:
    """Whether it is an image of a known format, whole or spoiled."""
    try:
        with Image.open(BytesIO(content), formats=FORMATS):
            return True
    except UnidentifiedImageError:
        return False
    except (*_SPOILED, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return True


def _check_whole(image: Image.Image, record: Record) -> None:
    if image.format == "PNG":
        image.verify()
    elif image.format in ("JPEG", "MPO"):  # an end before the last scan is a thumbnail's
        content = record if isinstance(record, bytes) else record.read_bytes()
        if content.rfind(_JPEG_END) < content.rfind(_JPEG_SCAN):
            raise OSError("it ends before its end")
    else:
        image.load()


@contextmanager
def _opened(record: Record, where: str, row: int) -> Generator[Image.Image]:
    """The image with only its header read; whatever goes wrong inside names the record."""
    name = f"{where}, record {row}" + (f" ({record.name})" if isinstance(record, Path) else "")
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
    except _SPOILED as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(
            f"{name}: not a readable image ({', '.join(FORMATS)}): {error}", field="path"
        ) from error
