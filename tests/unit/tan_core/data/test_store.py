"""The folder on a node's disk: whole entries, one maker, never more than is allowed, whatever is killed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tan_core.data.storage import storage_of
from tan_core.data.store import Room, Store, size_of
from tan_core.errors import DatasetError
from tests.support.disks import fill, small_disk

KB = 1000


class Writer:
    """Fills an entry with one file of so many bytes; counts how often it was asked to."""

    def __init__(self, num_bytes: int = KB, *, seconds: float = 0.0) -> None:
        self.num_bytes, self.seconds, self.made = num_bytes, seconds, 0

    def __call__(self, folder: Path, room: Room) -> None:
        self.made += 1
        room(self.num_bytes)
        (folder / "a").write_bytes(bytes(self.num_bytes))
        time.sleep(self.seconds)


def length(entry: Path) -> int:
    return len((entry / "a").read_bytes())


def names(store: Store) -> set[str]:
    return {each.name for each in store.folder.iterdir() if each.is_dir()}


def test_an_entry_is_made_once_and_read_often(tmp_path: Path) -> None:
    store, writer = Store(tmp_path / "kept"), Writer()

    assert [store.kept("x", writer, length) for _ in range(3)] == [KB] * 3
    assert writer.made == 1
    assert store.find("x") == tmp_path / "kept" / "x"
    assert store.find("y") is None


def test_only_the_owner_can_enter(tmp_path: Path) -> None:
    store = Store(tmp_path / "kept")
    store.kept("x", Writer(), length)

    assert store.folder.stat().st_mode & 0o077 == 0
    assert (store.folder / "x").stat().st_mode & 0o077 == 0


def test_of_many_at_once_one_makes_it(tmp_path: Path) -> None:
    """A lock is held by an open file, so threads stand for processes."""
    store, writer = Store(tmp_path), Writer(seconds=0.1)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: store.kept("x", writer, length), range(8)))

    assert found == [KB] * 8
    assert writer.made == 1


def test_what_was_read_longest_ago_goes_first(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=3 * KB)
    for name in "abc":
        store.kept(name, Writer(), length)
    store.kept("a", Writer(), length)

    store.kept("d", Writer(), length)

    assert names(store) == {"a", "c", "d"}
    assert size_of(tmp_path) == 3 * KB


def test_what_was_found_was_read(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=2 * KB)
    for name in "ab":
        store.kept(name, Writer(), length)
    store.find("a")

    store.kept("c", Writer(), length)

    assert names(store) == {"a", "c"}


def test_a_name_that_is_taken_keeps_what_it_names(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.kept("old", Writer(KB), length)
    store.kept("new", Writer(2 * KB), length)

    store.rename("new", "old")

    assert names(store) == {"old", "new"}
    assert store.kept("old", Writer(), length) == KB
    store.rename("new", "free")
    assert store.kept("free", Writer(), length) == 2 * KB


def test_many_at_once_stay_within_the_bound(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=5 * KB)
    most = 0

    def make(folder: Path, room: Room) -> None:
        nonlocal most
        for part in "ab":
            room(KB)
            (folder / part).write_bytes(bytes(KB))
            most = max(most, size_of(tmp_path))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda number: store.kept(str(number), make, length), range(24)))

    assert most == 5 * KB
    assert len(names(store)) == 2


def test_what_does_not_fit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=3 * KB)
    store.kept("needed", Writer(), length)

    with pytest.raises(
        DatasetError, match=r"2,500 more bytes.*3,000 that TAN_NODE_CACHE_GB"
    ) as caught:
        store.kept("x", Writer(2500), length, beside=("needed",))

    assert caught.value.field == "cache_dir"
    assert names(store) == {"needed"}


def test_what_fails_while_it_is_made_leaves_nothing(tmp_path: Path) -> None:
    def fails(folder: Path, room: Room) -> None:
        (folder / "a").write_bytes(b"half")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        Store(tmp_path).kept("x", fails, length)

    assert names(Store(tmp_path)) == set()
    assert Store(tmp_path).kept("x", Writer(), length) == KB


def test_who_reads_what_goes_reads_on(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=KB)
    with store.kept("a", Writer(), lambda entry: (entry / "a").open("rb")) as reader:
        store.kept("b", Writer(), length)

        assert names(store) == {"b"}
        assert len(reader.read()) == KB


def test_what_is_needed_is_provided_until_it_is_there(tmp_path: Path) -> None:
    """Another maker may take its room between."""
    store = Store(tmp_path)
    asked: list[bool] = []

    def provide() -> None:
        asked.append(True)
        if len(asked) == 2:
            store.kept("needed", Writer(), length)

    def make(folder: Path, room: Room) -> None:
        assert (tmp_path / "needed").is_dir()
        Writer()(folder, room)

    assert store.kept("x", make, length, beside=("needed",), provide=provide) == KB
    assert store.kept("x", make, length, beside=("needed",), provide=provide) == KB
    assert len(asked) == 2


KILLED = """
import sys, time
from pathlib import Path
from tan_core.data.store import Store
def make(folder, room):
    room(1000)
    (folder / "a").write_bytes(bytes(500))
    print("half", flush=True)
    time.sleep(600)
