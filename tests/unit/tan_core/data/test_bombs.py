"""Files that are small and claim to be large: refused by name before they are unpacked."""

import io
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from PIL import Image

from tan_core.data import growth, images, inspect
from tan_core.errors import DatasetError


@pytest.fixture
def small(monkeypatch) -> int:
    """What may be unpacked freely, for a test that should not need a gigabyte."""
    monkeypatch.setattr(growth, "FREE_BYTES", 2**20)
    return 2**20


@pytest.fixture
def peak():
    """The most memory that was held, in bytes."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


@pytest.fixture
def watched(small):
    """From when it is called on: the most that Arrow held, in bytes."""
    before = pa.default_memory_pool()

    def begin():
        _POOLS.append(pa.proxy_memory_pool(before))
        pa.set_memory_pool(_POOLS[-1])
        return _POOLS[-1].max_memory

    yield begin
    pa.set_memory_pool(before)


_POOLS = list[pa.MemoryPool]()
"""What was allocated in one has to be freed there, whenever that is."""


class TestNpz:
    def test_zeros_that_were_packed_tightly_are_not_unpacked(self, tmp_path, small, peak) -> None:
        path = tmp_path / "zeros.npz"
        header = {"descr": "|u1", "fortran_order": False, "shape": (16 * small,)}
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("x.npy", "w") as member,
        ):
            np.lib.format.write_array_header_1_0(member, header)
            for _ in range(16):
                member.write(bytes(small))
        with pytest.raises(DatasetError, match="unpacks to 16,777,"):
            inspect(str(path))
        assert peak() < 4 * small

    @pytest.mark.parametrize("shape", [(2**40,), (2**31, 28, 28)])
    def test_a_header_that_claims_more_than_its_member_holds(self, tmp_path, shape) -> None:
        member = io.BytesIO()
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(member, header)
        path = tmp_path / "claim.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", member.getvalue() + bytes(100))
            archive.writestr("y.npy", member.getvalue() + bytes(100))
        with pytest.raises(DatasetError, match=r"x\.npy claims [0-9,]+ bytes, holds 2"):
            inspect(str(path))

    def test_a_header_that_ends_in_its_version(self, tmp_path) -> None:
        path = tmp_path / "cut.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", b"\x93NUMPY")
        with pytest.raises(DatasetError, match="not a readable"):
            inspect(str(path))


class TestParquet:
    def test_a_value_that_is_stored_once_is_not_repeated_for_ever(
        self, tmp_path, small, peak
    ) -> None:
        picture = io.BytesIO()
        Image.effect_noise((128, 128), 64).save(picture, "PNG")
        rows = 100_000
        column = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(rows, dtype=np.int32)), pa.array([picture.getvalue()])
        )
        path = tmp_path / "train.parquet"
        table = {"image": column.cast(pa.dictionary(pa.int32(), pa.binary())), "label": [0] * rows}
        pa_parquet.write_table(pa.table(table), path, store_schema=False)
        assert path.stat().st_size < 200_000
        with pytest.raises(DatasetError, match="times its size"):
            inspect(str(path))
        assert peak() < 64 * small

    @pytest.mark.parametrize("kind", [pa.binary(), pa.string()], ids=str)
    def test_nor_is_a_large_one_before_it_is_counted(self, tmp_path, watched, kind) -> None:
        rows, value, image = 1000, b"text", io.BytesIO()
        if kind == pa.binary():
            Image.new("L", (8, 8)).save(image, "png")
            value = image.getvalue()
        column = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(rows, dtype=np.int32)), pa.array([value.ljust(2**24)], kind)
        )
        path = tmp_path / "train.parquet"
        pa_parquet.write_table(
            pa.table({"image": column, "a": np.zeros(rows), "label": np.arange(rows) % 2}),
            path,
            store_schema=False,
            compression="zstd",
            dictionary_pagesize_limit=2**25,
        )
        assert path.stat().st_size < 10_000
        unpacked = watched()
        with pytest.raises(DatasetError, match="times its size"):
            inspect(str(path), label="label" if kind == pa.binary() else "image")
        assert unpacked() < 2**26

    def test_nor_is_text_that_shares_its_beginnings(self, tmp_path, watched) -> None:
        rows = 1000
        texts = pa.array([f"{'text'.ljust(2**16)}{row}" for row in range(rows)])
        path = tmp_path / "train.parquet"
        pa_parquet.write_table(
            pa.table({"text": texts, "a": np.zeros(rows), "label": [0] * rows}),
            path,
            compression="zstd",
            use_dictionary=False,
            column_encoding={"text": "DELTA_BYTE_ARRAY"},
        )
        assert path.stat().st_size < 100_000
        unpacked = watched()
        with pytest.raises(DatasetError, match="times its size"):
            inspect(str(path), label="text")
        assert unpacked() < 2**26

    def test_text_that_is_stored_once_is_counted_in_each_row(
        self, tmp_path, small, watched
    ) -> None:
        """Also where it stays stored once."""
        rows = 1000
        column = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(rows, dtype=np.int32)), pa.array(["text".ljust(2**20)])
        )
        path = tmp_path / "train.parquet"
        pa_parquet.write_table(
            pa.table({"text": column, "a": np.zeros(rows), "label": [0] * rows}),
            path,
            compression="zstd",
            dictionary_pagesize_limit=2**25,
        )
        unpacked = watched()
        with pytest.raises(DatasetError, match="times its size"):
            inspect(str(path), label="text")
        assert unpacked() < 2**24

    @pytest.mark.parametrize(
        "value",
        [
            pa.array([bytes(2**20)]),
            pa.array([bytes(2**20)], pa.binary(2**20)),
            pa.array(["text".ljust(2**20)]),
            pa.array(['"json"'.ljust(2**20)], pa.json_()),
            pa.ExtensionArray.from_storage(
                pa.fixed_shape_tensor(pa.float64(), [2**17]),
                pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2**17)), 2**17),
            ),
        ],
        ids=["bytes", "fixed", "text", "json", "tensor"],
    )
    def test_what_is_no_part_of_a_record_is_left_out(self, tmp_path, watched, value) -> None:
        rows = 60
        column = pa.chunked_array([value] * rows)
        path = tmp_path / "train.parquet"
        columns = {"a": np.zeros(rows), "more": column, "label": np.arange(rows) % 2}
        pa_parquet.write_table(pa.table(columns), path)
        unpacked = watched()
        facts = inspect(str(path))
        assert (facts.shape, facts.unread_columns) == ((1,), ("more",))
        assert unpacked() < 2**22  # of bytes the first are looked at: they may be an image

    def test_lists_are_left_out(self, tmp_path, watched) -> None:
        rows, length = 60, 2**20
        lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * length, "i1")), length)
        path = tmp_path / "train.parquet"
        columns = {"a": np.zeros(rows), "more": lists, "label": np.arange(rows) % 2}
        pa_parquet.write_table(pa.table(columns), path)
        assert path.stat().st_size < 30_000
        unpacked = watched()
        facts = inspect(str(path))
        assert (facts.shape, facts.unread_columns) == ((1,), ("more",))
        assert unpacked() < 2**20

    def test_data_that_packs_well_is_read(self, tmp_path) -> None:
        rows = 300_000
        path = tmp_path / "train.parquet"
        columns = {"a": np.zeros(rows), "label": np.arange(rows) % 2}
        pa_parquet.write_table(pa.table(columns), path)
        facts = inspect(str(path))
        assert facts.num_train + facts.num_validation + facts.num_test == rows


class TestImages:
    def test_many_large_images_are_refused_by_their_sum(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(images, "MAX_BYTES", 10 * 64 * 64)
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            for number in range(6):
                Image.new("L", (64, 64)).save(tmp_path / name / f"{number}.png")
        with pytest.raises(DatasetError, match=r"12 images of shape \[1, 64, 64\] are more than"):
            inspect(str(tmp_path))

    def test_text_in_an_image_is_not_unpacked(self, tmp_path) -> None:
        def chunk(kind: bytes, body: bytes) -> bytes:
            return len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4)

        header = (8).to_bytes(4) * 2 + bytes([8, 0, 0, 0, 0])
        text = b"key\x00\x00" + zlib.compress(bytes(2**27))
        content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"zTXt", text)
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "0.png").write_bytes(content)
        with pytest.raises(DatasetError, match="too large"):
            inspect(str(tmp_path))


class TestAddresses:
    @pytest.mark.parametrize(
        "path",
        ["http://127.0.0.1/x.npz", "https://x/y.parquet", "file:///etc/passwd", "s3://b/k.parquet"],
    )
    def test_nothing_is_fetched(self, path: str) -> None:
        with pytest.raises(DatasetError, match="nothing is fetched"):
            inspect(path)


def test_a_path_is_a_path(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no such file"):
        inspect(str(tmp_path / "http:" / "x"))
