"""What is in data that are about to be registered."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tan_core import _validate
from tan_core.data.content import content_sha256, hashed_files, name_by_digest
from tan_core.data.digests import Digests, in_order, of_all
from tan_core.data.image_folder import num_folders_within
from tan_core.data.part import ArrayInputs, Columns, Labels, Part, Parts, Source
from tan_core.data.remote import unregistered
from tan_core.data.sources import MAX_CLASSES, check_labels, columns_of, read_parts, source_at
from tan_core.data.splits import SplitIndices, split_indices
from tan_core.data.storage import LOCAL, Storage
from tan_core.data.users import MAX_RECORDS_PER_UNIT, RECORDS_PER_UNIT, refuse_shared
from tan_core.errors import DatasetError, ParameterError
from tan_core.spec.addresses import check_allowed, is_address
from tan_core.spec.columns import ChoiceColumn, Feature, RangeColumn, column_of, names_of
from tan_core.wire import RECORD

MAX_GROUPS = 100
FAR = 10.0
"""Scaled by whatever constant, hardly a feature goes further from 0; in years, metres or money most do."""


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
    """What is stored and nothing reads. Of a table whose features were not named: beside label, unit and group, columns that
    hold no numbers. Of .npz: arrays of other names."""
    num_unread_folders: int = 0
    """Of class folders: folders with images in them, which nothing reads."""
    unseen_choices: tuple[str, ...] = ()
    """``column=choice``, for each choice of a column that no training record has."""
    far_features: tuple[str, ...] = ()
    """Of a table: those with numbers beyond ``FAR`` in train, which no model takes well. By name, or by index in .npz."""
    unseen_classes: tuple[int, ...] = ()
    """Where the number of classes was read off the labels: those below the largest that no training record has."""
    record_digests: Digests | None = field(default=None, compare=False, repr=False)
    """Of all records, where a key was given for them."""
    seen_in_train: Mapping[str, int] = field(default_factory=dict[str, int])
    """Where a key was given: how many records of validation and of test are in train as well, but for their labels."""
    repeated_in_train: int = 0
    """Where a key was given, and the unit is a record: how many of train are there more than once, but for their labels."""

    @property
    def file_sha256(self) -> tuple[str, ...]:
        """Every distinct digest, sorted: what is in the dataset, whatever its files are called."""
        return tuple(self.files)


def inspect(
    path: str | PathLike[str] | None,
    *,
    source: str | None = None,
    label: str = "label",
    features: Sequence[Feature] | None = None,
    num_classes: int | None = None,
    classes: Sequence[str] | None = None,
    split_seed: int = 0,
    unit: str = RECORD,
    records_per_unit: int | None = None,
    group: str | None = None,
    storage: Storage = LOCAL,
    digest_key: bytes | None = None,
    keep: bool = True,
) -> DatasetFacts:
    """The facts of a dataset, after a check of every label, of every image's header, and that no image was cut off.

    Args:
        path: folder, file or address; None for the bundled ``digits``.
        source: one of :data:`~tan_core.data.sources.SOURCES`; None: found out from what is at ``path``.
        label: name of the label column, of Parquet and CSV files.
        features: feature columns of a table, by name or with a range or choices, none twice; None: every numeric column
            but the label.
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
        keep: whether what was fetched for this stays in ``storage``, for whoever reads it next.

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
    _validate.instance(bool, keep=keep)
    if features is not None:
        features = _checked_features(features)
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
    names = columns_of(label, classes, features, unit, group)
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
    with unregistered(address, storage.needed_store()) as (place, keep_as):
        facts = facts_of(str(place))
        if keep:
            keep_as(facts.content_sha256)
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
    found = source_at(path, source)
    _refuse_columns_of(found, names)
    parts = read_parts(found, path, names)
    refuse_shared(parts)
    _check_groups(parts)
    shape = _common_shape(parts)
    for part in parts.values():
        part.inputs.check_whole()
    unseen: tuple[int, ...] = ()
    if num_classes is None:
        num_classes = int(parts["train"].labels.max()) + 1
        unseen = _unseen_classes(parts["train"].labels, num_classes)
    check_labels(parts, num_classes)
    splits = split_indices(parts, split_seed=split_seed, records_per_unit=most)
    files = hashed_files(found, path)
    train, users = splits["train"][1], parts["train"].users
    role, validation = splits["validation"]
    scored = parts[role].users
    digests: dict[str, NDArray[np.uint64]] = {}
    if digest_key is not None:
        digests = {each: in_order(part.inputs, digest_key) for each, part in parts.items()}
    return DatasetFacts(
        source=found,
        content_sha256=content_sha256(found, files),
        files=name_by_digest(files),
        num_classes=num_classes,
        shape=shape,
        num_train=len(train) if users is None else len(np.unique(users.of[train])),
        num_train_records=len(train),
        num_validation=len(validation),
        num_test=len(splits["test"][1]),
        records_per_unit=most,
        num_validation_users=None if scored is None else len(np.unique(scored.of[validation])),
        unread_columns=parts["train"].unread,
        num_unread_folders=num_folders_within(Path(path))
        if path and found == "image_folder"
        else 0,
        far_features=_far_features(parts["train"]),
        unseen_choices=_unseen_choices(parts["train"], names.features or ()),
        unseen_classes=unseen,
        record_digests=of_all(digests.values()) if digests else None,
        seen_in_train=_seen_in_train(digests, splits) if digests else {},
        repeated_in_train=_repeated(digests["train"][train]) if digests and users is None else 0,
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


def _check_groups(parts: Parts) -> None:
    for role, part in parts.items():
        if part.groups is not None and len(part.groups.names) > MAX_GROUPS:
            raise DatasetError(
                f"{role} has {len(part.groups.names):,} groups; accepted: at most {MAX_GROUPS}",
                field="group",
            )


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


def _checked_features(features: object) -> tuple[Feature, ...]:
    """Each a name or how a column is read, and no column twice."""
    if isinstance(features, str):
        _validate.sequence(str, features=features)
    found = cast("tuple[Any, ...]", _validate.items(str, features=features))
    for index, each in enumerate(found):
        if not isinstance(each, str | RangeColumn | ChoiceColumn):
            raise ParameterError(
                f"features[{index}] must be a str, RangeColumn or ChoiceColumn, got {type(each).__name__}",
                field=f"features[{index}]",
            )
    counts = Counter(map(column_of, found))
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        raise DatasetError(f"features name column {twice!r} more than once", field="features")
    return found


def _refuse_columns_of(source: Source, names: Columns) -> None:
    """Readers without such columns take all that a record holds, and the label that lies beside it."""
    if names.features is not None and source != "table":
        raise DatasetError(
            f"source {source} has no columns of features to choose or to scale: a model reads all of a record; "
            "accepted: CSV and Parquet tables",
            field="features",
        )
    if names.label != Columns().label and source not in ("parquet", "table"):
        raise DatasetError(
            f"source {source} has no column {names.label!r} to take labels from; accepted: Parquet and CSV files, or no "
            "label column",
            field="label",
        )


def _far_features(part: Part) -> tuple[str, ...]:
    if not isinstance(part.inputs, ArrayInputs) or part.inputs.values.ndim != 2:
        return ()
    values = part.inputs.values
    furthest = np.maximum(values.max(axis=0), -values.min(axis=0))
    names = part.features or tuple(map(str, range(len(furthest))))
    return tuple(names[at] for at in np.flatnonzero(furthest > FAR))


def _unseen_choices(part: Part, features: Sequence[Feature]) -> tuple[str, ...]:
    of_choices = set(names_of([each for each in features if isinstance(each, ChoiceColumn)]))
    if not of_choices or not isinstance(part.inputs, ArrayInputs):
        return ()
    is_seen: list[bool] = np.any(part.inputs.values, axis=0).tolist()
    return tuple(
        name
        for name, seen in zip(part.features, is_seen, strict=True)
        if name in of_choices and not seen
    )


def _seen_in_train(
    digests: Mapping[str, NDArray[np.uint64]], splits: SplitIndices
) -> dict[str, int]:
    """How many records of the other splits are there."""
    of_splits = {role: digests[part][indices] for role, (part, indices) in splits.items()}
    train = of_splits.pop("train")
    return {role: int(np.isin(own, train).sum()) for role, own in of_splits.items()}


def _repeated(digests: NDArray[np.uint64]) -> int:
    counts = np.unique(digests, return_counts=True)[1]
    return int(counts[counts > 1].sum())


def _unseen_classes(labels: Labels, num_classes: int) -> tuple[int, ...]:
    # More classes than there may be are refused next, by a better word.
    return tuple(np.setdiff1d(np.arange(min(num_classes, MAX_CLASSES)), labels).tolist())