Store(Path(sys.argv[1])).kept(sys.argv[2], make, lambda entry: None)
"""


def test_an_entry_that_comes_by_its_name_while_it_is_made_is_the_one(tmp_path: Path) -> None:
    """A registration keeps what a run fetches at the same time."""
    store, other = Store(tmp_path), Writer()

    def make(folder: Path, room: Room) -> None:
        Writer()(folder, room)
        (tmp_path / "new").mkdir()
        other(tmp_path / "new", room)
        store.rename("new", "x")

    assert store.kept("x", make, length) == KB
    assert names(store) == {"x"}
    assert size_of(tmp_path) == KB


def test_what_goes_is_never_seen_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who lists its files while they are deleted would take those that are left for all."""
    store = Store(tmp_path, max_bytes=KB)
    found: list[Path | None] = []
    remove = shutil.rmtree

    def watched(place: Path, **options: bool) -> None:
        found.extend([store.find("a"), store.find("b")])
        remove(place, **options)

    store.kept("a", Writer(), length)
    monkeypatch.setattr(shutil, "rmtree", watched)
    store.kept("b", Writer(), length)
    assert found == [None, None]
    store.drop("b")
    assert found == [None] * 4
    assert size_of(tmp_path) == 0


LOOKING = """
import sys, time
from pathlib import Path
from tan_core.data.store import Store
def make(folder, room):
    (folder / "a").write_bytes(bytes(500))
with Store(Path(sys.argv[1])).lent(make):
    print("there", flush=True)
    time.sleep(600)
"""


def test_what_was_lent_to_who_is_killed_goes_with_the_next_and_no_sooner(tmp_path: Path) -> None:
    store = Store(tmp_path)
    looking = subprocess.Popen(
        [sys.executable, "-c", LOOKING, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert looking.stdout is not None
    assert looking.stdout.readline() == b"there\n"
    with store.lent(Writer()):
        assert size_of(tmp_path) == KB + 500

    os.kill(looking.pid, signal.SIGKILL)
    looking.communicate()
    with store.lent(Writer()) as entry:
        assert names(store) == {entry.name}
    assert names(store) == set()
    assert not list(tmp_path.glob("new-*"))


@pytest.mark.parametrize("name", ["x", "another"])
def test_who_is_killed_while_making_leaves_what_the_next_one_removes(
    tmp_path: Path, name: str
) -> None:
    maker = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), "x"], stdout=subprocess.PIPE
    )
    assert maker.stdout is not None
    assert maker.stdout.readline() == b"half\n"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Store(tmp_path).kept, name, Writer(), length)
        time.sleep(0.2)
        assert not waiting.done()

        os.kill(maker.pid, signal.SIGKILL)

        assert waiting.result(timeout=30) == KB
    maker.communicate()
    assert names(Store(tmp_path)) == {name}


def test_a_full_disk_gives_way_or_says_so(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", megabytes=8) as disk:
        store = Store(disk / "kept")
        store.kept("old", Writer(3_000_000), length)
        store.kept("new", Writer(5_000_000), length)
        assert names(store) == {"new"}

        with pytest.raises(DatasetError, match="the disk has") as caught:
            store.kept("huge", Writer(9_000_000), length)
        assert caught.value.field == "cache_dir"

        store.kept("small", Writer(KB), length)
        ballast = fill(disk)
        with pytest.raises(DatasetError, match="No space"):
            store.kept("late", lambda folder, _: length(_written(folder)), length)
        ballast.unlink()
        assert "late" not in names(store)
        assert store.kept("late", Writer(KB), length) == KB


def _written(folder: Path) -> Path:
    """As one does who did not ask for room."""
    (folder / "a").write_bytes(bytes(100_000))
    return folder


def test_settings_name_it_in_gigabytes_below_home() -> None:
    bounded = storage_of(Path("~/kept"), 1.5, ("s3://bucket",))
    whole_disk = storage_of(Path("/kept"), None, ())
    nowhere = storage_of(None, 1.5, ("s3://bucket",))

    assert bounded.needed_store() == Store(Path.home() / "kept", 1_500_000_000)
    assert whole_disk.needed_store() == Store(Path("/kept"), None)
    assert bounded.allowed_urls == nowhere.allowed_urls == ("s3://bucket",)
    with pytest.raises(DatasetError, match="TAN_NODE_CACHE_DIR"):
        nowhere.needed_store()


def test_a_place_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(DatasetError, match="cannot be kept"):
        Store(tmp_path / "file").kept("x", Writer(), length)
