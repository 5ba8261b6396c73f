"""Images in Parquet files, read some rows at a time: a dataset need not fit into memory."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from tan_core.data import growth
from tan_core.data.images import begins_as_image
from tan_core.errors import DatasetError

_ROWS_AT_ONCE = 256
_OF_ANY_LENGTH = frozenset(["BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"])


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


def batches(
    stored: pa_parquet.ParquetFile, columns: Sequence[str], *, repeated: Sequence[str], most: int
) -> Iterator[pa.RecordBatch]:
    """Some rows of columns at a time; so few that they go into memory where each has all that is stored of the repeated ones.

    A value of any length that is stored once may be in every row.
    """
    # One group after the other: a reader of all of them keeps what it has read.
    for group in range(stored.num_row_groups):
        of_row = max(_bytes_of_text(stored.metadata.row_group(group), repeated), 1)
        yield from stored.iter_batches(
            max(min(most, growth.FREE_BYTES // of_row), 1),
            row_groups=[group], columns=columns, use_threads=False,
        )  # fmt: skip


def _bytes_of_text(group: pa_parquet.RowGroupMetaData, columns: Sequence[str]) -> int:
    """What is stored of values of any length, unpacked."""
    return sum(
        chunk.total_uncompressed_size
        for chunk in chunks(group)
        if chunk.physical_type in _OF_ANY_LENGTH
        and any(f"{chunk.path_in_schema}.".startswith(f"{name}.") for name in columns)
    )


def chunks(group: pa_parquet.RowGroupMetaData) -> list[pa_parquet.ColumnChunkMetaData]:
    """Of each column, or part of one, in a group of rows."""
    return [group.column(number) for number in range(group.num_columns)]


def image_column(files: Sequence[Path]) -> str | None:
    """The first column that begins with an encoded image, binary or a struct with a binary ``bytes``; where none does, the first of such kinds.

    By the first file with a record: each by its own might be read from another column than the others.
    """
    with opened(next(filter(_holds_records, files), files[0])) as stored:
        return _image_column(stored)


def has_images(file: Path) -> bool:
    """Whether a file is of images. Bytes that stand in no struct may be anything, such as keys: the first of them tells."""
    with opened(file) as stored:
        name = _image_column(stored)
        if name is None:
            return False
        is_struct = pa.types.is_struct(stored.schema_arrow.field(name).type)
        return is_struct or _begins_with_image(stored, name)


@contextmanager
def opened(file: Path, *, encoded: Sequence[str] = ()) -> Generator[pa_parquet.ParquetFile]:
    """The file, to be read in the ``with`` block; some columns of text or bytes as their distinct values, and which each row has.

    Raises:
        DatasetError: it cannot be read, as a whole or in the block.
    """
    try:
        with pa_parquet.ParquetFile(file, read_dictionary=list(encoded)) as stored:
            stored.schema_arrow.names  # noqa: B018  # decoded when they are asked for
            yield stored
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{file}: not a readable Parquet file: {error}", field="path") from error


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
