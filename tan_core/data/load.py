"""The splits of a registered dataset: in memory, read by index, or as features."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tan_core.data import records
from tan_core.data.cache import Made, Waiting, cache_file, cached, stacked
from tan_core.data.images import ImageInputs
from tan_core.data.part import ROLES, Labels, Members, Parts, Role
from tan_core.data.records import Records
from tan_core.data.registered import place_of, stored_parts
from tan_core.data.remote import entry_name
from tan_core.data.sources import check_labels
from tan_core.data.splits import SplitIndices
from tan_core.data.storage import LOCAL, Storage
from tan_core.data.store import Room
from tan_core.data.users import numbered
from tan_core.errors import DatasetError
from tan_core.spec.addresses import is_address
from tan_core.wire import RECORD, DatasetRef

Progressed = Callable[[int, int], None]
"""Is told of how many records something is done, and of how many in all."""
Extract = Callable[[NDArray[Any] | Records, range], Iterable[NDArray[Any]]]
"""Records of a split, and which of them -> their features in order, in blocks of one dtype and one shape of a row."""


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
            return lambda row: [np.asarray(decoded.inputs)[row:]], decoded.labels

        inputs, labels = cached(cache_file(cache_dir, ref, split), decode)
        found = Split(inputs=inputs, labels=labels)
    return _check_loaded(_with_members(found, ref, split, storage), ref, split)


def load_features(
    ref: DatasetRef,
    split: Role,
    *,
    fingerprint: str,
    extract: Extract,
    cache_dir: Path | None = None,
    storage: Storage = LOCAL,
    progressed: Progressed | None = None,
    waiting: Waiting = lambda: None,
) -> Split:
    """One split of a registered dataset as features, in stored order, computed once where kept.

    Work that is ended, by an error or with its process, is gone on with by the next reader.

    Args:
        ref: the dataset as it was registered.
        split: train, validation or test.
        fingerprint: names what ``extract`` computes.
        extract: whose features of a record follow from that record alone.
        cache_dir: where features are kept for the next reader; as private as the dataset. None:
            compute every time.
        storage: as in :func:`load_split`.
        progressed: told after each block; whatever it raises ends the work.
        waiting: called now and then while another process computes them; whatever it raises ends the wait.

    Raises:
        DatasetError: the data cannot be read or the features cannot be kept.
    """

    def blocks_of(decoded: Split, done: int) -> Iterator[NDArray[Any]]:
        for block in extract(decoded.inputs, range(done, len(decoded))):
            yield block
            done += len(block)
            if progressed is not None:
                progressed(done, len(decoded))

    def make() -> Made:
        decoded = load_split(ref, split, storage=storage)
        return partial(blocks_of, decoded), decoded.labels

    if cache_dir is None:
        blocks_from, labels = make()
        inputs = stacked(blocks_from(0), num_rows=len(labels))
    else:
        file = cache_file(cache_dir, ref, split, fingerprint)
        inputs, labels = cached(file, make, waiting=waiting)
    return _with_members(Split(inputs=inputs, labels=labels), ref, split, storage)


def has_features(ref: DatasetRef, split: Role, *, fingerprint: str, cache_dir: Path) -> bool:
    """Whether :func:`load_features` would find them kept."""
    return cache_file(cache_dir, ref, split, fingerprint).is_file()


def open_records(ref: DatasetRef, split: Role, storage: Storage) -> Records:
    """The images of a split as this node keeps them, packed where it does not yet.

    Raises:
        DatasetError: the data cannot be read, or there is no room for them.
    """

    def make(folder: Path, room: Room) -> None:
        parts, indices = stored_parts(ref, storage)
        check_labels(parts, ref.num_classes)
        role, own = indices[split]
        images = parts[role].inputs
        if not isinstance(images, ImageInputs):
            raise DatasetError(f"{ref.path}: holds no images", field="path")
        records.write(folder, room, images.records.select(own), parts[role].labels[own])

    def opened(folder: Path) -> Records:
        again = (open_records, (ref, split, storage))
        return Records(folder, tuple(ref.shape), f"dataset {ref.name!r} ({split})", again)

    name = f"images-{cache_file(Path(), ref, split).stem}"
    store = storage.needed_store()
    if ref.path is None or not is_address(ref.path):
        return store.kept(name, make, opened)
    beside = (entry_name(ref.content_sha256),)
    provide = lambda: place_of(ref, storage)  # noqa: E731
    return store.kept(name, make, opened, beside=beside, provide=provide)


def _is_read_by_index(ref: DatasetRef, split: Role, storage: Storage) -> bool:
    """Whether a split is of images that are more than may be held in memory."""
    if storage.store is None or ref.source not in ("parquet", "image_folder"):
        return False
    train = ref.num_train if ref.num_train_records is None else ref.num_train_records
    number = {"train": train, "validation": ref.num_validation, "test": ref.num_test}[split]
    return number * math.prod(ref.shape) > storage.in_memory_bytes


def _decoded(ref: DatasetRef, split: Role, storage: Storage) -> Split:
    parts, indices = stored_parts(ref, storage)
    check_labels(parts, ref.num_classes)
    role, own = indices[split]
    part = parts[role]
    decoded = Split(inputs=part.inputs.load(own), labels=part.labels[own])
    return _check_loaded(_with_those_of(parts, indices, decoded, split), ref, split)


def _with_members(split: Split, ref: DatasetRef, name: Role, storage: Storage) -> Split:
    """A split that was kept, with whose and which group's its records are: these are not kept.

    Raises:
        DatasetError: what is kept is not of the records that are stored now.
    """
    of_groups = name == "test" and ref.group is not None
    if ref.unit == RECORD and not of_groups:
        return split
    parts, indices = stored_parts(ref, storage)
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
    # As many users may have fewer records or more.
    if split == "train" and ref.num_train_records not in (None, len(loaded)):
        raise DatasetError(
            f"dataset {ref.name!r}: train has {len(loaded)} records, registered were {ref.num_train_records}",
            field="path",
        )
    if list(loaded.inputs.shape[1:]) != ref.shape:
        raise DatasetError(
            f"dataset {ref.name!r}: records have shape {list(loaded.inputs.shape[1:])}, "
            f"registered was {ref.shape}",
            field="path",
        )
    return loaded
