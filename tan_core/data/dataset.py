"""Inspect a dataset, read a split of it, and check that it is still the one that was registered."""

import hashlib
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from tan_core import _validate
from tan_core.data import columns, digits, image_folder, npz, records
from tan_core.data.cache import Made, cache_file, cached, stacked
from tan_core.data.digests import Digests, record_digests
from tan_core.data.images import ImageInputs
from tan_core.data.part import (
    ROLES,
    ArrayInputs,
    Columns,
    Labels,
    Members,
    Part,
    Parts,
    Role,
    Source,
    files_by_role,
)
from tan_core.data.records import Records
from tan_core.data.remote import entry_name, fetched, unregistered
from tan_core.data.splits import SplitIndices, split_indices
from tan_core.data.storage import LOCAL, Storage
from tan_core.data.store import Room
from tan_core.data.users import MAX_RECORDS_PER_UNIT, RECORDS_PER_UNIT, numbered, refuse_shared
from tan_core.errors import DatasetError
from tan_core.spec.addresses import check_allowed, is_address
from tan_core.wire import RECORD, DatasetRef

SOURCES: tuple[Source, ...] = get_args(Source)
MAX_CLASSES = 100_000
MAX_GROUPS = 100
FAR = 10.0
"""Scaled by whatever constant, hardly a feature goes further from 0; in years, metres or money most do."""
MAX_NAMED_CHARACTERS = 1_000_000
"""Of all names of classes together: they come before the weights in one file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFacts:
    """What a registration stores about a dataset."""

    source: Source
    content_sha256: str
    files: Mapping[str, str]
    """SHA-256 of the bytes of every file, sorted, to the name of the first file that holds them."""
    num_classes: int
    shape: tuple[int, ...]
    """Of one record, channels first; (F,) for a table."""
    num_train: int
    """Units: what is sampled. Records, or the users whose records they are."""
    num_train_records: int
    """The same as ``num_train`` unless the unit is a user."""
    num_validation: int
    """Records, as in every split that is only scored on."""
    num_test: int
    records_per_unit: int
    """Of each unit in train, at most."""
    num_validation_users: int | None = None
    """Where the unit is a user: whose records those of the validation split are."""
    unread_columns: tuple[str, ...] = ()
    """Of a table whose features were not named: beside label, unit and group, those that hold no numbers."""
    far_features: tuple[str, ...] = ()
    """Of a table: those with numbers beyond ``FAR`` in train, which no model takes well. By name, or by index in .npz."""
    unseen_classes: tuple[int, ...] = ()
    """Where the number of classes was read off the labels: those below the largest that no training record has."""
    record_digests: Digests | None = field(default=None, compare=False, repr=False)
    """Of all records, where a key was given for them."""

    @property
    def file_sha256(self) -> tuple[str, ...]:
        """Every distinct digest, sorted: what is in the dataset, whatever its files are called."""
        return tuple(self.files)


class _File(NamedTuple):
    role: str
    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One split, in memory or read by index; record ``i`` is ``inputs[i : i + 1], labels[i]``."""

    inputs: NDArray[Any] | Records
    """uint8 [N, C, H, W] for images, float32 [N, F] for tables; features as they were extracted."""
    labels: Labels
    users: NDArray[np.int64] | None = None
    """Where the unit is a user: [N], whose each record is, by numbers from 0."""
    groups: Members | None = None
    """Of test, where the dataset names a column of groups."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_units(self) -> int:
        """What is sampled: users where there are any, else records."""
        return len(self) if self.users is None else int(self.users.max()) + 1


def inspect(
    path: str | PathLike[str] | None,
    *,
    source: str | None = None,
    label: str = "label",
    features: Sequence[str] | None = None,
    num_classes: int | None = None,
    classes: Sequence[str] | None = None,
    split_seed: int = 0,
    unit: str = RECORD,
    records_per_unit: int | None = None,
    group: str | None = None,
    storage: Storage = LOCAL,
    digest_key: bytes | None = None,
) -> DatasetFacts:
    """The facts of a dataset, after a check of every label and every image header.

    Args:
        path: folder, file or address; None for the bundled ``digits``.
        source: one of :data:`SOURCES`; None: found out from what is at ``path``.
        label: name of the label column.
        features: feature columns of a table; None: every numeric column but the label.
        num_classes: how many classes there are; None: the largest train label plus one, which is
            read off the records, so state it where the number of classes is not public.
        classes: what they are called, by their number; needed where labels are text, which is compared
            with them letter by letter. None: numbers, or class folders in the order of their names.
        split_seed: fixes the splits that are cut where none is stored.
        unit: what one guarantee is for: a record, or the column that says whose a record is.
        records_per_unit: of a user, in train, at most; None: ``RECORDS_PER_UNIT``.
        group: the column that says which group a record is of, for accuracies by group.
        storage: which addresses ``path`` may be, and where what lies there is kept.
        digest_key: of the digests of all records, by which two datasets that hold the same ones are found;
            None: no digests.

    Raises:
        DatasetError: missing, unreadable or malformed data; ``field`` names the argument at fault.
        ParameterError: a number is out of its domain, or an argument of another kind.
    """
    if isinstance(path, PathLike):
        path = os.fspath(path)
    _validate.optional(str, path=path, source=source, group=group)
    _validate.instance(str, label=label, unit=unit)
    _validate.instance(Storage, storage=storage)
    _validate.optional(bytes, digest_key=digest_key)
    if features is not None:
        features = _validate.sequence(str, features=features)
    if classes is not None:
        classes = _validate.sequence(str, classes=classes)
    num_classes, split_seed, records_per_unit = map(
        _validate.plain, (num_classes, split_seed, records_per_unit)
    )
    for name, value in (("num_classes", num_classes), ("records_per_unit", records_per_unit)):
        if value is not None:
            _validate.positive_integer(**{name: value})
    _validate.natural_number(split_seed=split_seed)
    most = _records_per_unit(unit, records_per_unit)
    if classes is not None:
        num_classes = _number_of(classes, num_classes)
    names = _columns(label, classes, features, unit, group)
    facts_of = partial(
        _facts,
        source=source,
        names=names,
        num_classes=num_classes,
        split_seed=split_seed,
        most=most,
        digest_key=digest_key,
    )
    if path is None or not is_address(path):
        return facts_of(path)
    address = check_allowed(path, storage.allowed_urls)
    with unregistered(address, storage.needed_store()) as (place, keep):
        facts = facts_of(str(place))
        keep(facts.content_sha256)
        return facts


def _facts(
    path: str | None,
    *,
    source: str | None,
    names: Columns,
    num_classes: int | None,
    split_seed: int,
    most: int,
    digest_key: bytes | None,
) -> DatasetFacts:
    found = _source(path, source)
    parts = _read(found, path, names)
    refuse_shared(parts)
    _check_groups(parts)
    shape = _common_shape(parts)
    unseen: tuple[int, ...] = ()
    if num_classes is None:
        num_classes = int(parts["train"].labels.max()) + 1
        unseen = _unseen_classes(parts["train"].labels, num_classes)
    _check_labels(parts, num_classes)
    splits = split_indices(parts, split_seed=split_seed, records_per_unit=most)
    files = _hashed_files(found, path)
    train, users = splits["train"][1], parts["train"].users
    role, validation = splits["validation"]
    scored = parts[role].users
    return DatasetFacts(
        source=found,
        content_sha256=_content_sha256(found, files),
        files=_name_by_digest(files),
        num_classes=num_classes,
        shape=shape,
        num_train=len(train) if users is None else len(np.unique(users.of[train])),
        num_train_records=len(train),
        num_validation=len(validation),
        num_test=len(splits["test"][1]),
        records_per_unit=most,
        num_validation_users=None if scored is None else len(np.unique(scored.of[validation])),
        unread_columns=parts["train"].unread,
        far_features=_far_features(parts["train"]),
        unseen_classes=unseen,
        record_digests=None if digest_key is None else record_digests(parts, digest_key),
    )


def _far_features(part: Part) -> tuple[str, ...]:
    if not isinstance(part.inputs, ArrayInputs) or part.inputs.values.ndim != 2:
        return ()
    values = part.inputs.values
    furthest = np.maximum(values.max(axis=0), -values.min(axis=0))
    names = part.features or tuple(map(str, range(len(furthest))))
    return tuple(names[at] for at in np.flatnonzero(furthest > FAR))


def _unseen_classes(labels: Labels, num_classes: int) -> tuple[int, ...]:
    # More classes than there may be are refused next, by a better word.
    return tuple(np.setdiff1d(np.arange(min(num_classes, MAX_CLASSES)), labels).tolist())


def load_split(
    ref: DatasetRef, split: Role, *, cache_dir: Path | None = None, storage: Storage = LOCAL
) -> Split:
    """One split of a registered dataset, in stored order.

    Args:
        ref: the dataset as it was registered.
        split: train, validation or test.
        cache_dir: where decoded splits are kept for the next reader; they hold the records
            themselves, so this is storage as private as the dataset. None: decode every time.
        storage: where the dataset may lie, and where images that would not fit into memory are kept.

    Raises:
        DatasetError: the data cannot be read, or differs from the registration in counts or shape.
    """
    if split not in ROLES:
        raise DatasetError(f"split must be one of {list(ROLES)}, got {split!r}", field="split")
    if _is_read_by_index(ref, split, storage):
        records = open_records(ref, split, storage)
        found = Split(inputs=records, labels=records.labels)
    elif cache_dir is None:
        return _decoded(ref, split, storage)
    else:

        def decode() -> Made:
            decoded = _decoded(ref, split, storage)
            return [np.asarray(decoded.inputs)], decoded.labels

        inputs, labels = cached(cache_file(cache_dir, ref, split), decode)
        found = Split(inputs=inputs, labels=labels)
    return _check_loaded(_with_members(found, ref, split, storage), ref, split)


def open_records(ref: DatasetRef, split: Role, storage: Storage) -> Records:
    """The images of a split as this node keeps them, packed where it does not yet.

    Raises:
        DatasetError: the data cannot be read, or there is no room for them.
    """

    def make(folder: Path, room: Room) -> None:
        parts, indices = _stored(ref, storage)
        _check_labels(parts, ref.num_classes)
        role, own = indices[split]
        images = parts[role].inputs
        if not isinstance(images, ImageInputs):
            raise DatasetError(f"{ref.path}: holds no images", field="path")
        records.write(folder, room, images.records.select(own), parts[role].labels[own])

    def opened(folder: Path) -> Records:
        again = (open_records, (ref, split, storage))
        return Records(folder, tuple(ref.shape), f"dataset {ref.name!r} ({split})", again)

    name = f"images-{cache_file(Path(), ref, split).stem}"
    beside = (entry_name(ref.content_sha256),)
    return storage.needed_store().kept(name, make, opened, beside=beside)


def _is_read_by_index(ref: DatasetRef, split: Role, storage: Storage) -> bool:
    """Whether a split is of images that are more than may be held in memory."""
    if storage.store is None or ref.source not in ("parquet", "image_folder"):
        return False
    train = ref.num_train if ref.num_train_records is None else ref.num_train_records
    number = {"train": train, "validation": ref.num_validation, "test": ref.num_test}[split]
    return number * math.prod(ref.shape) > storage.in_memory_bytes


def load_features(
    ref: DatasetRef,
    split: Role,
    *,
    fingerprint: str,
    extract: Callable[[NDArray[Any]], NDArray[Any]],
    at_once: int,
    cache_dir: Path | None = None,
    storage: Storage = LOCAL,
) -> Split:
    """One split of a registered dataset as features, in stored order, computed once where kept.

    Args:
        ref: the dataset as it was registered.
        split: train, validation or test.
        fingerprint: names what ``extract`` computes.
        extract: some records -> a feature each, of one shape and dtype; row by row.
        at_once: records that ``extract`` gets in one call, >= 1.
        cache_dir: where features are kept for the next reader; as private as the dataset. None:
            compute every time.
        storage: as in :func:`load_split`.

    Raises:
        DatasetError: the data cannot be read or the features cannot be kept.
    """

    def make() -> Made:
        decoded = load_split(ref, split, storage=storage)
        starts = range(0, len(decoded), at_once)
        blocks = (extract(decoded.inputs[start : start + at_once]) for start in starts)
        return blocks, decoded.labels

    if cache_dir is None:
        blocks, labels = make()
        inputs = stacked(blocks, num_rows=len(labels))
    else:
        inputs, labels = cached(cache_file(cache_dir, ref, split, fingerprint), make)
    return _with_members(Split(inputs=inputs, labels=labels), ref, split, storage)


def class_names(ref: DatasetRef, *, storage: Storage = LOCAL) -> list[str] | None:
    """What each label means, where the registration, Hugging Face's ``datasets`` or class folders say so; no record is read.

    Class folders of private data are no list that somebody wrote down, but where its records lie: they are not read.
    None where nothing is said, or not every one of the classes that were registered has a name of its own: fewer would
    tell which of them have records. Names that a terminal could not print are none either.

    Raises:
        DatasetError: the data cannot be read.
    """
    if ref.classes is not None:
        return ref.classes
    if ref.source not in ("image_folder", "parquet", "table"):
        return None
    if ref.source == "image_folder" and not ref.public:
        return None
    place = _existing(_place(ref, storage))
    if ref.source == "image_folder":
        names = image_folder.class_names(place)
    else:
        names = columns.class_names(place, ref.label, is_table=ref.source == "table")
    if names is None or not len(set(names)) == len(names) == ref.num_classes:
        return None
    is_fit = all(map(str.isprintable, names)) and sum(map(len, names)) <= MAX_NAMED_CHARACTERS
    return names if is_fit else None


def verify(ref: DatasetRef, *, storage: Storage = LOCAL) -> None:
    """Refuse data whose bytes are not those that were registered; reads files, decodes nothing.

    What is fetched from an address is checked when it comes and kept by its content: of an address this
    only makes sure that it may still be read.

    Raises:
        DatasetError: with ``field="content_sha256"`` when the content has changed.
    """
    if ref.path is not None and is_address(ref.path):
        check_allowed(ref.path, storage.allowed_urls)
    else:
        _check_content(ref, ref.path)


def _check_content(ref: DatasetRef, path: str | None) -> None:
    actual = _content_sha256(ref.source, _hashed_files(ref.source, path))
    if actual != ref.content_sha256:
        raise DatasetError(
            f"dataset {ref.name!r} is not the one that was registered: its content is "
            f"sha256 {actual[:16]}..., registered was {ref.content_sha256[:16]}...; files that were renamed "
            "must stay in the order of their names",
            field="content_sha256",
        )


def _decoded(ref: DatasetRef, split: Role, storage: Storage) -> Split:
    parts, indices = _stored(ref, storage)
    _check_labels(parts, ref.num_classes)
    role, own = indices[split]
    part = parts[role]
    decoded = Split(inputs=part.inputs.load(own), labels=part.labels[own])
    return _check_loaded(_with_those_of(parts, indices, decoded, split), ref, split)


def _stored(ref: DatasetRef, storage: Storage) -> tuple[Parts, SplitIndices]:
    """What is stored of a registered dataset, and where each split of it is."""
    columns = _columns(ref.label, ref.classes, ref.features, ref.unit, ref.group)
    parts = _read(ref.source, _place(ref, storage), columns)
    indices = split_indices(parts, split_seed=ref.split_seed, records_per_unit=ref.records_per_unit)
    return parts, indices


def _place(ref: DatasetRef, storage: Storage) -> str | None:
    """Where this machine reads the dataset: its path, or what was fetched from its address."""
    if ref.path is None or not is_address(ref.path):
        return ref.path
    address = check_allowed(ref.path, storage.allowed_urls)
    store = storage.needed_store()
    check = lambda place: _check_content(ref, str(place))  # noqa: E731
    return str(fetched(address, ref.content_sha256, store, check))


def _with_members(split: Split, ref: DatasetRef, name: Role, storage: Storage) -> Split:
    """A split that was kept, with whose and which group's its records are: these are not kept.

    Raises:
        DatasetError: what is kept is not of the records that are stored now.
    """
    of_groups = name == "test" and ref.group is not None
    if ref.unit == RECORD and not of_groups:
        return split
    parts, indices = _stored(ref, storage)
    role, own = indices[name]
    if not np.array_equal(split.labels, parts[role].labels[own]):
        raise DatasetError(
            f"dataset {ref.name!r}: what is kept of {name} has other labels than its files; delete "
            "what TAN_CACHE_DIR holds, and put back the files as they were registered",
            field="cache_dir",
        )
    return _with_those_of(parts, indices, split, name)


def _with_those_of(parts: Parts, indices: SplitIndices, split: Split, name: Role) -> Split:
    role, own = indices[name]
    users, groups = parts[role].users, parts[role].groups
    if users is not None:
        split = replace(split, users=numbered(users, own))
    if name == "test" and groups is not None:
        split = replace(split, groups=groups.at(own))
    return split


def _columns(
    label: str,
    classes: Sequence[str] | None,
    features: Sequence[str] | None,
    unit: str,
    group: str | None,
) -> Columns:
    return Columns(
        label=label,
        classes=None if classes is None else tuple(classes),
        features=tuple(features) if features else None,
        user=None if unit == RECORD else unit,
        group=group,
    )


def _number_of(classes: Sequence[str], stated: int | None) -> int:
    """How many classes were named, each of them once."""
    twice = [name for name, count in Counter(classes).items() if count > 1]
    if twice:
        raise DatasetError(f"class {twice[0]!r} is named twice", field="classes")
    if not all(name and name.isprintable() for name in classes):
        raise DatasetError("a class is called by text that can be printed", field="classes")
    if stated not in (None, len(classes)):
        raise DatasetError(
            f"{len(classes)} classes are named, got num_classes {stated}; leave it out",
            field="num_classes",
        )
    return len(classes)


def _records_per_unit(unit: str, asked: int | None) -> int:
    """At most so many of a unit, which must be a user for more than one."""
    if unit == RECORD:
        if asked not in (None, 1):
            raise DatasetError(
                f"a unit of one record has 1, got {asked}; name the column of users as the unit",
                field="records_per_unit",
            )
        return 1
    most = RECORDS_PER_UNIT if asked is None else asked
    _validate.positive_integer(records_per_unit=most)
    _validate.in_range(1, MAX_RECORDS_PER_UNIT, records_per_unit=most)
    return most


def _source(path: str | None, asked: str | None) -> Source:
    """The source at ``path``; ``asked`` must fit it."""
    for known in SOURCES:
        if asked == known:
            return known
    if asked is not None:
        raise DatasetError(f"source must be one of {list(SOURCES)}, got {asked!r}", field="source")
    if path is None:
        raise DatasetError("a path is needed; only source digits has none", field="path")
    place = _existing(path)
    if place.suffix.lower() == ".npz":
        return "npz"
    if place.suffix.lower() == ".csv" or (place.is_dir() and files_by_role(place, suffix=".csv")):
        return "table"
    if place.suffix.lower() == ".parquet" or place.is_dir():
        if files_by_role(place, suffix=".parquet"):
            return "parquet" if columns.has_images(place) else "table"
        if image_folder.recognises(place):
            return "image_folder"
    raise DatasetError(
        f"{place}: found no Parquet, CSV or .npz file and no class folders with images",
        field="path",
    )


def _existing(path: str | None) -> Path:
    if not path:
        raise DatasetError("a path is needed; only source digits has none", field="path")
    place = Path(path)
    try:
        if not place.exists():
            raise DatasetError(f"{path}: no such file or folder", field="path")
        if not (place.is_dir() or place.is_file()):
            raise DatasetError(f"{path}: neither a file nor a folder", field="path")
        if place.is_dir() and not any(place.iterdir()):
            raise DatasetError(f"{path}: the folder is empty", field="path")
        if place.is_file() and place.stat().st_size == 0:
            raise DatasetError(f"{path}: the file is empty", field="path")
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}", field="path") from error
    return place


def _read(source: Source, path: str | None, names: Columns) -> Parts:
    if source not in ("parquet", "table") and not names.are_plain:
        raise DatasetError(
            f"source {source} has no columns to say whose or which group's a record is; accepted: "
            "Parquet and CSV files",
            field="unit" if names.user is not None else "group",
        )
    if source == "digits":
        return digits.read()
    place = _existing(path)
    try:
        parts = _read_files(source, place, names)
    except OSError as error:
        raise DatasetError(f"{place}: cannot be read: {error}", field="path") from error
    if "train" not in parts:
        raise DatasetError(f"{place}: no records for source {source}", field="path")
    return parts


def _read_files(source: Source, place: Path, names: Columns) -> Parts:
    if source == "parquet":
        return columns.read_images(place, names)
    if source == "table":
        return columns.read_table(place, names)
    if source == "npz":
        return npz.read(place, names.classes)
    return image_folder.read(place, names.classes)


def _common_shape(parts: Parts) -> tuple[int, ...]:
    shapes = {role: part.inputs.shape() for role, part in parts.items()}
    for role, shape in shapes.items():
        if shape != shapes["train"]:
            raise DatasetError(
                f"records of train have shape {list(shapes['train'])}, "
                f"of {role} {list(shape)}; all must be of one shape",
                field="path",
            )
    return shapes["train"]


def _check_labels(parts: Parts, num_classes: int) -> None:
    for role, part in parts.items():
        bad = np.flatnonzero((part.labels < 0) | (part.labels >= num_classes))
        if bad.size:
            row = int(bad[0])
            raise DatasetError(
                f"{role} record {row} has label {part.labels[row]}; "
                f"accepted: 0 to {max(num_classes, 2) - 1}",
                field="label",
            )
    if num_classes < 2:
        raise DatasetError(
            f"at least 2 classes are needed, got num_classes {num_classes}", field="num_classes"
        )
    if num_classes > MAX_CLASSES:
        raise DatasetError(
            f"at most {MAX_CLASSES:,} classes are accepted, got num_classes {num_classes:,}; labels "
            "number the classes from 0",
            field="num_classes",
        )


def _check_groups(parts: Parts) -> None:
    for role, part in parts.items():
        if part.groups is not None and len(part.groups.names) > MAX_GROUPS:
            raise DatasetError(
                f"{role} has {len(part.groups.names):,} groups; accepted: at most {MAX_GROUPS}",
                field="group",
            )


def _content_sha256(source: Source, files: Sequence[_File]) -> str:
    """SHA-256 over (role, digest of the file) of every file, by role and in the order in which they are read.

    Records are known by their place: which are cut off for another split, which are a user's, and which a cache
    or another node holds there. Renaming files changes nothing as long as it leaves their order. The class
    folder of an image is part of its role, because there it is the label. The bundled ``digits`` are known
    by their own digest.
    """
    if source == "digits":
        return files[0].sha256
    entries = [f"{file.role}:{file.sha256}" for file in sorted(files, key=lambda file: file.role)]
    return hashlib.sha256("\n".join(entries).encode()).hexdigest()


def _name_by_digest(files: Sequence[_File]) -> dict[str, str]:
    names: dict[str, str] = {}
    for file in sorted(files, key=lambda file: (file.sha256, file.name)):
        names.setdefault(file.sha256, file.name)
    return names


def _hashed_files(source: Source, path: str | None) -> list[_File]:
    """Every file that is read, named as seen from ``path``; ``digits`` count as one file."""
    if source == "digits":
        return [_File("train", "digits", digits.content_sha256())]
    place = _existing(path)
    root = place if place.is_dir() else place.parent
    try:
        return [
            _File(role, file.relative_to(root).as_posix(), _file_sha256(file))
            for role, file in _files(source, place)
        ]
    except OSError as error:
        raise DatasetError(f"{place}: cannot be read: {error}", field="path") from error


def _files(source: Source, place: Path) -> list[tuple[str, Path]]:
    if source == "npz":
        return [("train", place)]
    if source == "image_folder":
        return [
            (f"{role}/{name}", file)
            for role, classes in image_folder.files_by_class(place).items()
            for name, files in classes.items()
            for file in files
        ]
    by_role = (
        columns.table_files(place) if source == "table" else files_by_role(place, suffix=".parquet")
    )
    return [(role, file) for role, files in by_role.items() for file in files]


def _file_sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_loaded(loaded: Split, ref: DatasetRef, split: Role) -> Split:
    expected = {"train": ref.num_train, "validation": ref.num_validation, "test": ref.num_test}
    of_users = split == "train" and loaded.users is not None
    found = loaded.num_units if of_users else len(loaded)
    if found != expected[split]:
        raise DatasetError(
            f"dataset {ref.name!r}: {split} has {found} {'users' if of_users else 'records'}, registered were "
            f"{expected[split]}",
            field="path",
        )
    if list(loaded.inputs.shape[1:]) != ref.shape:
        raise DatasetError(
            f"dataset {ref.name!r}: records have shape {list(loaded.inputs.shape[1:])}, "
            f"registered was {ref.shape}",
            field="path",
        )
    return loaded
