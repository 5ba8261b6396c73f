"""Datasets on object stores: every file once onto this node's own disk, and from there as any other.

The store of the node names what was fetched by the dataset's content, so nothing is fetched twice and what
was changed since the registration is never taken for it. Credentials and endpoints are those that the
scheme's own library finds (``AWS_*``, instance roles, ``FSSPEC_*``): none passes through here.
"""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from tan_core.data import image_folder
from tan_core.data.store import Room, Store
from tan_core.errors import DatasetError
from tan_core.spec import addresses

SUFFIXES = image_folder.SUFFIXES | {".parquet", ".csv", ".npz"}
_AT_ONCE = 8
BLOCK = 2**22
"""Of a file, read at once; and once more ahead."""
_WEB = ("http://", "https://")
_SILENCE_SECONDS = 60.0
_MOST_DEEP, _MOST_FOLDERS = 8, 2**19
"""Folders of a web server: one within the other, and in all. Readers know parts and classes, and no deeper ones."""
_SINGLE = ".file"
"""Folder of an entry whose address names one file; no name that is fetched begins with a dot."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file below an address."""

    name: str
    """As seen from the address, with forward slashes."""
    address: str
    num_bytes: int


def listing(address: str) -> list[RemoteFile]:
    """The file that the address names, or every file of data below it, in order of their names.

    Raises:
        DatasetError: nothing is there, it cannot be listed, or a name would lead out of a folder.
    """
    with _troubles_of(address):
        source, root = _file_system(address)
        if _is_data(address):
            found = {root: source.info(root)}
        else:
            # HTTP servers list folders, and a folder is called so by its last slash.
            folder = root.removesuffix("/") + "/"
            is_web = folder.startswith(_WEB)
            found = _linked(source, folder) if is_web else dict(source.find(folder, detail=True))
        places = {_name(place, root): place for place in found if _is_data(place)}
        listed = [
            RemoteFile(name, place, _num_bytes(source, place, found[place]))
            for name, place in sorted(places.items())
        ]
    if not listed:
        raise DatasetError(
            f"{address}: no file of data there; accepted are names in {', '.join(sorted(SUFFIXES))}",
            field="path",
        )
    return listed


def fetched(address: str, content_sha256: str, store: Store, check: Callable[[Path], None]) -> Path:
    """Where this node keeps the dataset at the address: a folder, or the one file that it is.

    Args:
        address: as :func:`~tan_core.spec.addresses.check_allowed` has it.
        content_sha256: of the dataset as it was registered.
        store: where it is kept.
        check: raises where what lies at a path is not that content; asked once, before it is kept.
    """
    name = entry_name(content_sha256)
    if (known := store.find(name)) is not None:
        return _at(known)
    files = listing(address)

    def make(folder: Path, room: Room) -> None:
        _fetch(address, files, folder, room)
        check(_at(folder))

    return _at(store.kept(name, make, lambda entry: entry))


@contextmanager
def unregistered(address: str, store: Store) -> Generator[tuple[Path, Callable[[str], None]]]:
    """What lies at an address while somebody looks at it, and a function that keeps it as a content."""
    files = listing(address)
    # A copy of its own: another look's may be of what lay there before, or go in the middle of this one.
    with store.lent(lambda folder, room: _fetch(address, files, folder, room)) as entry:
        yield (
            _at(entry),
            lambda content_sha256: store.rename(entry.name, entry_name(content_sha256)),
        )


def forget_fetched(content_sha256: str, store: Store) -> None:
    """Delete what this node keeps of the content, if it does."""
    if store.find(entry_name(content_sha256)) is not None:
        store.drop(entry_name(content_sha256))


def entry_name(content_sha256: str) -> str:
    """Of the files of a dataset in a store."""
    return f"files-{content_sha256}"


def _at(folder: Path) -> Path:
    """What a dataset's address stands for on this node: the file, where it named a file."""
    single = folder / _SINGLE
    return next(single.iterdir()) if single.is_dir() else folder


