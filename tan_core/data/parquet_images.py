"""Images in Parquet files, read some rows at a time: a dataset need not fit into memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from tan_core.data import growth
from tan_core.data.images import begins_as_image
from tan_core.data.parquet import batches, opened
from tan_core.errors import DatasetError

_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class ParquetImages:
    """The encoded images of a part, file after file.

    Args:
        files: each with a column of images.
        where: what errors call the part.
        column: its name.
    """

    files: tuple[Path, ...]
    where: str
    column: str

    def __len__(self) -> int:
        return sum(pa_parquet.read_metadata(file).num_rows for file in self.files)

    def __iter__(self) -> Iterator[bytes]:
        for start, column in self._columns():
            yield from self._images(column, np.arange(start, start + len(column)))

    def select(self, rows: NDArray[np.intp]) -> Iterator[bytes]:
        """Those of the rows, which rise."""
        for start, column in self._columns():
            begin, end = np.searchsorted(rows, [start, start + len(column)])
            wanted = rows[begin:end]
            yield from self._images(column.take(pa.array(wanted - start)), wanted)

    def _columns(self) -> Iterator[tuple[int, pa.Array]]:
        """The encoded images, some rows at a time, and the number of the first of them."""
        start = 0
        for file in self.files:
            with opened(file) as stored:
                num_bytes = 0
                for batch in batches(
                    stored, [self.column], repeated=[self.column], most=_ROWS_AT_ONCE
                ):
                    num_bytes += batch.nbytes
                    growth.check_growth(num_bytes, stored=file.stat().st_size, where=file)
                    yield start, _encoded(batch.column(0))
                    start += len(batch)

    def _images(self, column: pa.Array, rows: NDArray[np.intp]) -> Iterator[bytes]:
        for row, value in zip(rows, column, strict=True):
            image = value.as_py()
            if image is None:
                raise DatasetError(
                    f"{self.where}, record {row}: the image has no bytes", field="path"
                )
            yield image


def image_column(files: Sequence[Path]) -> str | None:
    """The first column that begins with an encoded image, binary or a struct with a binary ``bytes``; where none does, the first of such kinds.

    By the first file with a record: each by its own might be read from another column than the others.
    """
    with opened(_telling(files)) as stored:
        return _image_column(stored)


def has_images(files: Sequence[Path]) -> bool:
    """Whether they are of images. Bytes that stand in no struct may be anything, such as keys: the first of them tells."""
    with opened(_telling(files)) as stored:
        name = _image_column(stored)
        if name is None:
            return False
        is_struct = pa.types.is_struct(stored.schema_arrow.field(name).type)
        return is_struct or _begins_with_image(stored, name)


def _telling(files: Sequence[Path]) -> Path:
    return next(filter(_holds_records, files), files[0])


def _holds_records(file: Path) -> bool:
    with opened(file) as stored:
        return stored.metadata.num_rows > 0


def may_hold_images(schema: pa.Schema) -> list[str]:
    """Its columns of such kinds."""
    return [field.name for field in schema if _holds_bytes(field.type)]


def _image_column(stored: pa_parquet.ParquetFile) -> str | None:
    found = may_hold_images(stored.schema_arrow)
    if len(found) < 2:
        return next(iter(found), None)
    return next((name for name in found if _begins_with_image(stored, name)), found[0])


def _begins_with_image(stored: pa_parquet.ParquetFile, name: str) -> bool:
    first = next(stored.iter_batches(1, columns=[name], use_threads=False), None)
    if first is None or len(first) == 0:
        return True  # that there are no records is said by whoever reads them
    image = _encoded(first.column(0))[0].as_py()
    return image is not None and begins_as_image(image)


def _encoded(column: pa.Array) -> pa.Array:
    """What a column of images holds, or its structs; pyarrow takes no rows out of views."""
    values = column.field("bytes") if pa.types.is_struct(column.type) else column
    return values.cast(pa.large_binary()) if pa.types.is_binary_view(values.type) else values


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        index = kind.get_field_index("bytes")
        return index >= 0 and _is_binary(kind.field(index).type)
    return _is_binary(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return (
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    )
