"""Features of a split: computed once, in stored order, whole or not at all."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tan_core import data
from tan_core.data import Split, load_features
from tan_core.errors import DatasetError
from tan_core.wire import DatasetRef
from tests.support.datasets import dataset_ref

ROOT = Path(__file__).parents[4]


class Extract:
    """Rows and columns of an image as half floats; counts the records that it is given."""

    def __init__(self, *, fails_after: int | None = None, seconds: float = 0.0) -> None:
        self.num_records = 0
        self._fails_after = fails_after
        self._seconds = seconds

    def __call__(self, records: NDArray[Any], rows: range) -> Iterator[NDArray[Any]]:
        for start in rows[::16]:
            yield self.of(records[start : start + 16])

    def of(self, records: NDArray[Any]) -> NDArray[Any]:
        time.sleep(self._seconds)
        self.num_records += len(records)
        if self._fails_after is not None and self.num_records > self._fails_after:
            raise RuntimeError("no more")
        means = [records.mean(axis, dtype=np.float32) for axis in (2, 3)]
        return np.concatenate(means, axis=2).astype(np.float16)


@pytest.fixture(scope="module")
def digits() -> DatasetRef:
    return dataset_ref(data.inspect(None, source="digits"))


def features(
    ref: DatasetRef,
    extract: Extract,
    cache_dir: Path | None,
    split: Any = "test",
    name: str = "means",
) -> Split:
    return load_features(ref, split, fingerprint=name, extract=extract, cache_dir=cache_dir)


def test_they_are_those_of_every_record_in_stored_order_kept_or_not(
    digits: DatasetRef, tmp_path: Path
) -> None:
    split = data.load_split(digits, "test")
    expected = Extract().of(split.inputs)

    for cache_dir in (None, tmp_path, tmp_path):
        found = features(digits, Extract(), cache_dir)

        assert found.inputs.dtype == np.float16
        assert np.array_equal(found.inputs, expected)
        assert np.array_equal(found.labels, split.labels)


def test_they_are_computed_once_for_each_split_and_fingerprint(
    digits: DatasetRef, tmp_path: Path
) -> None:
    extract = Extract()
    for split, name in [("test", "a"), ("validation", "a"), ("test", "b")] * 2:
        features(digits, extract, tmp_path, split, name)

    assert extract.num_records == 2 * digits.num_test + digits.num_validation


def test_another_dataset_has_features_of_its_own(digits: DatasetRef, tmp_path: Path) -> None:
    extract = Extract()
    features(digits, extract, tmp_path)

    features(digits.model_copy(update={"content_sha256": "0" * 64}), extract, tmp_path)

    assert extract.num_records == 2 * digits.num_test


def test_of_many_readers_at_once_one_computes(digits: DatasetRef, tmp_path: Path) -> None:
    """A lock is held by an open file, so threads stand for processes."""
    extract = Extract(seconds=0.001)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: features(digits, extract, tmp_path), range(4)))

    assert extract.num_records == digits.num_test
    assert all(np.array_equal(each.inputs, found[0].inputs) for each in found)


def test_who_waits_for_another_may_give_up(digits: DatasetRef, tmp_path: Path) -> None:
    begun, asked = Event(), []

    class Slow(Extract):
        def of(self, records: NDArray[Any]) -> NDArray[Any]:
            begun.set()
            while not asked:
                time.sleep(0.01)
            return super().of(records)

    def give_up() -> None:
        asked.append(1)
        raise RuntimeError("no longer")

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(features, digits, Slow(), tmp_path)
        assert begun.wait(60)
        with pytest.raises(RuntimeError, match="no longer"):
            load_features(
                digits,
                "test",
                fingerprint="means",
                extract=Extract(),
                cache_dir=tmp_path,
                waiting=give_up,
            )

    assert len(first.result().inputs) == digits.num_test


def test_work_that_was_cut_short_is_gone_on_with_and_leaves_nothing_behind(
    digits: DatasetRef, tmp_path: Path
) -> None:
    first, second = Extract(fails_after=100), Extract()
    with pytest.raises(RuntimeError, match="no more"):
        features(digits, first, tmp_path)

    found = features(digits, second, tmp_path)

    assert second.num_records == digits.num_test - 96
    assert np.array_equal(found.inputs, features(digits, Extract(), None).inputs)
    assert {file.suffix for file in tmp_path.iterdir()} == {".npy", ".lock"}


KILLED = """
import os, signal, sys
from pathlib import Path
from tan_core import wire
from tan_core.data import cache
from tests.unit.tan_core.data.test_features import Extract, features

class Killed(Extract):
    def of(self, records):
        if self.num_records == 160:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().of(records)

