"""A folder on a node's own disk for what is made of datasets once and read often: bounded, safe to share.

It holds the records, or what was made of them: storage as private as the dataset, open to its owner only.
"""

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tan_core.errors import DatasetError

T = TypeVar("T")

Room = Callable[[int], None]
"""Asked before so many more bytes are written into an entry that is being made."""

_SPARE_BYTES = 2**20
"""Of the disk, beside what is asked for."""
_DRAFT = ".draft"
_LENT = "new-"
_SHARED, _ALONE = fcntl.LOCK_SH, fcntl.LOCK_EX


@dataclass(frozen=True, slots=True)
class Store:
    """Entries are folders, named by a hash of what they were made from, so that none is ever out of date.

    Formal guarantees:

    * An entry appears whole or not at all. Who is killed while making one leaves a draft that the next
      maker, of whatever entry, removes.
    * Of several processes that want an entry one makes it and the others wait.
    * All entries and the one that is being made are never more than ``max_bytes``: what was read longest
      ago goes first, and an entry that does not fit is refused. The disk is watched alike.
    * What goes while somebody reads it stays whole for that reader, and its bytes until then.
    """

    folder: Path
    max_bytes: int | None = None
    """None: as much as the disk has."""

    def kept(
        self,
        name: str,
        make: Callable[[Path, Room], None],
        read: Callable[[Path], T],
        *,
        beside: tuple[str, ...] = (),
        provide: Callable[[], object] = lambda: None,
    ) -> T:
        """What ``read`` finds in the entry, which ``make`` fills where it is missing.

        Args:
            name: of the entry.
            make: fills an empty folder, and asks for room before it writes.
            read: opens what it wants before it returns; later the entry may be gone.
            beside: entries that ``make`` reads: they are there when it begins, and do not go for this one.
            provide: sees to it that these are there. ``make`` cannot: whoever makes one entry would wait for himself to
                make another.

        Raises:
            DatasetError: the folder cannot be written, or the entry does not fit.
        """
        entry = self.folder / name
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            while True:
                with self._locked("readers", _SHARED):
                    if entry.is_dir():
                        os.utime(entry)
                        return read(entry)
                provide()
                # One maker at a time: the bound counts what there is, and drafts of others would not show.
                with self._locked("maker", _ALONE):
                    # What was provided may have gone for another maker's entry: it is provided anew.
                    is_ready = all((self.folder / each).is_dir() for each in beside)
                    if is_ready and not entry.is_dir():
                        self._make(entry, make, set(beside))
        except OSError as error:
            raise DatasetError(f"{entry}: cannot be kept: {error}", field="cache_dir") from error

    @contextmanager
    def lent(self, make: Callable[[Path, Room], None]) -> Generator[Path]:
        """An entry for the caller alone: at the end of the block it goes, unless it was given a name by then.

        That of a caller who was killed goes before the next one is made.

        Raises:
            DatasetError: as :meth:`kept`.
        """
        name = f"{_LENT}{secrets.token_hex(16)}"
        with self._asked_for(name):
            try:
                yield self.kept(name, make, lambda entry: entry)
            finally:
                self.drop(name)

    def find(self, name: str) -> Path | None:
        """The entry, where there is one."""
        entry = self.folder / name
        try:
            os.utime(entry)
        except OSError:
            return None
        return entry

    def rename(self, name: str, to: str) -> None:
        """Call the entry by another name, unless there is one of that name, or it is gone."""
        with suppress(OSError):
            (self.folder / name).rename(self.folder / to)

    def drop(self, name: str) -> None:
        """Forget the entry, if there is one."""
        with self._locked("readers", _ALONE), suppress(OSError):
            _remove(self.folder / name)

    @contextmanager
    def _asked_for(self, name: str) -> Generator[None]:
        """While the block runs a lock says that somebody is at the entry."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Alone, so that no lock is looked at between its making and its being held.
            with self._locked("lent", _ALONE):
                self._drop_left()
                lock = self.folder / f"{name}.lock"
                file = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
                fcntl.flock(file, _ALONE)
        except OSError as error:
            raise DatasetError(
                f"{self.folder}: cannot be kept: {error}", field="cache_dir"
            ) from error
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
            os.close(file)

    def _drop_left(self) -> None:
        """Forget what was lent to processes that are no more."""
        for lock in self.folder.glob(f"{_LENT}*.lock"):
            with suppress(OSError), lock.open("r+b") as stream:
                fcntl.flock(stream, _ALONE | fcntl.LOCK_NB)
                lock.unlink()
        for entry in self.folder.glob(f"{_LENT}*"):
            is_whole = entry.is_dir() and entry.suffix != _DRAFT
            if is_whole and not entry.with_name(f"{entry.name}.lock").exists():
                self.drop(entry.name)

    def _make(self, entry: Path, make: Callable[[Path, Room], None], beside: set[str]) -> None:
        for left in self.folder.glob(f"*{_DRAFT}"):
            shutil.rmtree(left, ignore_errors=True)  # whoever is dropping it is at it, too
        draft = entry.with_name(entry.name + _DRAFT)
        draft.mkdir(mode=0o700)
        try:
            make(draft, lambda num_bytes: self._make_room(num_bytes, {draft.name, *beside}))
            _sync(draft)
            _appear(draft, entry)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def _make_room(self, num_bytes: int, beside: set[str]) -> None:
        with self._locked("readers", _ALONE):
            entries = sorted(
                (each for each in self.folder.iterdir() if each.is_dir()),
                key=lambda each: each.stat().st_mtime_ns,
            )
            sizes = {each: size_of(each) for each in entries}
            going = [each for each in entries if each.name not in beside]
            while (lacking := self._lacking(num_bytes, sum(sizes.values()))) is not None:
                if not going:
                    raise DatasetError(
                        f"{self.folder}: {num_bytes:,} more bytes are to be kept there, but {lacking}",
                        field="cache_dir",
                    )
                _remove(going[0])
                del sizes[going.pop(0)]

    def _lacking(self, num_bytes: int, kept: int) -> str | None:
        """Why so many more bytes do not fit; None where they do."""
        if self.max_bytes is not None and kept + num_bytes > self.max_bytes:
            return f"{kept:,} are needed there, of {self.max_bytes:,} that TAN_NODE_CACHE_GB allows"
        free = shutil.disk_usage(self.folder).free
        return f"the disk has {free:,} left" if num_bytes + _SPARE_BYTES > free else None

    @contextmanager
    def _locked(self, name: str, how: int) -> Generator[None]:
        """Until the block ends; the system releases it too when the process ends, however it does."""
        file = os.open(self.folder / f"{name}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(file, how)
            yield
        finally:
            os.close(file)


def size_of(folder: Path) -> int:
    """Bytes of all files below it."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _appear(draft: Path, entry: Path) -> None:
    """Call the draft by the entry's name, unless another entry was given that name meanwhile: of one name all are alike."""
    try:
        draft.rename(entry)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        shutil.rmtree(draft)


def _remove(entry: Path) -> None:
    """At once for whoever looks for it: deleting a million files takes a while, and the rest of them is no dataset."""
    gone = entry.with_name(f"{entry.name}.gone{_DRAFT}")
    entry.rename(gone)
    shutil.rmtree(gone)


def _sync(folder: Path) -> None:
    """Write down what a crash of the machine could lose: else an entry might be whole in name only."""
    for place in (folder, *folder.rglob("*")):
        file = os.open(place, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
