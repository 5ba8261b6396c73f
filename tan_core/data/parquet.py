"""Parquet files, read some rows at a time: a small one may hold any amount."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pa_compute
import pyarrow.parquet as pa_parquet

from tan_core.data import growth
from tan_core.errors import DatasetError

_FEWEST_ROWS, _MOST_ROWS, _CELLS_AT_ONCE = 2**10, 2**16, 2**22
_OF_ANY_LENGTH = frozenset(["BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"])
_ROW_BY_ROW = frozenset(["PLAIN", "RLE", "BIT_PACKED"])
_DISTINCT = _ROW_BY_ROW | {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}
"""Encodings of which Arrow can read distinct values, and which each row has."""
_WHOLE = _ROW_BY_ROW | {"DELTA_LENGTH_BYTE_ARRAY"}
"""Encodings that hold each value as often as it is there."""


@contextmanager
def opened(file: Path, *, distinct: Sequence[str] = ()) -> Generator[pa_parquet.ParquetFile]:
    """The file, to be read in the ``with`` block; some columns of text as their distinct values, and which each row has.

    Raises:
        DatasetError: it cannot be read, as a whole or in the block.
    """
    try:
        with pa_parquet.ParquetFile(file, read_dictionary=list(distinct)) as stored:
            stored.schema_arrow.names  # noqa: B018  # decoded when they are asked for
            yield stored
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{file}: not a readable Parquet file: {error}", field="path") from error


def schema_of(file: Path) -> pa.Schema:
    """Its columns, as Arrow has them."""
    with opened(file) as stored:
        return stored.schema_arrow


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


def read_table(file: Path, is_wanted: Callable[[pa.Field], bool]) -> pa.Table:
    """All columns, of which the wanted ones that hold numbers or text are read.

    Of the others none is: a few bytes may be a billion of their items. They have their types and no values, so that
    whoever lists the columns lists them too. What is stored once and is in each row is counted before it is unpacked.

    Args:
        file: read from.
        is_wanted: of a column of numbers, truth values or text.

    Raises:
        DatasetError: it cannot be read, or unpacks to more than is reasonable.
    """
    with opened(file) as stored:
        every, about = stored.schema_arrow, stored.metadata
        not_distinct, not_whole = (_encoded_otherwise(about, each) for each in (_DISTINCT, _WHOLE))
    read = [field for field in every if _is_readable(field.type) and is_wanted(field)]
    schema = pa.schema(read, every.metadata)
    texts = {field.name for field in read if is_text(field.type)}
    distinct, repeated = texts - not_distinct, texts & not_distinct & not_whole
    rows = min(max(_CELLS_AT_ONCE // max(len(read), 1), _FEWEST_ROWS), _MOST_ROWS)
    num_bytes, found = 0, list[pa.RecordBatch]()
    with opened(file, distinct=sorted(distinct)) as stored:
        # Of a table without a column that can be read it counts alone whether it has rows.
        num_rows = min(about.num_rows, 1)
        for batch in batches(stored, schema.names, repeated=sorted(repeated), most=rows):
            # A name with a dot may be that of a part of another column, which comes as well.
            named = zip(batch.schema.names, batch.columns, strict=True)
            columns = [column for name, column in named if name in schema.names]
            num_bytes += sum(map(_unpacked_bytes, columns))
            growth.check_growth(num_bytes, stored=file.stat().st_size, where=file)
            made = map(_as_stored, columns, schema.types)
            found.append(pa.record_batch(list(made), schema=schema))
        table = pa.Table.from_batches(found, schema=schema)
    num_rows = len(table) if read else num_rows
    values = iter(table.columns)
    return pa.table(
        [next(values) if field in read else _nothing(field.type, num_rows) for field in every],
        schema=pa.schema(
            field if field in read else field.with_type(_nothing(field.type, 0).type)
            for field in every
        ),
    )


def value_kind(kind: pa.DataType) -> pa.DataType:
    """Of a column's values, which may be stored as numbers of a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_number(kind: pa.DataType) -> bool:
    """Whether values are numbers or truth values."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether values are text."""
    return (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_readable(kind: pa.DataType) -> bool:
    values = value_kind(kind)
    return is_number(values) or is_text(values)


def _nothing(kind: pa.DataType, size: int) -> pa.Array:
    """Empty cells that know of what kind they are; of some kinds each would take the room of a value."""
    if pa.types.is_null(kind):
        return pa.nulls(size)
    return pa.DictionaryArray.from_arrays(pa.nulls(size, pa.int8()), pa.nulls(0, value_kind(kind)))


def _encoded_otherwise(about: pa_parquet.FileMetaData, encodings: frozenset[str]) -> set[str]:
    """Columns of which some is stored in another than these."""
    groups = map(about.row_group, range(about.num_row_groups))
    return {
        chunk.path_in_schema
        for group in groups
        for chunk in _chunks(group)
        if not encodings.issuperset(chunk.encodings)
    }


def _bytes_of_text(group: pa_parquet.RowGroupMetaData, columns: Sequence[str]) -> int:
    """What is stored of values of any length, unpacked."""
    return sum(
        chunk.total_uncompressed_size
        for chunk in _chunks(group)
        if chunk.physical_type in _OF_ANY_LENGTH
        and any(f"{chunk.path_in_schema}.".startswith(f"{name}.") for name in columns)
    )


def _chunks(group: pa_parquet.RowGroupMetaData) -> list[pa_parquet.ColumnChunkMetaData]:
    return [group.column(number) for number in range(group.num_columns)]


def _unpacked_bytes(column: pa.Array) -> int:
    """Of what stands in each row, though it be stored once."""
    if not (pa.types.is_dictionary(column.type) and is_text(column.type.value_type)):
        return column.nbytes
    lengths = pa_compute.call_function("binary_length", [column.dictionary]).cast(pa.int64())
    of_rows = lengths.take(column.indices)
    return pa_compute.call_function("sum", [of_rows]).as_py() or 0  # None of no rows


def _as_stored(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """In its own type again, where it was read as distinct values."""
    return column if column.type == kind else column.dictionary_decode().cast(kind)
