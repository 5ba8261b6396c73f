"""Splits that are read by index: the very records that are read into memory, in any order, by any process."""

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from tan_core import data
from tan_core.data import Records, Storage, Store
from tan_core.data.records import write
from tan_core.errors import DatasetError
from tan_core.wire import DatasetRef
from tests.support.datasets import dataset_ref
from tests.support.image_files import image_shards, png


@pytest.fixture
def ref(tmp_path: Path) -> DatasetRef:
    folder = image_shards(tmp_path / "images")
    return dataset_ref(data.inspect(str(folder)), path=folder)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(store=Store(tmp_path / "kept"), in_memory_bytes=0)


def records_of(ref: DatasetRef, storage: Storage, split="train") -> Records:
    inputs = data.load_split(ref, split, storage=storage).inputs
    assert isinstance(inputs, Records)
    return inputs


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_they_are_the_records_that_memory_holds(ref: DatasetRef, storage: Storage, split) -> None:
    expected = data.load_split(ref, split)

    found = data.load_split(ref, split, storage=storage)

    assert isinstance(found.inputs, Records)
    assert found.inputs.shape == expected.inputs.shape
    assert np.array_equal(found.inputs[:], expected.inputs)
    assert np.array_equal(found.labels, expected.labels)


def test_splits_and_cuts_of_one_dataset_are_kept_apart(ref: DatasetRef, storage: Storage) -> None:
    for own in (ref, ref.model_copy(update={"split_seed": 1})):
        for split in ("train", "validation", "test"):
            expected = data.load_split(own, split)

            assert np.array_equal(records_of(own, storage, split)[:], expected.inputs)


def test_class_folders_are_read_by_index_too(tmp_path: Path, storage: Storage) -> None:
    rng = np.random.default_rng(0)
    for number in range(40):
        file = tmp_path / "folders" / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(rng.integers(0, 256, (4, 4), dtype=np.uint8)))
    ref = dataset_ref(data.inspect(str(tmp_path / "folders")), path=tmp_path / "folders")

    found = records_of(ref, storage)

    assert np.array_equal(found[:], data.load_split(ref, "train").inputs)


def test_any_rows_in_any_order(ref: DatasetRef, storage: Storage) -> None:
    expected = data.load_split(ref, "train").inputs
    records = records_of(ref, storage)

    for rows in ([3], [], [5, 2, 2, 40], list(range(len(records)))[::-1]):
        assert np.array_equal(records.take(np.array(rows, dtype=np.intp)), expected[rows])
    assert np.array_equal(records[7:9], expected[7:9])


def test_many_threads_read_at_once(ref: DatasetRef, storage: Storage) -> None:
    expected = data.load_split(ref, "train").inputs
    records = records_of(ref, storage)
    rng = np.random.default_rng(0)
    asked = [rng.integers(0, len(records), 100) for _ in range(32)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(records.take, asked))

    assert all(np.array_equal(f, expected[rows]) for f, rows in zip(found, asked, strict=True))


def test_a_copy_reads_what_the_first_one_read_and_outlives_it(
    ref: DatasetRef, storage: Storage
) -> None:
    records = records_of(ref, storage)
    expected = records[:]
    copy = pickle.loads(pickle.dumps(records))
    del records

    assert np.array_equal(copy[:], expected)


def test_another_process_packs_them_on_its_own_node(
    ref: DatasetRef, tmp_path: Path, storage: Storage
) -> None:
    elsewhere = Storage(store=Store(tmp_path / "other-node"), in_memory_bytes=0)
    records = records_of(ref, elsewhere)
    content = pickle.dumps(records)
    (tmp_path / "other-node").rename(tmp_path / "away")

    script = "import pickle, sys; print(pickle.load(sys.stdin.buffer)[:].sum())"
    run = subprocess.run(
        [sys.executable, "-c", script], input=content, capture_output=True, check=True, timeout=60
    )

    assert int(run.stdout) == int(records[:].sum())
    assert (tmp_path / "other-node").is_dir()


def test_small_splits_stay_in_memory(ref: DatasetRef, storage: Storage) -> None:
    num_bytes = ref.num_train * 5 * 5 * 3

    for allowed, kind in ((num_bytes, np.ndarray), (num_bytes - 1, Records)):
        large = Storage(store=storage.store, in_memory_bytes=allowed)
        assert isinstance(data.load_split(ref, "train", storage=large).inputs, kind)


