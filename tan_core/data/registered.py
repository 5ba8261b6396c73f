"""A registered dataset where it lies: that it is still the one, its parts, and what its classes are called."""

from tan_core.data import columns, image_folder
from tan_core.data.content import content_sha256, hashed_files
from tan_core.data.part import Parts
from tan_core.data.remote import fetched
from tan_core.data.sources import columns_of, existing, read_parts
from tan_core.data.splits import SplitIndices, split_indices
from tan_core.data.storage import LOCAL, Storage
from tan_core.errors import DatasetError
from tan_core.spec.addresses import check_allowed, is_address
from tan_core.wire import DatasetRef

MAX_NAMED_CHARACTERS = 1_000_000
"""Of all names of classes together: they come before the weights in one file."""


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
    place = existing(place_of(ref, storage))
    if ref.source == "image_folder":
        names = image_folder.class_names(place)
    else:
        names = columns.class_names(place, ref.label, is_table=ref.source == "table")
    if names is None or not len(set(names)) == len(names) == ref.num_classes:
        return None
    is_fit = all(map(str.isprintable, names)) and sum(map(len, names)) <= MAX_NAMED_CHARACTERS
    return names if is_fit else None


def stored_parts(ref: DatasetRef, storage: Storage) -> tuple[Parts, SplitIndices]:
    """What is stored of a registered dataset, and where each split of it is."""
    columns = columns_of(ref.label, ref.classes, ref.features, ref.unit, ref.group)
    parts = read_parts(ref.source, place_of(ref, storage), columns)
    indices = split_indices(parts, split_seed=ref.split_seed, records_per_unit=ref.records_per_unit)
    return parts, indices


def place_of(ref: DatasetRef, storage: Storage) -> str | None:
    """Where this machine reads the dataset: its path, or what was fetched from its address."""
    if ref.path is None or not is_address(ref.path):
        return ref.path
    address = check_allowed(ref.path, storage.allowed_urls)
    store = storage.needed_store()
    check = lambda place: _check_content(ref, str(place))  # noqa: E731
    return str(fetched(address, ref.content_sha256, store, check))


def _check_content(ref: DatasetRef, path: str | None) -> None:
    actual = content_sha256(ref.source, hashed_files(ref.source, path))
    if actual != ref.content_sha256:
        raise DatasetError(
            f"dataset {ref.name!r} is not the one that was registered: its content is "
            f"sha256 {actual[:16]}..., registered was {ref.content_sha256[:16]}...; files that were renamed "
            "must stay in the order of their names",
            field="content_sha256",
        )