cache._NOTED_EVERY_SECONDS = float(sys.argv[3])
features(wire.DatasetRef.model_validate_json(sys.argv[1]), Killed(), Path(sys.argv[2]))
"""


@pytest.mark.parametrize(("noted_every", "left"), [(0, 160), (3600, 0)])
def test_who_is_killed_leaves_what_was_noted(
    digits: DatasetRef, tmp_path: Path, noted_every: int, left: int
) -> None:
    command = [sys.executable, "-c", KILLED, digits.model_dump_json()]
    killed = subprocess.run(
        [*command, str(tmp_path), str(noted_every)], check=False, timeout=120, cwd=ROOT
    )
    assert killed.returncode == -signal.SIGKILL
    extract = Extract()

    found = features(digits, extract, tmp_path)

    assert extract.num_records == digits.num_test - left
    assert np.array_equal(found.inputs, features(digits, Extract(), None).inputs)


def _cut(tmp_path: Path, digits: DatasetRef) -> tuple[Path, Path]:
    """The draft of features of which 96 are there, and its note."""
    with pytest.raises(RuntimeError, match="no more"):
        features(digits, Extract(fails_after=100), tmp_path)
    (draft,), (note,) = tmp_path.glob("*.tmp"), tmp_path.glob("*.rows")
    assert note.read_text() == "96"
    return draft, note


@pytest.mark.parametrize("behind", [b"", bytes(8 * 2 * 2 * 4), b"x" * 10**6])
def test_what_was_written_after_the_note_is_not_read(
    digits: DatasetRef, tmp_path: Path, behind: bytes
) -> None:
    """Once the machine has crashed it may be anything."""
    draft, _ = _cut(tmp_path, digits)
    with draft.open("ab") as stream:
        stream.write(behind)

    found = features(digits, Extract(), tmp_path)

    assert np.array_equal(found.inputs, features(digits, Extract(), None).inputs)


@pytest.mark.parametrize(
    ("draft", "note"),
    [
        *(("whole", note) for note in ("", "97", "-1", "many", "1e3", "0")),
        *((draft, "96") for draft in ("none", "of others", "cut")),
    ],
)
def test_a_note_that_cannot_be_is_not_believed(
    digits: DatasetRef, tmp_path: Path, draft: str, note: str
) -> None:
    file, noted = _cut(tmp_path, digits)
    noted.write_text(note)
    if draft == "none":
        file.unlink()
    elif draft == "of others":
        np.save(file.with_suffix(".npy"), np.zeros((7, 1, 16), np.float16))
        file.with_suffix(".npy").rename(file)
    elif draft == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    extract = Extract()

    found = features(digits, extract, tmp_path)

    assert extract.num_records == digits.num_test
    assert np.array_equal(found.inputs, features(digits, Extract(), None).inputs)


def test_inputs_are_never_there_without_their_labels(
    digits: DatasetRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is killed between the two leaves what the next one makes again."""
    replace = Path.replace

    def full(file: Path, target: Path) -> Path:
        if ".labels" in file.name:
            raise OSError("no space")
        return replace(file, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(DatasetError, match="no space"):
            features(digits, Extract(), tmp_path)

    assert len(features(digits, Extract(), tmp_path).labels) == digits.num_test


def grow_old(cache_dir: Path, *, days: float) -> None:
    then = time.time() - days * 86_400
    for file in cache_dir.iterdir():
        os.utime(file, (then, then))


class TestForgetting:
    def test_what_was_read_within_the_days_stays(self, digits: DatasetRef, tmp_path: Path) -> None:
        extract = Extract()
        features(digits, extract, tmp_path, "test", "read")
        features(digits, extract, tmp_path, "test", "left")
        grow_old(tmp_path, days=31)
        features(digits, Extract(), tmp_path, "test", "read")
        size = sum(file.stat().st_size for file in tmp_path.iterdir())

        freed = data.forget_unread(tmp_path, days=30)

        assert freed == size / 2
        again = Extract()
        features(digits, again, tmp_path, "test", "read")
        assert again.num_records == 0
        features(digits, again, tmp_path, "test", "left")
        assert again.num_records == digits.num_test

    def test_a_draft_goes_once_nobody_goes_on_with_it(
        self, digits: DatasetRef, tmp_path: Path
    ) -> None:
        with pytest.raises(RuntimeError, match="no more"):
            features(digits, Extract(fails_after=100), tmp_path)
        grow_old(tmp_path, days=29)
        assert data.forget_unread(tmp_path, days=30) == 0
        grow_old(tmp_path, days=31)

        assert data.forget_unread(tmp_path, days=30) > 0

        assert not [*tmp_path.iterdir()]

    def test_other_folders_and_files_stay(self, tmp_path: Path) -> None:
        (tmp_path / "node").mkdir()
        (tmp_path / "notes.npy").touch()
        grow_old(tmp_path, days=400)

        assert data.forget_unread(tmp_path, days=30) == 0

        assert {file.name for file in tmp_path.iterdir()} == {"node", "notes.npy"}

    def test_what_cannot_be_deleted_keeps_nothing_else(
        self, digits: DatasetRef, tmp_path: Path
    ) -> None:
        features(digits, Extract(), tmp_path)
        for name in ("0.lock", "z.lock"):
            (tmp_path / name).mkdir()
        grow_old(tmp_path, days=31)

        with pytest.raises(IsADirectoryError):
            data.forget_unread(tmp_path, days=30)

        assert {file.name for file in tmp_path.iterdir()} == {"0.lock", "z.lock"}

    def test_a_lock_that_another_machine_deleted_is_let_go(
        self, digits: DatasetRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a shared disk says it, to whoever waits for the lock."""
        flock, stale = fcntl.flock, []

        def of_a_shared_disk(stream: Any, how: int) -> None:
            if not stale:
                stale.append(1)
                raise OSError(errno.ESTALE, "stale file handle")
            flock(stream, how)

        features(digits, Extract(), tmp_path)
        (lock,) = tmp_path.glob("*.lock")
        stat, seen = os.fstat, []

        def deleted(number: int) -> os.stat_result:
            if len(stale) == 1 and not seen:
                seen.append(1)
                raise OSError(errno.ESTALE, "stale file handle")
            return stat(number)

        monkeypatch.setattr(fcntl, "flock", of_a_shared_disk)
        monkeypatch.setattr(os, "fstat", deleted)
        extract = Extract()

        assert len(features(digits, extract, tmp_path).inputs) == digits.num_test
        assert (extract.num_records, lock.is_file(), seen) == (0, True, [1])

    def test_there_need_be_no_folder(self, tmp_path: Path) -> None:
        assert data.forget_unread(tmp_path / "none", days=30) == 0

    def test_whoever_reads_them_goes_on_reading(self, digits: DatasetRef, tmp_path: Path) -> None:
        found = features(digits, Extract(), tmp_path)
        grow_old(tmp_path, days=31)

        data.forget_unread(tmp_path, days=30)

        assert np.array_equal(found.inputs, features(digits, Extract(), None).inputs)

    def test_what_is_being_made_stays(self, digits: DatasetRef, tmp_path: Path) -> None:
        begun, told = Event(), Event()

        class Slow(Extract):
            def of(self, records: NDArray[Any]) -> NDArray[Any]:
                begun.set()
                assert told.wait(60)
                return super().of(records)

        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(features, digits, Slow(), tmp_path)
            assert begun.wait(60)
            grow_old(tmp_path, days=31)
            freed = data.forget_unread(tmp_path, days=30)
            told.set()

        assert freed == 0
        assert len(first.result().inputs) == digits.num_test

    def test_who_waits_for_a_lock_that_is_deleted_makes_another(
        self, digits: DatasetRef, tmp_path: Path
    ) -> None:
        """Else it would hold a file that nobody finds, and two would make the same."""
        features(digits, Extract(), tmp_path)
        (lock,) = tmp_path.glob("*.lock")
        waits = Event()

        def wait_for_them() -> Split:
            return load_features(
                digits,
                "test",
                fingerprint="means",
                extract=Extract(),
                cache_dir=tmp_path,
                waiting=waits.set,
            )

        with ThreadPoolExecutor(1) as pool, lock.open("r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            waiter = pool.submit(wait_for_them)
            assert waits.wait(60)
            for file in [*tmp_path.iterdir()]:
                file.unlink()
            fcntl.flock(held, fcntl.LOCK_UN)

            assert len(waiter.result().inputs) == digits.num_test
        assert lock.is_file()


def test_they_may_lie_in_memory_in_any_order_of_axes(digits: DatasetRef, tmp_path: Path) -> None:
    found = load_features(
        digits,
        "test",
        fingerprint="turned",
        extract=lambda records, rows: [
            records[:16, 0].transpose(0, 2, 1),
            records[16:, 0].transpose(0, 2, 1),
        ],
        cache_dir=tmp_path,
    )

    images = data.load_split(digits, "test").inputs[:, 0]
    assert np.array_equal(found.inputs, images.transpose(0, 2, 1))


def test_what_a_reader_writes_reaches_nobody_else(digits: DatasetRef, tmp_path: Path) -> None:
    first = features(digits, Extract(), tmp_path)
    before = first.inputs[0].copy()

    first.inputs[0] = 7

    assert np.array_equal(features(digits, Extract(), tmp_path).inputs[0], before)


def test_only_the_owner_can_read_them(digits: DatasetRef, tmp_path: Path) -> None:
    features(digits, Extract(), tmp_path / "cache")

    files = [tmp_path / "cache", *(tmp_path / "cache").iterdir()]
    assert {file.stat().st_mode & 0o077 for file in files} == {0}


def test_a_place_that_cannot_hold_them_is_named(digits: DatasetRef, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    with pytest.raises(DatasetError, match="cannot be kept") as caught:
        features(digits, Extract(), file)

    assert caught.value.field == "cache_dir"