def _fetch(address: str, files: list[RemoteFile], folder: Path, room: Room) -> None:
    """The files in the folder, some at a time. A file that is not as long as it was listed is refused.

    Raises:
        DatasetError: a file cannot be read.
        OSError: the folder cannot be written.
    """
    source, _ = _file_system(address)
    room(sum(file.num_bytes for file in files))

    def one(file: RemoteFile) -> None:
        target = folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        num_bytes = 0
        with target.open("wb") as written:
            for block in _blocks(source, file):
                num_bytes += len(block)
                if num_bytes > file.num_bytes:
                    break
                written.write(block)
        if num_bytes != file.num_bytes:
            raise DatasetError(
                f"{file.address}: is not the {file.num_bytes:,} bytes that it was listed with",
                field="path",
            )

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            for _ in pool.map(one, files):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _is_data(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in SUFFIXES


def _name(place: str, root: str) -> str:
    """A file's name below the root; keys of object stores may be anything."""
    if place == root:
        return f"{_SINGLE}/{PurePosixPath(place).name}"
    name = place.removeprefix(root.removesuffix("/") + "/")
    if name == place or not _leads_below(name, is_web=place.startswith(_WEB)):
        raise DatasetError(f"{place[:200]!r}: such a name is not fetched", field="path")
    return name


def _leads_below(name: str, *, is_web: bool) -> bool:
    """Whether a name has no part that is empty, hidden or no name on a disk; of a web address also once it is unescaped."""
    parts = name.split("/")
    if is_web:
        # %2e%2e is a step upwards to whoever asks for it, and of a query and an escaped slash the server decides where it leads.
        parts = [unquote(part) for part in parts]
        if set(name) & {"?", "#"} or any("/" in part for part in parts):
            return False
    return not any(part[:1] in ("", ".") or set(part) & {"\\", "\0"} for part in parts)


def _linked(source: Any, root: str) -> dict[str, Any]:
    """Every file that the pages of a web server's folders link to, from the root on.

    A page may link to anything: to folders elsewhere, and to one in itself without end. Only those below are asked for.

    Raises:
        DatasetError: there are too many.
    """
    found: dict[str, Any] = {}
    waiting, known = [root], {root}
    while waiting:
        for info in source.ls(waiting.pop(), detail=True):
            place: str = info["name"]
            if not place.endswith("/"):
                found[place] = info
                continue
            name = place.removeprefix(root).removesuffix("/")
            is_near = name.count("/") < _MOST_DEEP
            if place not in known and is_near and _leads_below(name, is_web=True):
                waiting.append(place)
                known.add(place)
        if len(known) > _MOST_FOLDERS:
            raise DatasetError(
                f"{root}: links to more than {_MOST_FOLDERS:,} folders", field="path"
            )
    return found


def _num_bytes(source: Any, place: str, info: dict[str, Any]) -> int:
    size = info.get("size")
    if size is None:  # a listing by HTTP has names only
        size = source.info(place).get("size")
    if not isinstance(size, int):
        raise DatasetError(f"{place[:200]!r}: the store does not say how long it is", field="path")
    return size


def _blocks(source: Any, file: RemoteFile) -> Iterator[bytes]:
    with _troubles_of(file.address):
        if file.address.startswith(_WEB):
            # One answer, read as it comes: one for each block may be of another file than that before, and is as long
            # as the server likes before it is looked at.
            stream = source.open(file.address, "rb", block_size=0, size=file.num_bytes)
        else:
            stream = source.open(file.address, "rb", block_size=BLOCK, cache_type="readahead")
    with stream:
        while True:
            with _troubles_of(file.address):
                block: bytes = stream.read(BLOCK)
            if not block:
                return
            yield block


def _file_system(address: str) -> tuple[Any, str]:
    """The reader of the address's scheme, and its own name for the address."""
    scheme = address.partition(":")[0]
    try:
        # Here, because most machines have no data behind an address and none of these libraries.
        from fsspec.core import url_to_fs

        # A process that lives for months sees what was added to a bucket, and a key that was changed.
        options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
        if f"{scheme}://" in _WEB:
            from aiohttp import ClientTimeout

            # A redirect may lead to any machine: what is allowed is the address, not what it says.
            options["allow_redirects"] = False
            options["client_kwargs"] = {
                # A large file takes hours; a server that is silent is left.
                "timeout": ClientTimeout(sock_connect=_SILENCE_SECONDS, sock_read=_SILENCE_SECONDS),
                # What was compressed on its way is not as long as it was listed.
                "headers": {"Accept-Encoding": "identity"},
            }
        return url_to_fs(address, **options)
    except ImportError as error:
        raise DatasetError(
            f"{address}: to read {scheme}:// install tan-search[{addresses.EXTRAS[scheme]}]: {error}",
            field="path",
        ) from error


@contextmanager
def _troubles_of(address: str) -> Generator[None]:
    try:
        yield
    except DatasetError:
        raise
    except Exception as error:  # each scheme's library has errors of its own
        said = str(error).strip().splitlines()
        raise DatasetError(
            f"{address}: cannot be read: {type(error).__name__}: {said[0][:300] if said else ''}",
            field="path",
        ) from error
