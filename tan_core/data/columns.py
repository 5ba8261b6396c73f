"""Parquet and CSV: images in the Hugging Face layout, or flat numeric columns.

A table is never scaled by its own statistics: a mean or a range of private records would be a release
of its own. Columns stored as 8-bit unsigned integers are mapped to [-1, 1] because their type says so;
every other column enters as it is written, or as its registration says: between two constants that are
publicly known, or as columns of 0 and 1 (:mod:`tan_core.spec.columns`).
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray
from pydantic import TypeAdapter

from tan_core.data import parquet, parquet_images
from tan_core.data.images import ImageInputs
from tan_core.data.parquet import is_number, is_text, value_kind
from tan_core.data.parquet_images import ParquetImages
from tan_core.data.part import (
    AS_NUMBERS,
    ArrayInputs,
    Columns,
    Inputs,
    Labels,
    Members,
    Part,
    Parts,
    Role,
    as_float32,
    files_by_role,
    integer_labels,
    named_labels,
)
from tan_core.errors import DatasetError
from tan_core.spec.columns import ChoiceColumn, Feature, RangeColumn, column_of, names_of

ColumnKind = Literal["number", "bounded", "text", "other"]
"""Of a column: numbers; numbers or truth values whose type says between what they lie; text; what no feature can be."""
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,1000}\s*", re.ASCII)
_MISSING = frozenset(pa_csv.ConvertOptions().null_values)
"""How CSV writes that a number is not there."""
_FULL = {
    "features": "a number in every record, the names of columns that have one, or a range that is stated, whose middle "
    "stands for empty cells"
}


def has_images(path: Path) -> bool:
    """Whether the Parquet files hold an image column."""
    by_role = files_by_role(path, suffix=".parquet")
    files = by_role.get("train") or next(iter(by_role.values()), [])
    return bool(files) and parquet_images.has_images(files)


def class_names(path: Path, label: str, *, is_table: bool) -> list[str] | None:
    """What labels mean, as Hugging Face's ``datasets`` says it beside the columns; None where it says nothing."""
    if is_table and _table_suffix(path) != ".parquet":
        return None
    files = files_by_role(path, suffix=".parquet").get("train", [])
    about = (parquet.schema_of(files[0]).metadata if files else None) or {}
    try:
        names = json.loads(about.get(b"huggingface", b""))["info"]["features"][label]["names"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if is_list else None


def read_images(path: Path, columns: Columns) -> Parts:
    """Every part of Parquet files with a column ``image: {bytes, path}``, which train tells."""
    train = files_by_role(path, suffix=".parquet").get("train", [])
    images = parquet_images.image_column(train) if train else None

    def inputs(files: Sequence[Path], _: pa.Table, __: Columns, where: str) -> Inputs:
        return ImageInputs(ParquetImages(tuple(files), where, images or ""), where)

    read = partial(_read_beside_images, columns=columns, images=images)
    return _read(path, suffix=".parquet", read=read, columns=columns, inputs=inputs)


def read_table(path: Path, columns: Columns) -> Parts:
    """Every part of Parquet or CSV files with numeric feature columns."""
    suffix = _table_suffix(path)
    user = columns.user if columns.user != columns.label else None  # which is refused
    told_apart: dict[str, Callable[[pa.ChunkedArray], pa.ChunkedArray | pa.Array]] = {}
    if columns.classes and _look_typed(columns.classes):
        told_apart[columns.label] = partial(_classes, classes=columns.classes)
    if user is not None:
        told_apart[user] = _identities
    as_text = [*_of_choices(columns.features or ()), *told_apart]

    def read_csv(file: Path) -> pa.Table:
        table = _read_csv(file, as_text)
        for name, made in told_apart.items():
            table = _with(table, name, made)
        return table

    def read_parquet(file: Path) -> pa.Table:
        return parquet.read_table(file, lambda field: _is_wanted(field, columns))

    def inputs(_: Sequence[Path], table: pa.Table, columns: Columns, where: str) -> Inputs:
        return ArrayInputs(_features(table, columns, where=where))

    return _read(
        path,
        suffix=suffix,
        read=read_csv if suffix == ".csv" else read_parquet,
        columns=columns,
        inputs=inputs,
        unread=_unread,
        features=lambda table, columns: names_of(_feature_columns(table, columns)),
    )


def read_features(path: str | Path, features: Sequence[Any]) -> NDArray[np.float32]:
    """[N, F]: the records of a CSV or Parquet file as a model reads them whose dataset was registered with these features.

    Args:
        path: of a file with the columns by name.
        features: names, ranges and choices, as a registration has them, or as JSON.

    Raises:
        DatasetError: the file cannot be read, or a column is missing or of another kind.
        pydantic.ValidationError: a feature is none.

    Example:
        >>> from tempfile import NamedTemporaryFile
        >>> with NamedTemporaryFile("w", suffix=".csv") as file:
        ...     print("age,job", "20,clerk", "80,", sep=chr(10), file=file, flush=True)
        ...     age, job = {"column": "age", "low": 0, "high": 100}, {"column": "job", "choices": ["clerk"]}
        ...     read_features(file.name, [age, job])
        array([[-0.6,  1. ],
               [ 0.6,  0. ]], dtype=float32)
    """
    file, known = Path(path), tuple(TypeAdapter(list[Feature]).validate_python(features))
    columns = Columns(label="", features=known)
    if file.suffix.lower() == ".csv":
        table = _read_csv(file, _of_choices(known))
    else:
        table = parquet.read_table(file, lambda field: _is_wanted(field, columns))
    return _features(table, columns, where=str(file))


def column_kinds(path: Path) -> dict[str, ColumnKind]:
    """What the columns of a table hold, in their order, and no value of them.

    Parquet says it; of CSV it is how the beginning of the first training file is written.

    Raises:
        DatasetError: there is no table, or it cannot be read.
    """
    suffix = _table_suffix(path)
    files = files_by_role(path, suffix=suffix).get("train", [])
    if not files:
        raise DatasetError(f"{path}: no CSV or Parquet file of a table", field="path")
    schema = _csv_schema(files[0]) if suffix == ".csv" else parquet.schema_of(files[0])
    return {field.name: _told_kind(field.type) for field in schema}


def _csv_schema(file: Path) -> pa.Schema:
    try:
        with pa_csv.open_csv(file) as reader:
            reader.schema.names  # noqa: B018  # decoded when they are asked for
            return reader.schema
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{file}: not a readable CSV file: {error}", field="path") from error


def _told_kind(kind: pa.DataType) -> ColumnKind:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_uint8(kind) or pa.types.is_boolean(kind):
        return "bounded"
    return "number" if is_number(kind) else "text" if is_text(kind) else "other"


def table_files(path: Path) -> dict[Any, list[Path]]:
    """The files of a table and the part each belongs to."""
    return files_by_role(path, suffix=_table_suffix(path))


def _table_suffix(path: Path) -> str:
    if path.is_file():
        return path.suffix.lower()
    return ".csv" if files_by_role(path, suffix=".csv") else ".parquet"


def _read(
    path: Path,
    *,
    suffix: str,
    read: Callable[[Path], pa.Table],
    columns: Columns,
    inputs: Callable[[Sequence[Path], pa.Table, Columns, str], Inputs],
    unread: Callable[[pa.Table, Columns], tuple[str, ...]] | None = None,
    features: Callable[[pa.Table, Columns], tuple[str, ...]] | None = None,
) -> Parts:
    parts: Parts = {}
    labels_are_text: dict[bool, Role] = {}
    users_are_text: dict[bool, Role] = {}
    train: pa.Schema | None = None
    by_role = files_by_role(path, suffix=suffix)
    for role, files in sorted(by_role.items(), key=lambda each: each[0] != "train"):
        where = f"{path} ({role})"
        table = _joined({file: read(file) for file in files}, where=where)
        if table.num_rows == 0:
            raise DatasetError(f"{where}: no records", field="path")
        labels = _labels(table, columns, where=where)
        labels_are_text.setdefault(is_text(_kind(table.column(columns.label))), role)
        users = _members(table, columns.user, columns, where=where, field="unit")
        if columns.user is not None:
            users_are_text.setdefault(is_text(_kind(table.column(columns.user))), role)
        groups = _members(table, columns.group, columns, where=where, field="group")
        if train is None:
            train = table.schema
        own = columns if features is None else _as_in_train(table, columns, train, where=where)
        parts[role] = Part(
            inputs(files, table, own, where),
            labels,
            users=users,
            groups=groups,
            unread=() if unread is None else unread(table, columns),
            features=() if features is None else features(table, own),
        )
    # A CSV file tells no types: of classes called 1, 2 and 3b a part may hold the first two alone.
    if len(labels_are_text) > 1:
        raise DatasetError(
            f"{path}: column {columns.label!r} of {labels_are_text[True]} is text, of {labels_are_text[False]} "
            "numbers, which number the classes from 0; write both in one way",
            field="label",
        )
    if len(users_are_text) > 1:
        raise DatasetError(
            f"{path}: column {columns.user!r} of {users_are_text[True]} is text, of {users_are_text[False]} "
            "numbers: a user 007 of the one would not be known again as 7; write both in one way",
            field="unit",
        )
    return parts


def _joined(tables: Mapping[Path, pa.Table], *, where: str) -> pa.Table:
    """The files of a part, one after the other, with the columns of the first one in its order.

    CSV tells no types: a column that is whole in one file, or empty, may have decimals in the next, as in one file of both.
    """
    first, *_ = tables.values()
    for file, table in tables.items():
        twice = [name for name, count in Counter(table.column_names).items() if count > 1]
        if twice:
            raise DatasetError(
                f"{where}: more than one column {twice[0]!r} in {file.name}", field="path"
            )
        unlike = sorted({*first.column_names} ^ {*table.column_names})
        if unlike:
            raise DatasetError(
                f"{where}: the files differ in columns: {file.name} has {table.column_names}, and "
                f"{unlike[0]!r} is not in all of them",
                field="path",
            )
    are_csv = all(file.suffix.lower() == ".csv" for file in tables)
    columns: dict[str, pa.ChunkedArray] = {}
    for name in first.column_names:
        each = [table.select([name]) for table in tables.values()]
        try:
            joined = pa.concat_tables(each, promote_options="permissive" if are_csv else "default")
        except pa.ArrowException as error:
            types = {file: table.schema.field(name).type for file, table in tables.items()}
            kinds = {str(value_kind(kind)): file for file, kind in types.items()}
            found = ", ".join(f"{kind} in {file.name}" for kind, file in kinds.items())
            raise DatasetError(
                f"{where}: the files differ in columns: {name!r} is {found}; accepted: "
                f"{'numbers, or one type' if are_csv else 'one type'} ({error})",
                field="path",
            ) from error
        columns[name] = joined.column(0)
    return pa.table(columns)


def _read_beside_images(file: Path, columns: Columns, images: str | None) -> pa.Table:
    """Every column but the images, which are read when they are asked for."""
    schema = parquet.schema_of(file)
    if images not in parquet_images.may_hold_images(schema):
        named = "" if images is None else f" {images!r}"
        raise DatasetError(
            f"{file}: no image column{named}; columns are {schema.names}", field="path"
        )
    named = (columns.label, columns.user, columns.group)
    return parquet.read_table(file, lambda field: field.name in named)


def _is_wanted(field: pa.Field, columns: Columns) -> bool:
    """Whether a record of a table is made of it."""
    if field.name in (columns.label, columns.user, columns.group):
        return True
    if columns.features is None:
        return is_number(field.type)
    return any(field.name == column_of(feature) for feature in columns.features)


def _read_csv(file: Path, as_text: Iterable[str]) -> pa.Table:
    """The whole table. Some columns are text, whatever is in them.

    CSV tells no types, and one that is guessed from all cells makes 1 of 01 in every record, or in none, as one
    record is a number or a word.
    """
    kinds = dict.fromkeys(as_text, pa.string())
    try:
        table = pa_csv.read_csv(file, convert_options=pa_csv.ConvertOptions(column_types=kinds))
        table.schema.names  # noqa: B018  # decoded when they are asked for
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{file}: not a readable CSV file: {error}", field="path") from error
    return table


def _of_choices(features: Sequence[Feature]) -> list[str]:
    return [each.column for each in features if isinstance(each, ChoiceColumn)]


def _with(
    table: pa.Table, name: str, made: Callable[[pa.ChunkedArray], pa.ChunkedArray | pa.Array]
) -> pa.Table:
    """The table with a column made anew; as it is where there is no such column, or more than one."""
    if table.schema.names.count(name) != 1:
        return table
    at = table.schema.names.index(name)
    return table.set_column(at, name, made(table.column(at)))


def _look_typed(names: Sequence[str]) -> bool:
    """Whether a column of CSV may be taken for numbers, truth values or dates, since there are such among its names."""
    row = io.StringIO()
    csv.writer(row).writerow(names)
    written = row.getvalue().encode()
    numbered = pa_csv.ReadOptions(
        column_names=[str(number) for number in range(len(names))], block_size=len(written)
    )
    kinds = pa_csv.read_csv(io.BytesIO(written), numbered).schema.types
    return not all(map(is_text, kinds))


def _classes(column: pa.ChunkedArray, classes: Sequence[str]) -> pa.Array:
    """Whole numbers as they are counted, but for those that are written as a class is."""
    encoded = column.combine_chunks().dictionary_encode()
    names = [name if name in classes else _counted(name) for name in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)


def _counted(name: str) -> str:
    """A whole number as it is counted, and any other text as it is."""
    return str(int(name)) if _WHOLE.fullmatch(name) else name


def _identities(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Whole numbers as they are counted, for 007 is 7 to whoever writes it without zeros; missing ones as such."""
    encoded = column.combine_chunks().dictionary_encode()
    names = [
        None if name in _MISSING else _counted(name) for name in encoded.dictionary.to_pylist()
    ]
    if not all(name is None or _WHOLE.fullmatch(name) for name in names):
        try:
            # Measurements tell nobody apart: they are refused by their type.
            return column.cast(pa.float64())
        except pa.ArrowInvalid:
            pass
    return pa.array(names, pa.string()).take(encoded.indices)


def _labels(table: pa.Table, columns: Columns, *, where: str) -> Labels:
    name = columns.label
    if name not in table.column_names:
        told = f"{where}: no column {name!r}; columns are {table.column_names}"
        if len(table.column_names) == 1 and any(each in table.column_names[0] for each in ";\t"):
            told += "; accepted: commas between columns"
        raise DatasetError(told, field="label")
    column = table.column(name)
    kind = _kind(column)
    if not _has_names(kind):
        raise DatasetError(
            f"{where}: column {name!r} is {_kind(column)}; labels must be {AS_NUMBERS}, or truth values, or "
            "text whose classes are named",
            field="label",
        )
    _refuse_null(column, name, where=where, field="label")
    if is_text(kind):
        members = _by_name(column, name, where=where, field="label")
        return named_labels(members, columns.classes, where=where)
    return integer_labels(column.cast(kind).to_numpy(), where=where)


def _features(table: pa.Table, columns: Columns, *, where: str) -> NDArray[np.float32]:
    features = _feature_columns(table, columns)
    if not features:
        raise DatasetError(
            f"{where}: no numeric column beside the label {columns.label!r}; "
            f"columns are {table.column_names}",
            field="features",
        )
    out = np.empty((table.num_rows, len(names_of(features))), dtype=np.float32)
    at = 0
    for feature in features:
        width = len(names_of([feature]))
        column = _feature_column(table, column_of(feature), columns, where=where)
        if isinstance(feature, RangeColumn):
            out[:, at] = _between(column, feature, where=where)
        elif isinstance(feature, ChoiceColumn):
            out[:, at : at + width] = _chosen(column, feature, where=where)
        else:
            out[:, at] = _as_written(column, feature, where=where)
        at += width
    return out


def _feature_columns(table: pa.Table, columns: Columns) -> tuple[Feature, ...]:
    return columns.features or tuple(f.name for f in _beside(table, columns) if is_number(f.type))


def _as_in_train(table: pa.Table, columns: Columns, train: pa.Schema, *, where: str) -> Columns:
    """The columns with the features of train in its order, which a part may store in another one."""
    features, own = (_feature_columns(each, columns) for each in (train.empty_table(), table))
    names = [each for each in features if isinstance(each, str)]
    if columns.features is None and set(names) != set(own):
        raise DatasetError(
            f"{where}: columns of numbers are {list(own)}, those of train {names}; accepted: the same, or "
            "the names of features that both have",
            field="features",
        )
    for name in names:
        types = [
            schema.field(name).type for schema in (train, table.schema) if name in schema.names
        ]
        if len({pa.types.is_uint8(each) for each in types}) > 1:
            raise DatasetError(
                f"{where}: column {name!r} is {types[1]}, in train {types[0]}: of one of them bytes would be "
                "mapped to [-1, 1] alone; accepted: one type",
                field="features",
            )
    return replace(columns, features=features)


def _unread(table: pa.Table, columns: Columns) -> tuple[str, ...]:
    if columns.features is not None:
        return ()
    return tuple(f.name for f in _beside(table, columns) if not is_number(f.type))


def _beside(table: pa.Table, columns: Columns) -> list[pa.Field]:
    """All but what says the label, whose a record is and of which group."""
    named = {columns.label, columns.user, columns.group}
    return [field for field in table.schema if field.name not in named]


def _feature_column(table: pa.Table, name: str, columns: Columns, *, where: str) -> pa.ChunkedArray:
    others = [c for c in table.column_names if c not in (columns.label, columns.user)]
    if name not in others:
        raise DatasetError(
            f"{where}: {name!r} is not a feature column; columns are {others}", field="features"
        )
    return table.column(name)


def _between(column: pa.ChunkedArray, feature: RangeColumn, *, where: str) -> NDArray[np.float32]:
    """The range as -1 to 1; what nobody wrote down is in the middle."""
    if not is_number(column.type):
        raise DatasetError(
            f"{where}: column {feature.column!r} is {_kind(column)}; a range is of numbers, accepted of others: choices",
            field="features",
        )
    # Unsafe: a whole number beyond 2^53 is rounded, and not refused.
    values = column.cast(pa.float64(), safe=False).to_numpy()
    within = np.clip(values, feature.low, feature.high)
    half = feature.high / 2 - feature.low / 2
    scaled = (within / half - feature.low / half) - 1
    return np.where(np.isnan(within), 0, np.clip(scaled, -1, 1)).astype(np.float32)


def _chosen(column: pa.ChunkedArray, feature: ChoiceColumn, *, where: str) -> NDArray[np.float32]:
    """[N, choices] of 0 and 1; all 0 of any other value, and of none."""
    kind = _kind(column)
    if not _has_names(kind):
        raise DatasetError(
            f"{where}: column {feature.column!r} is {_kind(column)}; choices are of text, integers and truth values, "
            "accepted of other numbers: a range, low and high",
            field="features",
        )
    encoded = column.cast(kind).cast(pa.string()).combine_chunks().dictionary_encode()
    place = {choice: at for at, choice in enumerate(feature.choices)}
    # One more at the end, for empty cells.
    texts = _texts(encoded, feature.column, where=where, field="features")
    places = [place.get(text.strip(), -1) for text in texts]
    of_records = encoded.indices.fill_null(len(places)).to_numpy(zero_copy_only=False)
    at = np.array([*places, -1])[of_records]
    return (at[:, None] == np.arange(len(feature.choices))).astype(np.float32)


def _as_written(column: pa.ChunkedArray, name: str, *, where: str) -> NDArray[np.float32]:
    if not is_number(column.type):
        # Lists and dates have no choices either.
        remedy = "or say which choices it has" if _has_names(_kind(column)) else "one to a column"
        raise DatasetError(
            f"{where}: column {name!r} is {_kind(column)}; features must be numbers, {remedy}",
            field="features",
        )
    _refuse_null(column, name, where=where, field="features")
    given = column.to_numpy()
    # As float64 first: CSV has whole numbers as such unless another record has decimals, and 2^60 + 2^36 + 1 is rounded twice then.
    values = as_float32(given.astype(np.float64, copy=False))
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise DatasetError(
            f"{where}: column {name!r} of record {row} is {given[row]}, not finite in float32",
            field="features",
        )
    if pa.types.is_uint8(column.type):
        values = values / np.float32(127.5) - np.float32(1)
    return values


def _members(
    table: pa.Table, name: str | None, columns: Columns, *, where: str, field: str
) -> Members | None:
    """Whose or which group's each record is, by a column of integers, truth values or text."""
    if name is None:
        return None
    others = [c for c in table.column_names if c != columns.label]
    if name not in others:
        raise DatasetError(
            f"{where}: {name!r} is no column beside the label; columns are {others}", field=field
        )
    column = table.column(name)
    kind = _kind(column)
    if not _has_names(kind):
        raise DatasetError(
            f"{where}: column {name!r} is {_kind(column)}; accepted: integers, truth values and text",
            field=field,
        )
    _refuse_null(column, name, where=where, field=field)
    members = _by_name(column, name, where=where, field=field)
    # The records of nobody are not those of one user.
    if name == columns.user and "" in members.names:
        row = int(np.flatnonzero(members.of == members.names.index(""))[0])
        raise DatasetError(
            f"{where}: column {name!r} of record {row} is empty; accepted: a value in every record",
            field=field,
        )
    return members


def _by_name(column: pa.ChunkedArray, name: str, *, where: str, field: str) -> Members:
    # As text, so that a number means the same in every part, whatever type it is stored in.
    encoded = column.cast(_kind(column)).cast(pa.string()).combine_chunks().dictionary_encode()
    return Members(
        tuple(_texts(encoded, name, where=where, field=field)),
        encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
    )


def _texts(encoded: pa.DictionaryArray, name: str, *, where: str, field: str) -> list[str]:
    """Its distinct ones; Parquet files may hold any bytes as text."""
    try:
        return encoded.dictionary.to_pylist()
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{where}: column {name!r} holds text that is not UTF-8: {error}", field=field
        ) from error


def _kind(column: pa.ChunkedArray) -> pa.DataType:
    """Of its values, which may be stored as numbers of a dictionary."""
    return value_kind(column.type)


def _has_names(kind: pa.DataType) -> bool:
    """Whether its values can be told apart by how they are written."""
    return is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)


def _refuse_null(column: pa.ChunkedArray, name: str, *, where: str, field: str) -> None:
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise DatasetError(
            f"{where}: column {name!r} of record {row} is empty, as in {column.null_count:,} of {len(column):,} records; "
            f"accepted: {_FULL.get(field, 'a value in every record')}",
            field=field,
        )