def test_of_users_all_records_count_and_each_keeps_its_user(
    tmp_path: Path, storage: Storage
) -> None:
    for file in image_shards(tmp_path / "images").iterdir():
        table = pa_parquet.read_table(file)
        who = pa.array([f"u{row // 2 % 13}" for row in range(len(table))])
        pa_parquet.write_table(table.append_column("who", who), file)
    folder = tmp_path / "images"
    ref = dataset_ref(data.inspect(str(folder), unit="who"), path=folder, unit="who")
    expected = data.load_split(ref, "train")
    assert ref.num_train < len(expected)

    more_than_users = Storage(storage.store, in_memory_bytes=(len(expected) - 1) * 5 * 5 * 3)
    found = data.load_split(ref, "train", storage=more_than_users)

    assert isinstance(found.inputs, Records)
    assert found.num_units == ref.num_train
    assert expected.users is not None
    assert np.array_equal(found.users, expected.users)
    assert np.array_equal(found.inputs[:], expected.inputs)


def test_features_are_computed_from_them(ref: DatasetRef, storage: Storage, tmp_path: Path) -> None:
    def means(records: np.ndarray | Records, _: range) -> list[np.ndarray]:
        return [block.mean((2, 3), dtype=np.float32) for block in (records[:16], records[16:])]

    expected = np.concatenate(means(data.load_split(ref, "train").inputs, range(0)))

    found = data.load_features(
        ref,
        "train",
        fingerprint="means",
        extract=means,
        cache_dir=tmp_path,
        storage=storage,
    )

    assert np.allclose(found.inputs, expected)
    assert storage.store is not None
    assert list(storage.store.folder.glob("images-*"))


@pytest.mark.parametrize("name", ["images", "ends.npy", "labels.npy"])
def test_what_was_cut_off_is_named(ref: DatasetRef, storage: Storage, name: str) -> None:
    records_of(ref, storage)
    assert storage.store is not None
    (entry,) = storage.store.folder.glob("images-*")
    (entry / name).write_bytes((entry / name).read_bytes()[:-8])

    with pytest.raises(DatasetError, match="damaged, delete it") as caught:
        records_of(ref, storage)
    assert caught.value.field == "cache_dir"


def test_labels_of_other_records_are_named(ref: DatasetRef, storage: Storage) -> None:
    records_of(ref, storage)
    assert storage.store is not None
    (entry,) = storage.store.folder.glob("images-*")
    np.save(entry / "labels.npy", np.load(entry / "labels.npy")[:-1])

    with pytest.raises(DatasetError, match="damaged, delete it: it is not as long as it was"):
        records_of(ref, storage)


def test_a_label_of_no_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="3 images but 4 labels"):
        write(tmp_path, lambda _: None, [b"1", b"22", b"333"], np.zeros(4, np.int64))


def test_no_room_is_said_before_anything_is_trained(ref: DatasetRef, tmp_path: Path) -> None:
    storage = Storage(store=Store(tmp_path / "kept", max_bytes=5000), in_memory_bytes=0)

    with pytest.raises(DatasetError, match=r"5,000 that TAN_NODE_CACHE_GB"):
        records_of(ref, storage)


def test_an_image_of_another_size_than_was_registered_is_named(
    ref: DatasetRef, storage: Storage
) -> None:
    shrunk = ref.model_copy(update={"shape": [3, 4, 4]})

    with pytest.raises(DatasetError, match="record 0: is 5x5, expected was 4x4"):
        records_of(shrunk, storage)[:1]


def test_an_image_without_bytes_is_named(tmp_path: Path) -> None:
    images = [{"bytes": png(np.zeros((4, 4), np.uint8)), "path": None}] * 300
    images[277] = {"bytes": None, "path": None}
    file = tmp_path / "train.parquet"
    pa_parquet.write_table(pa.table({"image": images, "label": [0, 1] * 150}), file)

    with pytest.raises(DatasetError, match="record 277: the image has no bytes"):
        data.inspect(str(file))


@pytest.mark.slow
def test_reading_takes_the_memory_of_some_rows_not_of_all(tmp_path: Path) -> None:
    """178 MB of images, in a process whose growth is measured: most of it is what libraries take."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 160, 160, 3), dtype=np.uint8)
    images = [{"bytes": png(each), "path": None} for each in noise] * 36
    table = pa.table({"image": images, "label": [0, 1] * (len(images) // 2)})
    pa_parquet.write_table(table, tmp_path / "train.parquet", row_group_size=64)
    del images, table
    script = (
        "import sys; from pathlib import Path; from tan_core import data; "
        "hwm = lambda: Path('/proc/self/status').read_text().split('VmHWM:')[1]; "
        "peak = lambda: int(hwm().split()[0]); "
        "from tan_core.wire import DatasetRef; from tests.support.datasets import dataset_ref; "
        "store = data.Store(Path(sys.argv[2])); path = Path(sys.argv[1]); "
        "before = peak(); ref = dataset_ref(data.inspect(str(path)), path=path); "
        "split = data.load_split(ref, 'train', storage=data.Storage(store=store, in_memory_bytes=0)); "
        "split.inputs[:32]; print(peak() - before)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "train.parquet"), str(tmp_path / "kept")],
        capture_output=True, check=True, timeout=120,
    )  # fmt: skip

    assert int(run.stdout) / 1024 < 160
