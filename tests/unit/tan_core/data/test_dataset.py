"""Datasets of every source: what inspect finds, what load_split reads, what is refused and how."""

import contextlib
import hashlib
import io
import os
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import TypeAdapter

from tan_core import data
from tan_core.data import growth, images
from tan_core.data.cache import cache_file
from tan_core.data.columns import read_table
from tan_core.data.images import ImageFiles, ImageInputs
from tan_core.data.parquet_images import ParquetImages
from tan_core.data.part import Columns
from tan_core.errors import DatasetError, ParameterError
from tan_core.spec.columns import ChoiceColumn, Feature
from tan_core.wire import DatasetRef
from tests.support.datasets import dataset_ref
from tests.support.image_files import image_shards, png

MNIST = Path(os.environ.get("TAN_DATA_DIR", Path(__file__).parents[5] / "shared" / "data"), "mnist")


def make_ref(facts: data.DatasetFacts, path: Path | None, **changes) -> DatasetRef:
    return dataset_ref(facts, name="made", path=path, **changes)


def grey_images(count: int, side: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side), dtype=np.uint8)


def write_images(file: Path, pixels, labels, *, label: str = "label") -> Path:
    images = [{"bytes": png(image), "path": f"{i}.png"} for i, image in enumerate(pixels)]
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"image": images, label: pa.array(labels, pa.int64())}), file)
    return file


@pytest.fixture
def image_parquet(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    write_images(folder / "train.parquet", grey_images(40), [i % 4 for i in range(40)])
    write_images(folder / "test.parquet", grey_images(8, seed=1), [i % 4 for i in range(8)])
    return folder


class TestDigits:
    def test_the_bundled_digits_are_cut_into_three_splits_that_share_no_record(self) -> None:
        facts = data.inspect(None, source="digits")
        ref = make_ref(facts, None)

        splits = {role: data.load_split(ref, role) for role in ("train", "validation", "test")}

        assert (facts.num_train, facts.num_validation, facts.num_test) == (1295, 143, 359)
        assert facts.shape == (1, 8, 8)
        assert facts.num_classes == 10
        assert sum(len(split) for split in splits.values()) == 1797
        assert {int(split.inputs.max()) for split in splits.values()} == {255}

    def test_another_split_seed_cuts_other_records_and_the_same_seed_the_same(self) -> None:
        refs = [
            make_ref(data.inspect(None, source="digits", split_seed=s), None, split_seed=s)
            for s in (0, 0, 1)
        ]

        first, again, other = (data.load_split(ref, "test") for ref in refs)

        assert np.array_equal(first.inputs, again.inputs)
        assert not np.array_equal(first.inputs, other.inputs)


class TestParquetImages:
    def test_a_stored_test_part_is_taken_whole_and_in_order(self, image_parquet: Path) -> None:
        facts = data.inspect(str(image_parquet))

        test = data.load_split(make_ref(facts, image_parquet), "test")

        assert facts.source == "parquet"
        assert (facts.num_train, facts.num_validation, facts.num_test) == (36, 4, 8)
        assert np.array_equal(test.inputs, grey_images(8, seed=1)[:, None])
        assert test.labels.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]

    def test_shards_are_read_in_the_order_of_their_names(self, tmp_path: Path) -> None:
        pixels, labels = grey_images(30), [i % 3 for i in range(30)]
        write_images(tmp_path / "data/train-00001-of-00002.parquet", pixels[15:], labels[15:])
        write_images(tmp_path / "data/train-00000-of-00002.parquet", pixels[:15], labels[:15])
        one_file = write_images(tmp_path / "one/all.parquet", pixels, labels)

        shards = make_ref(data.inspect(str(tmp_path)), tmp_path)
        whole = make_ref(data.inspect(str(one_file)), one_file)

        assert np.array_equal(
            data.load_split(shards, "train").inputs, data.load_split(whole, "train").inputs
        )

    @pytest.mark.parametrize("at", [0, 12, 19])
    def test_one_colour_image_makes_every_image_colour(self, tmp_path: Path, at: int) -> None:
        pixels = [*grey_images(20)]
        pixels[at] = np.zeros((5, 5, 3), np.uint8)
        file = write_images(tmp_path / "a.parquet", pixels, [i % 2 for i in range(20)])

        assert data.inspect(str(file)).shape == (3, 5, 5)

    def test_images_are_as_high_and_wide_as_they_are(self, image_parquet: Path) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (8, 3, 7, 3), dtype=np.uint8)
        labels = [i % 2 for i in range(8)]
        for part in ("train", "validation", "test"):
            write_images(image_parquet / f"{part}.parquet", pixels, labels)

        ref = make_ref(data.inspect(str(image_parquet)), image_parquet)

        assert ref.shape == [3, 3, 7]
        found = data.load_split(ref, "test").inputs
        assert np.array_equal(found, pixels.transpose(0, 3, 1, 2))

    def test_records_come_in_the_order_that_was_asked_for_some_at_a_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(images, "_HELD", 4)
        monkeypatch.setattr(images, "_CHUNK", 3)
        pixels = grey_images(30)
        file = write_images(tmp_path / "a.parquet", pixels, [0] * 30)
        inputs = ImageInputs(ParquetImages((file,), "here", "image"), "here")
        asked = np.array([29, 3, 3, 17, 0, 8, 21, 5, 12, 1, 2])

        assert np.array_equal(inputs.load(asked)[:, 0], pixels[asked])

    def test_an_image_of_too_many_pixels_is_refused(
        self, image_parquet: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Far fewer than Pillow itself would refuse."""
        monkeypatch.setattr(images, "MAX_PIXELS", 25)
        assert data.inspect(str(image_parquet)).shape == (1, 5, 5)
        monkeypatch.setattr(images, "MAX_PIXELS", 24)

        with pytest.raises(DatasetError, match="record 0: 5x5 is more than 24 pixels"):
            data.inspect(str(image_parquet))

    def test_what_does_not_go_into_memory_is_refused_before_it_is_tried(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a.png").write_bytes(png(grey_images(1)[0]))
        inputs = ImageInputs(ImageFiles([tmp_path / "a.png"] * 11), "here")
        monkeypatch.setattr(growth, "MAX_BYTES", 10 * 25)
        assert len(inputs.load(np.arange(10))) == 10

        with pytest.raises(DatasetError, match=r"11 images .* do not go into memory") as error:
            inputs.load(np.arange(11))

        assert error.value.field == "cache_dir"

    def test_pixels_of_more_than_eight_bits_are_refused(self, tmp_path: Path) -> None:
        deep = grey_images(20).astype(np.uint16) * 257
        file = write_images(tmp_path / "a.parquet", deep, [i % 2 for i in range(20)])

        with pytest.raises(DatasetError, match="record 0: pixel mode 'I;16'; accepted: 8 bits"):
            data.inspect(str(file))

    def test_a_missing_label_column_is_named_with_the_columns_there_are(
        self, tmp_path: Path
    ) -> None:
        file = write_images(tmp_path / "a.parquet", grey_images(20), [0] * 20, label="digit")

        with pytest.raises(DatasetError, match=r"no column 'label'.*\['image', 'digit'\]") as error:
            data.inspect(str(file))

        assert error.value.field == "label"

    def test_mixed_sizes_are_refused_with_the_record(self, tmp_path: Path) -> None:
        pixels = [*grey_images(3), *grey_images(1, side=6)]
        file = write_images(tmp_path / "a.parquet", pixels, [0, 1, 0, 1])

        with pytest.raises(DatasetError, match="record 0 is 5x5, record 3 is 6x6"):
            data.inspect(str(file))

    def test_parts_of_other_sizes_are_refused(self, image_parquet: Path) -> None:
        write_images(image_parquet / "test.parquet", grey_images(8, side=6), [0, 1] * 4)

        with pytest.raises(
            DatasetError, match=r"train have shape \[1, 5, 5\], of test \[1, 6, 6\]"
        ) as error:
            data.inspect(str(image_parquet))

        assert error.value.field == "path"

    def test_an_image_that_claims_to_be_huge_is_refused_before_it_is_decoded(
        self, tmp_path: Path
    ) -> None:
        header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
        chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
        bomb = b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
            for kind, body in chunks
        )
        table = {"image": [{"bytes": bomb, "path": ""}], "label": [0]}
        pq.write_table(pa.table(table), tmp_path / "a.parquet")

        with pytest.raises(DatasetError, match=r"record 0.*pixels"):
            data.inspect(str(tmp_path / "a.parquet"))

    @pytest.mark.parametrize("kind", [pa.large_binary(), pa.binary_view()], ids=str)
    @pytest.mark.parametrize("is_struct", [True, False])
    def test_bytes_may_be_of_any_kind(self, tmp_path: Path, kind, is_struct: bool) -> None:
        pixels, labels = grey_images(40), [0, 1] * 20
        write_images(tmp_path / "usual" / "train.parquet", pixels, labels)
        encoded = pa.array([png(image) for image in pixels], kind)
        images = pa.StructArray.from_arrays([encoded], names=["bytes"]) if is_struct else encoded
        (tmp_path / "other").mkdir()
        pq.write_table(
            pa.table({"image": images, "label": labels}), tmp_path / "other" / "train.parquet"
        )

        usual, other = (
            data.load_split(make_ref(data.inspect(str(folder)), folder), "train").inputs
            for folder in (tmp_path / "usual", tmp_path / "other")
        )

        assert np.array_equal(usual, other)

    def test_bytes_that_are_no_image_are_refused_with_the_record(self, tmp_path: Path) -> None:
        table = {"image": [{"bytes": b"nonsense", "path": ""}], "label": [0]}
        pq.write_table(pa.table(table), tmp_path / "a.parquet")

        with pytest.raises(DatasetError, match="record 0: not a readable image"):
            data.inspect(str(tmp_path / "a.parquet"))

    def test_bytes_that_are_no_images_are_a_column_of_a_table_that_nothing_reads(
        self, tmp_path: Path
    ) -> None:
        keys = [bytes([row]) * 16 for row in range(60)]
        columns = {"key": keys, "a": np.arange(60) / 60, "label": np.arange(60) % 2}
        pq.write_table(pa.table(columns), tmp_path / "table.parquet")
        images = [{"bytes": png(each), "path": None} for each in grey_images(60)]
        for name, held in (("structs", images), ("bare", [each["bytes"] for each in images])):
            pq.write_table(pa.table({**columns, "image": held}), tmp_path / f"{name}.parquet")

        table, *others = (
            data.inspect(str(tmp_path / f"{name}.parquet")) for name in ("table", "structs", "bare")
        )

        assert (table.source, table.shape, table.unread_columns) == ("table", (1,), ("key",))
        assert [(each.source, each.shape) for each in others] == [("parquet", (1, 5, 5))] * 2
        with pytest.raises(DatasetError, match="record 0: not a readable image"):
            data.inspect(str(tmp_path / "table.parquet"), source="parquet")

    @pytest.mark.parametrize("name", ["train-1", "test"])
    def test_images_are_of_one_column_in_all_files(self, tmp_path: Path, name: str) -> None:
        """A file whose first image is missing was read from the next column of images, beside those of the others."""
        bright, dark = ([png(np.full((5, 5), level, np.uint8))] * 30 for level in (200, 10))
        columns = {"image": bright, "depth": dark, "label": [0, 1] * 15}
        for each in ("train-0", "train-1", "test"):
            pq.write_table(pa.table(columns), tmp_path / f"{each}.parquet")
        assert data.inspect(str(tmp_path)).num_test == 30

        columns["image"] = [None, *bright[1:]]
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")

        with pytest.raises(DatasetError, match=r"record \d+: the image has no bytes"):
            data.inspect(str(tmp_path))

    def test_a_part_without_the_column_of_train_is_refused(self, image_parquet: Path) -> None:
        columns = {"photo": [png(each) for each in grey_images(8)], "label": [0, 1] * 4}
        pq.write_table(pa.table(columns), image_parquet / "test.parquet")

        with pytest.raises(DatasetError, match=r"no image column 'image'; columns are \['photo', "):
            data.inspect(str(image_parquet))

    def test_a_first_file_without_records_says_nothing_of_the_column(self, tmp_path: Path) -> None:
        keys = [bytes([row]) * 16 for row in range(40)]
        columns = {
            "key": keys,
            "image": [png(each) for each in grey_images(40)],
            "label": [0, 1] * 20,
        }
        table = pa.table(columns)
        pq.write_table(table.slice(0, 0), tmp_path / "train-0.parquet")
        pq.write_table(table, tmp_path / "train-1.parquet")

        assert data.inspect(str(tmp_path)).shape == (1, 5, 5)

    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF"])
    @pytest.mark.parametrize("source", ["parquet", "image_folder"])
    def test_an_image_that_was_cut_off_is_refused_with_the_record(
        self, tmp_path: Path, source: str, kind: str
    ) -> None:
        """Its header is whole. Where images are read by index it ended a run at the step that drew it, and was charged."""
        stream = io.BytesIO()
        thumbnail = Image.new("L", (8, 8))
        exif = io.BytesIO()
        thumbnail.save(exif, format="JPEG")  # which has an end of its own
        beside = {"exif": b"Exif\0\0" + exif.getvalue()} if kind == "JPEG" else {}
        Image.fromarray(grey_images(1, side=24)[0]).save(stream, format=kind, **beside)

        def written(last: bytes) -> Path:
            whole = [stream.getvalue()] * 19
            if source == "parquet":
                held = [{"bytes": each, "path": None} for each in [*whole, last]]
                table = pa.table({"image": held, "label": [0, 1] * 10})
                pq.write_table(table, tmp_path / "a.parquet")
                return tmp_path / "a.parquet"
            for number, each in enumerate([*whole, last]):
                file = tmp_path / "images" / "ab"[number // 10] / f"{number:02}.{kind.lower()}"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(each)
            return tmp_path / "images"

        assert data.inspect(str(written(stream.getvalue()))).shape[1:] == (24, 24)
        for cut in (len(stream.getvalue()) // 2, 20):
            with pytest.raises(DatasetError, match=r"record 19.*: not a readable image"):
                data.inspect(str(written(stream.getvalue()[:-cut])))

    def test_a_file_that_is_no_parquet_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "train.parquet").write_bytes(b"not parquet at all")

        with pytest.raises(DatasetError, match="not a readable Parquet file") as error:
            data.inspect(str(tmp_path))

        assert error.value.field == "path"

    def test_a_file_of_unknown_role_beside_train_is_refused(self, image_parquet: Path) -> None:
        write_images(image_parquet / "extra.parquet", grey_images(2), [0, 1])

        with pytest.raises(DatasetError, match=r"extra\.parquet: cannot tell which split"):
            data.inspect(str(image_parquet))


class TestLabels:
    @pytest.mark.parametrize(("label", "num_classes"), [(7, 4), (-1, None)])
    def test_a_label_out_of_range_is_named_with_its_row(
        self, tmp_path: Path, label: int, num_classes: int | None
    ) -> None:
        labels = [0, 1, 2, 3] * 5
        labels[6] = label
        np.savez(tmp_path / "a.npz", x=grey_images(20), y=np.array(labels))

        with pytest.raises(DatasetError, match=f"train record 6 has label {label}; accepted: 0 to"):
            data.inspect(str(tmp_path / "a.npz"), num_classes=num_classes)

    def test_a_test_label_that_train_never_shows_is_refused(self, tmp_path: Path) -> None:
        x, y = grey_images(20), np.arange(20) % 4
        np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x[:2], y_test=np.array([0, 4]))

        with pytest.raises(DatasetError, match="test record 1 has label 4; accepted: 0 to 3"):
            data.inspect(str(tmp_path / "a.npz"))

    def test_one_class_to_train_on_is_refused_as_such_whatever_is_tested(
        self, tmp_path: Path
    ) -> None:
        x, none = grey_images(20), np.zeros(20, np.int64)
        np.savez(tmp_path / "a.npz", x_train=x, y_train=none, x_test=x[:2], y_test=np.array([0, 1]))

        with pytest.raises(DatasetError, match="at least 2 classes are needed, got num_classes 1"):
            data.inspect(str(tmp_path / "a.npz"))

    def test_labels_that_are_no_integers_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("a,label\n1,0.5\n2,1.5\n")

        with pytest.raises(DatasetError, match=r"'label' is double; .* from 0, as numpy"):
            data.inspect(str(tmp_path / "a.csv"))

    def test_labels_of_an_archive_may_be_truth_values(self, tmp_path: Path) -> None:
        x, y = grey_images(20), np.arange(20) % 4 == 0
        np.savez(tmp_path / "a.npz", x=x, y=y, x_test=x, y_test=y)

        ref = make_ref(data.inspect(str(tmp_path / "a.npz")), tmp_path / "a.npz")

        assert data.load_split(ref, "test").labels.tolist() == [1, 0, 0, 0] * 5

    def test_a_label_beyond_64_bits_is_named_as_it_was_written(self, tmp_path: Path) -> None:
        labels = np.array([0, 1] * 9 + [2**64 - 1, 0], np.uint64)
        np.savez(tmp_path / "a.npz", x=grey_images(20), y=labels)

        with pytest.raises(DatasetError, match="record 18 has label 18446744073709551615") as error:
            data.inspect(str(tmp_path / "a.npz"))

        assert error.value.field == "label"

    def test_labels_that_number_no_classes_are_refused(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", x=grey_images(20), y=np.arange(20) * 10_000)

        with pytest.raises(DatasetError, match="at most 100,000 classes") as error:
            data.inspect(str(tmp_path / "a.npz"))

        assert error.value.field == "num_classes"

    def test_negative_labels_alone_are_named_as_such(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", x=grey_images(20), y=-np.ones(20, np.int64))

        with pytest.raises(DatasetError, match="train record 0 has label -1; accepted: 0 to 1"):
            data.inspect(str(tmp_path / "a.npz"))

    def test_a_single_class_is_refused(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", x=grey_images(20), y=np.zeros(20, np.int64))

        with pytest.raises(DatasetError, match="at least 2 classes"):
            data.inspect(str(tmp_path / "a.npz"))


class TestImageFolder:
    def make(self, root: Path, classes, *, per_class: int = 10) -> Path:
        for at, name in enumerate(classes):
            (root / name).mkdir(parents=True)
            for i, image in enumerate(grey_images(per_class, seed=at)):
                Image.fromarray(image).save(root / name / f"{i:03}.png")
        return root

    def test_classes_are_numbered_by_name_and_digits_by_value(self, tmp_path: Path) -> None:
        self.make(tmp_path, ["10", "9", "2"])

        facts = data.inspect(str(tmp_path))
        train = data.load_split(make_ref(facts, tmp_path), "train")

        assert facts.source == "image_folder"
        assert facts.num_classes == 3
        shown = {image.tobytes() for image in grey_images(10, seed=2)}  # class "2" comes first
        assert all(
            (image.tobytes() in shown) == (label == 0)
            for image, label in zip(train.inputs, train.labels, strict=True)
        )

    def test_folders_of_images_within_a_class_are_told(self, tmp_path: Path) -> None:
        self.make(tmp_path, ["train/a", "train/b", "train/b/more", "test/a", "test/a/2", "test/b"])
        (tmp_path / "train/a/empty").mkdir()

        facts = data.inspect(str(tmp_path))

        assert facts.num_unread_folders == 2
        assert facts.num_train + facts.num_validation == 20

    def test_hidden_folders_and_other_files_are_no_classes_and_no_images(
        self, tmp_path: Path
    ) -> None:
        self.make(tmp_path, ["a", "b", ".thumbnails"])
        (tmp_path / "a/000.png").rename(tmp_path / "a/000.PNG")
        (tmp_path / "a/notes.txt").touch()

        facts = data.inspect(str(tmp_path))

        assert facts.num_classes == 2
        assert facts.num_train + facts.num_validation + facts.num_test == 20

    def test_train_and_test_folders_are_the_stored_parts(self, tmp_path: Path) -> None:
        self.make(tmp_path / "train", ["a", "b"])
        self.make(tmp_path / "test", ["a"], per_class=3)

        facts = data.inspect(str(tmp_path))

        assert (facts.num_train, facts.num_validation, facts.num_test) == (18, 2, 3)

    def test_a_class_that_only_test_has_is_refused(self, tmp_path: Path) -> None:
        self.make(tmp_path / "train", ["a", "b"])
        self.make(tmp_path / "test", ["c"])

        with pytest.raises(DatasetError, match="test has the class 'c'"):
            data.inspect(str(tmp_path))

    @pytest.mark.parametrize("other", ["test_masks", "TEST-2"])
    def test_two_folders_for_one_part_are_refused(self, tmp_path: Path, other: str) -> None:
        """One of them would be left out, and nobody would be told which."""
        for folder in ("train", "test", other):
            self.make(tmp_path / folder, ["a", "b"])

        with pytest.raises(DatasetError, match="both name the test part") as error:
            data.inspect(str(tmp_path))

        assert error.value.field == "path"

    def test_a_class_without_images_is_refused(self, tmp_path: Path) -> None:
        """It would take a number, and nobody would know which."""
        self.make(tmp_path, ["a", "c"])
        (tmp_path / "b").mkdir()

        with pytest.raises(DatasetError, match="class folder 'b' holds no images"):
            data.inspect(str(tmp_path))

    def test_an_image_moved_to_another_class_changes_the_content_hash(self, tmp_path: Path) -> None:
        self.make(tmp_path, ["a", "b"])
        ref = make_ref(data.inspect(str(tmp_path)), tmp_path)

        (tmp_path / "a/000.png").rename(tmp_path / "b/moved.png")

        with pytest.raises(DatasetError, match="not the one that was registered"):
            data.verify(ref)


class TestKindsOfParquet:
    """Of what is not read the kind is known all the same."""

    @pytest.mark.parametrize(
        ("stated", "first", "other"),
        [
            (
                {"column": "x", "low": 0.0, "high": 9.0},
                pa.array([1.0, 2.0] * 9),
                pa.array([b"5"] * 18),
            ),
            ({"column": "x", "choices": ["5"]}, pa.array(["5", "6"] * 9), pa.array([b"5"] * 18)),
            ("x", pa.array([1.0, 2.0] * 9), pa.array([[5.0]] * 18)),
        ],
        ids=["range", "choices", "number"],
    )
    def test_files_of_unlike_kinds_are_refused(
        self, tmp_path: Path, stated: Any, first: pa.Array, other: pa.Array
    ) -> None:
        for name, column in (("train-0", first), ("train-1", other)):
            table = pa.table({"x": column, "label": np.arange(18) % 2})
            pq.write_table(table, tmp_path / f"{name}.parquet")
        features = TypeAdapter(list[Feature]).validate_python([stated])

        kind = str(other.type).partition("<")[0]
        with pytest.raises(DatasetError, match=f"'x' is {first.type} in .*, {kind}"):
            data.inspect(str(tmp_path), features=features)

    @pytest.mark.parametrize(
        ("label", "said"),
        [
            (pa.array([[0], [1]] * 9), "column 'label' is list<"),
            (pa.array([b"0", b"1"] * 9), "column 'label' is binary"),
        ],
    )
    @pytest.mark.parametrize("beside", ["a", "image"])
    def test_labels_of_other_kinds_are_refused_by_them(
        self, tmp_path: Path, label: pa.Array, said: str, beside: str
    ) -> None:
        image = io.BytesIO()
        Image.fromarray(grey_images(1)[0]).save(image, "png")
        column = {"a": pa.array(range(18)), "image": pa.array([{"bytes": image.getvalue()}] * 18)}
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({beside: column[beside], "label": label}), path)

        with pytest.raises(DatasetError, match=said):
            data.inspect(str(path))

        pq.write_table(pa.table({beside: column[beside]}), path)
        with pytest.raises(DatasetError, match="no column 'label'"):
            data.inspect(str(path))

    def test_a_column_may_be_called_as_a_part_of_another(self, tmp_path: Path) -> None:
        table = {
            "a": pa.array([{"b": 1.0}] * 20),
            "a.b": np.arange(20.0),
            "label": np.arange(20) % 2,
        }
        pq.write_table(pa.table(table), tmp_path / "a.parquet")

        facts = data.inspect(str(tmp_path / "a.parquet"))

        assert (facts.shape, facts.unread_columns) == ((1,), ("a",))
        train = data.load_split(make_ref(facts, tmp_path / "a.parquet"), "train")
        assert len(np.unique(train.inputs)) == facts.num_train


class TestNpz:
    @pytest.mark.parametrize("name", ["x", "y"])
    def test_spans_of_time_are_no_numbers(self, tmp_path: Path, name: str) -> None:
        arrays = {"x": np.zeros((20, 3)), "y": np.arange(20) % 2}
        arrays[name] = arrays[name].astype("m8[s]")
        np.savez(tmp_path / "a.npz", **arrays)

        with pytest.raises(DatasetError, match=r"timedelta64\[s\]"):
            data.inspect(str(tmp_path / "a.npz"))

    def test_arrays_of_other_names_are_told(self, tmp_path: Path) -> None:
        """As `X_test`: what was meant to be tested on is not, and nobody would know."""
        x, y = np.zeros((20, 3), np.float32), np.arange(20) % 2
        arrays = {"x_train": x, "y_train": y, "X_test": x, "names": y, "x_test": x, "y_test": y}
        np.savez(tmp_path / "a.npz", **arrays)

        assert data.inspect(str(tmp_path / "a.npz")).unread_columns == ("X_test", "names")

    @pytest.mark.parametrize(
        ("names", "unread"),
        [
            ("X_train Y_train X_test Y_test", ()),
            ("train_images train_labels test_images test_labels", ()),
            ("images labels images_test labels_test label_names", ("label_names",)),
            ("data target data_test target_test", ()),
        ],
    )
    def test_other_collections_have_names_of_their_own(
        self, tmp_path: Path, names: str, unread: tuple[str, ...]
    ) -> None:
        x, y = np.random.default_rng(0).integers(0, 256, (20, 5, 5), np.uint8), np.arange(20) % 2
        np.savez(
            tmp_path / "a.npz", **dict(zip(names.split(), [x, y, x[:5], y[:5], y], strict=False))
        )

        facts = data.inspect(str(tmp_path / "a.npz"))

        assert (facts.num_test, facts.unread_columns) == (5, unread)
        test = data.load_split(make_ref(facts, tmp_path / "a.npz"), "test")
        np.testing.assert_array_equal(test.labels, y[:5])

    def test_of_two_names_for_the_same_none_is_taken(self, tmp_path: Path) -> None:
        x, y = np.zeros((20, 3), np.float32), np.arange(20) % 2
        np.savez(tmp_path / "a.npz", data=x, images=x, labels=y)

        with pytest.raises(
            DatasetError, match="holds images beside data; accepted: one of them, or x"
        ):
            data.inspect(str(tmp_path / "a.npz"))

    @pytest.mark.parametrize(
        ("shape", "expected"),
        [
            ((20, 6, 5), (1, 6, 5)),
            ((20, 6, 5, 3), (3, 6, 5)),
            ((20, 3, 6, 5), (3, 6, 5)),
            ((20, 1, 6, 5), (1, 6, 5)),
            ((20, 3, 5, 3), (3, 3, 5)),
        ],
    )
    def test_channels_come_first_whatever_the_layout(
        self, tmp_path: Path, shape: tuple[int, ...], expected: tuple[int, ...]
    ) -> None:
        np.savez(tmp_path / "a.npz", x=np.zeros(shape, np.uint8), y=np.arange(20) % 2)

        assert data.inspect(str(tmp_path / "a.npz")).shape == expected

    @pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint64])
    def test_pixels_stay_where_they_are(self, tmp_path: Path, kind: type) -> None:
        x = np.random.default_rng(0).integers(0, 256, (20, 4, 3, 3)).astype(kind)
        x.flat[:2] = 0, 255
        y = np.arange(20) % 2
        np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x, y_test=y)

        ref = make_ref(data.inspect(str(tmp_path / "a.npz")), tmp_path / "a.npz")
        found = data.load_split(ref, "test").inputs

        assert found.dtype == np.uint8
        assert found.flags.c_contiguous
        assert np.array_equal(np.moveaxis(found, 1, 3), x)

    def test_a_table_of_bytes_is_mapped_to_minus_one_to_one_by_its_type(
        self, tmp_path: Path
    ) -> None:
        x, y = np.array([[0, 255]] * 20, np.uint8), np.arange(20) % 2
        np.savez(tmp_path / "a.npz", x=x, y=y, x_test=x, y_test=y)

        ref = make_ref(data.inspect(str(tmp_path / "a.npz")), tmp_path / "a.npz")

        assert data.load_split(ref, "test").inputs.tolist() == [[-1, 1]] * 20

    @pytest.mark.parametrize("train", ["", "_train"])
    @pytest.mark.parametrize("validation", ["_val", "_validation"])
    def test_every_part_is_taken_by_its_name(
        self, tmp_path: Path, train: str, validation: str
    ) -> None:
        arrays = {}
        for number, suffix in enumerate((train, validation, "_test"), 1):
            arrays[f"x{suffix}"] = np.full((10 * number, 2), number / 4)
            arrays[f"y{suffix}"] = np.arange(10 * number) % 2
        np.savez(tmp_path / "a.npz", **arrays)

        ref = make_ref(data.inspect(str(tmp_path / "a.npz")), tmp_path / "a.npz")

        for number, role in enumerate(("train", "validation", "test"), 1):
            split = data.load_split(ref, role)
            assert split.inputs.tolist() == [[number / 4] * 2] * 10 * number

    @pytest.mark.parametrize(
        ("one", "other", "role"), [("", "_train", "train"), ("_val", "_validation", "validation")]
    )
    def test_two_names_for_one_part_are_refused(
        self, tmp_path: Path, one: str, other: str, role: str
    ) -> None:
        """One of them would be left out, and nobody would be told which."""
        names = {one, other, "_train" if role != "train" else one}
        arrays = {f"x{name}": np.zeros((20, 2)) for name in names}
        arrays |= {f"y{name}": np.arange(20) % 2 for name in names}
        np.savez(tmp_path / "a.npz", **arrays)

        with pytest.raises(DatasetError, match=f"beside other arrays of {role}") as error:
            data.inspect(str(tmp_path / "a.npz"))

        assert error.value.field == "path"

    @pytest.mark.parametrize("kind", [np.float64, np.float16, np.int32])
    def test_two_dimensions_are_a_table_that_enters_as_written(
        self, tmp_path: Path, kind: type
    ) -> None:
        x = np.random.default_rng(0).normal(size=(20, 3), scale=9).astype(kind)
        np.savez(tmp_path / "a.npz", x_train=x, y_train=np.arange(20) % 2, x_test=x, y_test=np.arange(20) % 2)  # fmt: skip

        ref = make_ref(data.inspect(str(tmp_path / "a.npz")), tmp_path / "a.npz")

        assert np.array_equal(data.load_split(ref, "test").inputs, x.astype(np.float32))

    def test_pickled_objects_are_refused(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", x=np.array([{}], dtype=object), y=np.array([0]))

        with pytest.raises(
            DatasetError, match=r"not a readable \.npz archive: x holds Python objects"
        ):
            data.inspect(str(tmp_path / "a.npz"))

    def test_text_of_pandas_is_refused_with_how_to_store_it(self, tmp_path: Path) -> None:
        names = np.array(["cat", "dog"] * 10, dtype=object)
        np.savez(tmp_path / "a.npz", x=grey_images(20), y=names)
        np.savez(tmp_path / "b.npz", x=grey_images(20), y=names.astype(str))

        with pytest.raises(DatasetError, match=r"y holds Python objects, .* array\.astype\(str\)"):
            data.inspect(str(tmp_path / "a.npz"), classes=["cat", "dog"])
        assert data.inspect(str(tmp_path / "b.npz"), classes=["cat", "dog"]).num_classes == 2

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"x": np.zeros((20, 5, 5), np.uint8), "y": np.zeros(19, int)}, "20 records but 19"),
            ({"x": np.zeros((20, 5, 5), np.uint8), "y": np.zeros(21, int)}, "20 records but 21"),
            ({"x": np.zeros((0, 5, 5), np.uint8), "y": np.zeros(0, int)}, "no records"),
            ({"x": np.zeros((20, 0)), "y": np.zeros(20, int)}, r"no records, got shape \[20, 0\]"),
            ({"x": np.array(1), "y": np.array(1)}, "a single number is no array of records"),
            ({"x": np.zeros((20, 2)), "y": np.array(1)}, "a single number is no array of records"),
            (
                {"x": np.full((20, 2), np.nan), "y": np.arange(20) % 2},
                "feature 0 of record 0 is nan",
            ),
            ({"x": np.full((20, 2), 1e300), "y": np.arange(20) % 2}, r"is 1e\+300, not finite"),
            ({"x": np.zeros((20, 2), complex), "y": np.arange(20)}, "got complex128"),
            ({"x": np.full((20, 2, 2), 256), "y": np.arange(20)}, "from 0 to 255, got int64"),
            ({"x": np.full((20, 2, 2), -1), "y": np.arange(20)}, "from 0 to 255, got int64"),
            ({"x": np.zeros((20, 2, 2)), "y": np.arange(20)}, "from 0 to 255, got float64"),
            ({"x": np.zeros((20, 4, 4, 4), int), "y": np.arange(20)}, "need 1 or 3 channels"),
            (
                {"x": np.zeros((20, 2)), "y": np.zeros((20, 2), int)},
                r"one integer per record, got shape \[20, 2\]",
            ),
        ],
    )
    def test_what_is_wrong_with_an_array_is_named(
        self, tmp_path: Path, arrays: dict, message: str
    ) -> None:
        np.savez(tmp_path / "a.npz", **arrays)

        with pytest.raises(DatasetError, match=message):
            data.inspect(str(tmp_path / "a.npz"))

    def test_inputs_without_their_labels_are_refused(self, tmp_path: Path) -> None:
        x, y = grey_images(20), np.arange(20) % 2
        np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x)

        with pytest.raises(DatasetError, match="holds x_test alone; accepted: x_test with y_test"):
            data.inspect(str(tmp_path / "a.npz"))

    def test_members_that_are_no_arrays_are_left_out(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("x", "hello")
            archive.writestr("y", "you")

        with pytest.raises(DatasetError, match=r"holds the arrays \[\]"):
            data.inspect(str(tmp_path / "a.npz"))

    def test_a_header_that_claims_more_than_any_memory_is_refused(self, tmp_path: Path) -> None:
        header = io.BytesIO()
        what = {"descr": "|u1", "fortran_order": False, "shape": (2**40, 28, 28)}
        np.lib.format.write_array_header_1_0(header, what)
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("x.npy", header.getvalue())

        with pytest.raises(DatasetError, match=r"not a readable \.npz"):
            data.inspect(str(tmp_path / "a.npz"))

    def test_unknown_names_are_listed(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", pictures=np.zeros(3), classes=np.zeros(3))

        with pytest.raises(DatasetError, match=r"\['classes', 'pictures'\]; accepted: x and y"):
            data.inspect(str(tmp_path / "a.npz"))


class TestTable:
    def test_numeric_columns_are_features_and_the_label_is_not(self, tmp_path: Path) -> None:
        rows = "\n".join(f"{i},n{i},{i / 10},{i % 2}" for i in range(20))
        (tmp_path / "a.csv").write_text(f"a,name,b,y\n{rows}\n")

        facts = data.inspect(str(tmp_path / "a.csv"), label="y")

        assert facts.source == "table"
        assert facts.shape == (2,)
        assert facts.unread_columns == ("name",)

    def test_features_come_in_the_order_that_was_asked_for(self, tmp_path: Path) -> None:
        rows = "\n".join(f"{i / 40},{-i / 40},{str(i % 3 == 0).lower()},{i % 2}" for i in range(40))
        (tmp_path / "train.csv").write_text(f"a,b,c,label\n{rows}\n")
        (tmp_path / "test.csv").write_text(f"a,b,c,label\n{rows}\n")

        def second(features: list[str] | None) -> list[float]:
            ref = make_ref(data.inspect(str(tmp_path), features=features), tmp_path)
            ref = ref.model_copy(update={"features": features})
            return data.load_split(ref, "test").inputs[1].tolist()

        asked = pytest.approx([-1 / 40, 0, 1 / 40])
        assert second(["b", "c", "a"]) == asked
        assert second(None) == pytest.approx([1 / 40, -1 / 40, 0])

    @pytest.mark.parametrize("suffix", ["csv", "parquet"])
    def test_parts_may_have_their_columns_in_another_order(
        self, tmp_path: Path, suffix: str
    ) -> None:
        """Of the same width they were read side by side, and a model was tested on other features than it knew."""
        for part, names in (("train", ["a", "b", "label"]), ("test", ["b", "label", "a"])):
            columns = {"a": [0.25] * 40, "b": [-0.5] * 40, "label": [0, 1] * 20}
            table = pa.table({name: columns[name] for name in names})
            if suffix == "csv":
                pa_csv.write_csv(table, tmp_path / f"{part}.csv")
            else:
                pq.write_table(table, tmp_path / f"{part}.parquet")

        ref = make_ref(data.inspect(str(tmp_path)), tmp_path)

        for part in ("train", "validation", "test"):
            assert set(map(tuple, data.load_split(ref, part).inputs.tolist())) == {(0.25, -0.5)}

    def test_the_files_of_a_part_may_write_a_column_in_unlike_ways(self, tmp_path: Path) -> None:
        """CSV tells no types: whether numbers are whole, or there at all, is of the rows of a file."""
        whole = {"a": [1] * 40, "b": [-2] * 40, "name": [None] * 40, "label": [0, 1] * 20}
        other = {"label": [0, 1] * 20, "a": [1.0] * 39 + [0.5], "b": [-2] * 40, "name": ["x"] * 40}
        for name, columns in (("train-0", whole), ("train-1", other), ("test", whole)):
            pa_csv.write_csv(pa.table(columns), tmp_path / f"{name}.csv")

        facts = data.inspect(str(tmp_path))
        ref = make_ref(facts, tmp_path)
        splits = [data.load_split(ref, part) for part in ("train", "validation")]

        assert (facts.num_train + facts.num_validation, facts.unread_columns) == (80, ("name",))
        read = sorted(map(tuple, np.concatenate([each.inputs for each in splits]).tolist()))
        assert read == [(0.5, -2.0), *[(1.0, -2.0)] * 79]

    @pytest.mark.parametrize(
        ("second", "message"),
        [
            ("a,label\n1,0\n", r"1\.csv has \['a', 'label'\], and 'b' is not in all of them"),
            ("a,b,c,label\n1,2,3,0\n", "'c' is not in all of them"),
            ("a,b,label\n1,x,0\n", r"'b' is int64 in train-0\.csv, string in train-1\.csv"),
            ("a,b,b,label\n1,2,3,0\n", r"more than one column 'b' in train-1\.csv"),
            (
                "a,b,label\n1,0.5,0\n",
                r"'b' is int64 in train-0\.csv, double in train-1\.csv; accepted: numbers, or one type \(",
            ),
        ],
    )
    def test_of_files_that_differ_the_column_is_named(
        self, tmp_path: Path, second: str, message: str
    ) -> None:
        # A number that decimals have no room for.
        (tmp_path / "train-0.csv").write_text("a,b,label\n1,9007199254740993,0\n3,4,1\n")
        (tmp_path / "train-1.csv").write_text(second)

        with pytest.raises(DatasetError, match=message) as error:
            data.inspect(str(tmp_path))

        assert error.value.field == "path"

    def test_all_types_that_a_column_has_are_named(self, tmp_path: Path) -> None:
        """Of three files the first two may well fit each other."""
        for number, cell in enumerate(("1", "0.5", "x")):
            (tmp_path / f"train-{number}.csv").write_text(f"a,label\n{cell},0\n{cell},1\n")

        with pytest.raises(
            DatasetError, match=r"int64 in .*, double in .*, string in train-2\.csv"
        ):
            data.inspect(str(tmp_path))

    def test_bytes_of_one_file_beside_numbers_of_the_next_are_refused(self, tmp_path: Path) -> None:
        """Parquet tells types, and only bytes are mapped to [-1, 1]."""
        for number, kind in enumerate((pa.uint8(), pa.int64())):
            table = pa.table({"a": pa.array([200] * 40, kind), "label": [0, 1] * 20})
            pq.write_table(table, tmp_path / f"train-{number}.parquet")

        with pytest.raises(
            DatasetError, match=r"'a' is uint8 in train-0\.parquet, int64 in train-1"
        ):
            data.inspect(str(tmp_path))

    def test_text_in_views_is_text(self, tmp_path: Path) -> None:
        words = {"owner": [f"u{row % 20}" for row in range(60)], "label": ["no", "yes"] * 30}
        columns = {name: pa.array(held, pa.string_view()) for name, held in words.items()}
        pq.write_table(pa.table({"a": np.arange(60) / 60, **columns}), tmp_path / "a.parquet")

        facts = data.inspect(
            str(tmp_path / "a.parquet"),
            classes=["no", "yes"],
            unit="owner",
            features=["a"],
        )

        assert (facts.num_classes, facts.shape) == (2, (1,))
        assert facts.num_train < facts.num_train_records

    @pytest.mark.parametrize(
        ("test", "message"),
        [
            ("a,c,label\n1,2,0\n", r"numbers are \['a', 'c'\], those of train \['a', 'b'\]"),
            ("a,b,c,label\n1,2,3,0\n", r"numbers are \['a', 'b', 'c'\]"),
            ("a,b,label\n1,x,0\n", r"numbers are \['a'\], those of train"),
        ],
    )
    def test_parts_of_other_features_are_refused(
        self, tmp_path: Path, test: str, message: str
    ) -> None:
        rows = "\n".join(f"{i / 40},1,{i % 2}" for i in range(40))
        (tmp_path / "train.csv").write_text(f"a,b,label\n{rows}\n")
        (tmp_path / "test.csv").write_text(test)

        with pytest.raises(DatasetError, match=message) as error:
            data.inspect(str(tmp_path))

        assert error.value.field == "features"
        (tmp_path / "test.csv").write_text(test.replace("x", "2"))
        assert data.inspect(str(tmp_path), features=["a"]).shape == (1,)

    @pytest.mark.parametrize("suffix", ["npz", "parquet"])
    def test_bytes_of_one_part_beside_numbers_of_another_are_refused(
        self, tmp_path: Path, suffix: str
    ) -> None:
        """Only bytes are mapped to [-1, 1]: the same value would be two."""
        kinds = {"train": np.uint8, "test": np.int64}
        y = np.arange(40) % 2
        if suffix == "npz":
            arrays = {f"x_{part}": np.full((40, 2), 200, kind) for part, kind in kinds.items()}
            np.savez(tmp_path / "a.npz", y_train=y, y_test=y, **arrays)
            path = tmp_path / "a.npz"
        else:
            path = tmp_path
            for part, kind in kinds.items():
                table = pa.table({"a": np.full(40, 200, kind), "label": y})
                pq.write_table(table, tmp_path / f"{part}.parquet")

        with pytest.raises(DatasetError, match=r"uint8.*mapped to \[-1, 1\]") as error:
            data.inspect(str(path))

        assert error.value.field == "features"

    def test_what_was_asked_for_by_name_leaves_nothing_unread(self, tmp_path: Path) -> None:
        rows = "\n".join(f"{i},n{i},u{i % 7},g{i % 2},{i % 2}" for i in range(60))
        (tmp_path / "a.csv").write_text(f"a,name,who,which,y\n{rows}\n")

        def unread(**names: Any) -> tuple[str, ...]:
            return data.inspect(str(tmp_path / "a.csv"), label="y", **names).unread_columns

        assert unread(features=["a"]) == ()
        assert unread(unit="who", group="which") == ("name",)

    def test_features_that_go_far_are_named(self, tmp_path: Path) -> None:
        rows = "\n".join(f"{i % 11},{-i},{i / 2},n{i},{i % 2}" for i in range(40))
        (tmp_path / "a.csv").write_text(f"near,a,b,name,y\n{rows}\n")
        np.savez(tmp_path / "a.npz", x=np.eye(40, 3) * [1, 11, -11], y=np.arange(40) % 2)

        assert data.inspect(str(tmp_path / "a.csv"), label="y").far_features == ("a", "b")
        assert data.inspect(
            str(tmp_path / "a.csv"), label="y", features=["b", "near"]
        ).far_features == ("b",)
        assert data.inspect(str(tmp_path / "a.npz")).far_features == ("1", "2")

    def test_classes_without_a_record_are_told_where_nobody_said_how_many_there_are(
        self, tmp_path: Path
    ) -> None:
        rows = "\n".join(f"0.5,{1 + i % 2 * 2}" for i in range(40))
        (tmp_path / "a.csv").write_text(f"a,y\n{rows}\n")

        def unseen(**stated: Any) -> tuple[int, ...]:
            return data.inspect(str(tmp_path / "a.csv"), label="y", **stated).unseen_classes

        assert unseen() == (0, 2)
        assert unseen(num_classes=5) == ()

    def test_values_of_other_records_do_not_change_a_record(self, tmp_path: Path) -> None:
        """Scaling by a statistic of the data would be a release of its own."""
        loaded = []
        for name, last in (("a", 1.0), ("b", 1e6)):
            (tmp_path / name).mkdir()
            values = [*np.linspace(0, 1, 19), last]
            table = pa.table({"x": values, "label": [i % 2 for i in range(20)]})
            for part in ("train", "test"):
                pq.write_table(table, tmp_path / name / f"{part}.parquet")
            ref = make_ref(data.inspect(str(tmp_path / name)), tmp_path / name)
            loaded.append(data.load_split(ref, "test").inputs[:19])

        assert np.array_equal(*loaded)

    @pytest.mark.parametrize("other", ["7", "0.5", str(2**63)])
    def test_nor_does_how_they_are_written(self, tmp_path: Path, other: str) -> None:
        """Decimals of one record were the last digits of all others."""
        rows = "".join(
            f"{cell},{row % 2}\n" for row, cell in enumerate([2**60 + 2**36 + 1] + [other] * 59)
        )
        (tmp_path / "a.csv").write_text(f"a,label\n{rows}")

        parts = read_table(tmp_path / "a.csv", Columns())

        assert parts["train"].inputs.load(np.array([0])) == np.float32(2**60)

    def test_bytes_are_mapped_to_minus_one_to_one_by_their_type(self, tmp_path: Path) -> None:
        table = pa.table({"x": pa.array([0, 255] * 10, pa.uint8()), "label": [0, 1] * 10})
        pq.write_table(table, tmp_path / "test.parquet")
        pq.write_table(table, tmp_path / "train.parquet")

        ref = make_ref(data.inspect(str(tmp_path)), tmp_path)

        assert set(data.load_split(ref, "test").inputs.ravel().tolist()) == {-1.0, 1.0}

    def test_truth_values_are_labels(self, tmp_path: Path) -> None:
        rows = [f"{row},{word}" for row, word in enumerate(["true", "false"] * 20)]
        (tmp_path / "words.csv").write_text("\n".join(["a,label", *rows]))
        numbers = [row.replace("true", "1").replace("false", "0") for row in rows]
        (tmp_path / "numbers.csv").write_text("\n".join(["a,label", *numbers]))

        words, expected = (
            data.load_split(dataset_ref(data.inspect(str(file)), path=file), "train")
            for file in (tmp_path / "words.csv", tmp_path / "numbers.csv")
        )

        assert words.labels.tolist() == expected.labels.tolist()
        assert {*words.labels.tolist()} == {0, 1}

    @pytest.mark.parametrize(
        ("text", "features", "field", "message"),
        [
            (
                "a,label\n1,0\n,1\n",
                None,
                "features",
                "'a' of record 1 is empty, as in 1 of 2 records; .* a range that is stated",
            ),
            ("a,label\n1,0\ninf,1\n", None, "features", "'a' of record 1 is inf"),
            ("a,label\n1,0\n2,1\n", ["z"], "features", "'z' is not a feature column"),
            ("a,label\n1,0\n2,1\n", ["label"], "features", "'label' is not a feature column"),
            ("a,label\nx,0\ny,1\n", ["a"], "features", "'a' is string"),
            ("a,label\nx,0\ny,1\n", None, "features", "no numeric column"),
            ("a,label\n", None, "path", "no records"),
            ("a,label\n1,0\n2\n", None, "path", "not a readable CSV"),
            ("a,label\n1,0\n1,2,3\n", None, "path", "not a readable CSV"),
            ("a,label\n1e300,0\n", None, "features", r"record 0 is 1e\+300, not finite in float32"),
            ("a,a,label\n1,2,0\n", None, "path", "more than one column 'a'"),
            ("a,label,label\n1,2,0\n", None, "path", "more than one column 'label'"),
            ("a,label\n1,0.5\n", None, "label", "'label' is double; .*, or truth values"),
            ("a,label\n1,true\n2,\n", None, "label", "'label' of record 1 is empty"),
            ("a,label\n1,-1\n", None, "label", "record 0 has label -1"),
        ],
    )
    def test_what_is_wrong_with_a_table_is_named(
        self, tmp_path: Path, text: str, features, field: str, message: str
    ) -> None:
        (tmp_path / "a.csv").write_text(text)

        with pytest.raises(DatasetError, match=message) as error:
            data.inspect(str(tmp_path / "a.csv"), features=features)

        assert error.value.field == field

    @pytest.mark.parametrize("between", [";", "\t"])
    def test_a_table_without_commas_is_refused_with_what_is_wrong(
        self, tmp_path: Path, between: str
    ) -> None:
        (tmp_path / "a.csv").write_text("a,label\n1,0\n2,1\n".replace(",", between))

        with pytest.raises(DatasetError, match=r"no column 'label'; .* commas between columns$"):
            data.inspect(str(tmp_path / "a.csv"))

    def test_a_header_that_is_no_utf8_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("größe,label\n1,0\n", encoding="latin-1")
        pq.write_table(pa.table({"size": [1.0], "label": [0]}), tmp_path / "a.parquet")
        named = (tmp_path / "a.parquet").read_bytes().replace(b"size", "größ".encode("latin-1"))
        (tmp_path / "a.parquet").write_bytes(named)

        for kind, suffix in (("CSV", "csv"), ("Parquet", "parquet")):
            with pytest.raises(DatasetError, match=f"not a readable {kind}"):
                data.inspect(str(tmp_path / f"a.{suffix}"))

    @pytest.mark.parametrize(
        ("read", "field"),
        [
            ({"label": "city", "classes": ["Köln"]}, "label"),
            ({"unit": "city"}, "unit"),
            ({"group": "city"}, "group"),
            ({"features": [ChoiceColumn(column="city", choices=["Köln"])]}, "features"),
        ],
    )
    def test_text_that_is_no_utf8_is_refused_where_it_is_read(
        self, tmp_path: Path, read: dict[str, Any], field: str
    ) -> None:
        city = pa.array(["Köln".encode("latin-1")] * 60, pa.binary()).view(pa.string())
        columns = {"a": np.arange(60) / 60, "city": city, "label": np.arange(60) % 2}
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        assert data.inspect(str(tmp_path / "a.parquet")).unread_columns == ("city",)

        with pytest.raises(
            DatasetError, match="column 'city' holds text that is not UTF-8"
        ) as refused:
            data.inspect(str(tmp_path / "a.parquet"), **read)

        assert refused.value.field == field


def spoiled(content: bytes, seed: int) -> bytes:
    """With a few bytes overwritten, and now and then cut short."""
    generator = np.random.default_rng(seed)
    out = bytearray(content)
    for at in generator.integers(0, len(out), 4):
        out[at] = generator.integers(256)
    return bytes(out if seed % 4 else out[: generator.integers(1, len(out))])


class TestTwoKinds:
    """Of CSV beside Parquet one was read, and the other was missed by nobody: a test part, say, that lay there."""

    @pytest.mark.parametrize("source", [None, "table"])
    def test_a_table_is_of_one_kind_of_file(self, tmp_path: Path, source: str | None) -> None:
        rows = "".join(f"{row},{row % 2}\n" for row in range(60))
        (tmp_path / "train.csv").write_text(f"a,label\n{rows}")
        pq.write_table(pa_csv.read_csv(tmp_path / "train.csv"), tmp_path / "test.parquet")
        told = r"holds CSV and Parquet files, such as train\.csv and test\.parquet; accepted: "
        with pytest.raises(DatasetError, match=told) as caught:
            data.inspect(str(tmp_path), source=source)
        assert caught.value.field == "path"
        (tmp_path / "test.parquet").rename(tmp_path / "test.parquet.bak")
        assert data.inspect(str(tmp_path), source=source).num_test == 12

    def test_images_in_parquet_may_have_a_table_beside_them(self, tmp_path: Path) -> None:
        image_shards(tmp_path)
        (tmp_path / "classes.csv").write_text("number,name\n0,cat\n1,dog\n")
        with pytest.raises(DatasetError, match="source parquet"):
            data.inspect(str(tmp_path))
        assert data.inspect(str(tmp_path), source="parquet").source == "parquet"


class TestSpoiledFiles:
    """Whatever is in a file, it is read or refused by name; no other error gets out."""

    @pytest.mark.parametrize("suffix", [".parquet", ".npz", ".csv"])
    def test_any_file(self, tmp_path: Path, suffix: str) -> None:
        whole, broken = tmp_path / f"whole{suffix}", tmp_path / f"broken{suffix}"
        match suffix:
            case ".parquet":
                write_images(whole, grey_images(20), [0, 1] * 10)
            case ".npz":
                np.savez_compressed(whole, x=grey_images(20), y=np.arange(20) % 2)
            case _:
                whole.write_text("a,label\n" + "".join(f"{i / 7},{i % 2}\n" for i in range(20)))

        for seed in range(60):
            broken.write_bytes(spoiled(whole.read_bytes(), seed))
            with contextlib.suppress(DatasetError):
                data.load_split(make_ref(data.inspect(str(broken)), broken), "train")

    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF"])
    def test_any_image(self, tmp_path: Path, kind: str) -> None:
        stream = io.BytesIO()
        Image.fromarray(grey_images(1, side=24)[0]).save(stream, format=kind)

        for seed in range(30):
            image = {"bytes": spoiled(stream.getvalue(), seed), "path": ""}
            table = pa.table({"image": [image] * 10, "label": [0, 1] * 5})
            pq.write_table(table, tmp_path / "a.parquet")
            with contextlib.suppress(DatasetError):
                file = tmp_path / "a.parquet"
                data.load_split(make_ref(data.inspect(str(file)), file), "train")


class TestInspect:
    def test_what_is_neither_file_nor_folder_is_refused(self, tmp_path: Path) -> None:
        """To open a pipe would wait for whoever writes to it."""
        os.mkfifo(tmp_path / "a.csv")

        with pytest.raises(DatasetError, match="neither a file nor a folder"):
            data.inspect(str(tmp_path / "a.csv"))

    @pytest.mark.parametrize(
        "argument", [{"num_classes": 0}, {"num_classes": 2.5}, {"split_seed": -1}, {"split_seed": 2**70}]
    )  # fmt: skip
    def test_a_number_out_of_its_domain_is_named(self, argument: dict) -> None:
        with pytest.raises(ParameterError) as error:
            data.inspect(None, source="digits", **argument)

        assert error.value.field in argument

    def test_a_path_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match="no such file or folder") as error:
            data.inspect(str(tmp_path / "nowhere"))

        assert error.value.field == "path"

    def test_an_empty_folder_and_an_empty_file_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "a.csv").touch()

        for name in ("folder", "a.csv"):
            with pytest.raises(DatasetError, match="is empty"):
                data.inspect(str(tmp_path / name))

    def test_an_unknown_source_lists_the_known_ones(self) -> None:
        with pytest.raises(DatasetError, match="source must be one of") as error:
            data.inspect(None, source="tfrecord")

        assert error.value.field == "source"

    def test_no_path_and_no_source_is_refused(self) -> None:
        with pytest.raises(DatasetError, match="a path is needed"):
            data.inspect(None)

    def test_too_few_records_to_cut_a_split_are_refused(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", x=grey_images(4), y=np.arange(4) % 2)

        with pytest.raises(DatasetError, match="4 train records are too few to cut a"):
            data.inspect(str(tmp_path / "a.npz"))

    def test_the_content_hash_follows_the_bytes_and_not_the_file_names(
        self, tmp_path: Path
    ) -> None:
        first = write_images(tmp_path / "a/train.parquet", grey_images(20), [0, 1] * 10)
        renamed = tmp_path / "b/train-renamed.parquet"
        renamed.parent.mkdir()
        renamed.write_bytes(first.read_bytes())
        other = write_images(tmp_path / "c/train.parquet", grey_images(20, seed=1), [0, 1] * 10)

        hashes = [data.inspect(str(f.parent)).content_sha256 for f in (first, renamed, other)]

        assert hashes[0] == hashes[1]
        assert hashes[0] != hashes[2]

    def test_the_content_hash_follows_the_order_in_which_files_are_read(
        self, tmp_path: Path
    ) -> None:
        """Which records are cut off for a split, and whose a kept one is, goes by their place."""
        names = {
            "stored": ("train-2", "train-10"),
            "padded": ("train-02", "train-10"),
            "renamed": ("train-b", "train-a"),
        }
        for folder, files in names.items():
            for seed, name in enumerate(files):
                write_images(
                    tmp_path / folder / f"{name}.parquet", grey_images(20, seed=seed), [0, 1] * 10
                )
        stored = make_ref(data.inspect(str(tmp_path / "stored")), tmp_path / "stored")

        data.verify(stored.model_copy(update={"path": str(tmp_path / "renamed")}))
        with pytest.raises(DatasetError, match="must stay in the order of their names") as error:
            data.verify(stored.model_copy(update={"path": str(tmp_path / "padded")}))

        assert error.value.field == "content_sha256"

    def test_swapped_roles_change_the_content_hash_and_not_the_digests_of_the_files(
        self, tmp_path: Path
    ) -> None:
        stored, swapped = tmp_path / "stored", tmp_path / "swapped"
        swapped.mkdir()
        for at, (old, new) in enumerate((("train", "test"), ("test", "train-00000-of-00001"))):
            file = write_images(stored / f"{old}.parquet", grey_images(20, seed=at), [0, 1] * 10)
            (swapped / f"{new}.parquet").write_bytes(file.read_bytes())

        first, second = (data.inspect(str(path)) for path in (stored, swapped))

        assert first.content_sha256 != second.content_sha256
        assert first.file_sha256 == second.file_sha256
        assert list(first.file_sha256) == sorted(
            hashlib.sha256(file.read_bytes()).hexdigest() for file in stored.iterdir()
        )

    def test_one_file_alone_has_the_digest_it_has_in_its_folder(self, image_parquet: Path) -> None:
        whole = data.inspect(str(image_parquet))
        alone = data.inspect(str(image_parquet / "train.parquet"))

        (digest,) = alone.file_sha256
        assert whole.files[digest] == alone.files[digest] == "train.parquet"

    def test_equal_files_of_one_dataset_count_once_under_the_first_name(
        self, image_parquet: Path
    ) -> None:
        content = (image_parquet / "train.parquet").read_bytes()
        (image_parquet / "train-again.parquet").write_bytes(content)

        facts = data.inspect(str(image_parquet))

        assert sorted(facts.files.values()) == ["test.parquet", "train-again.parquet"]
        assert facts.num_train + facts.num_validation == 80

    def test_every_image_of_a_folder_is_a_file_whatever_its_class(self, tmp_path: Path) -> None:
        for at, image in enumerate(grey_images(20)):
            for folder, label in (("a", at % 2), ("b", 1 - at % 2)):
                file = tmp_path / folder / str(label) / f"{folder}{at}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(png(image))

        first, relabelled = (data.inspect(str(tmp_path / folder)) for folder in "ab")

        assert len(first.file_sha256) == 20
        assert first.file_sha256 == relabelled.file_sha256
        assert "0/a0.png" in first.files.values()

    def test_digits_count_as_one_file(self) -> None:
        facts = data.inspect(None, source="digits")

        assert facts.files == {facts.content_sha256: "digits"}


class TestLoadSplit:
    def test_the_cache_gives_the_same_split_and_survives_the_source(
        self, image_parquet: Path, tmp_path: Path
    ) -> None:
        ref = make_ref(data.inspect(str(image_parquet)), image_parquet)
        decoded = data.load_split(ref, "train", cache_dir=tmp_path / "cache")
        (image_parquet / "train.parquet").unlink()

        cached = data.load_split(ref, "train", cache_dir=tmp_path / "cache")

        assert np.array_equal(cached.inputs, decoded.inputs)
        assert np.array_equal(cached.labels, decoded.labels)
        assert {file.stat().st_mode & 0o077 for file in (tmp_path / "cache").iterdir()} == {0}

    def test_what_was_made_otherwise_is_kept_elsewhere(self, image_parquet: Path) -> None:
        """Of one name, records of test would be read as train."""
        plain = make_ref(data.inspect(str(image_parquet)), image_parquet)
        changes: list[dict[str, Any]] = [
            {},
            {"content_sha256": "1" * 64},
            {"label": "other"},
            {"features": ["a", "b"]},
            {"features": ["b", "a"]},
            {"features": ["a"]},
            {"split_seed": 1},
            {"unit": "who", "records_per_unit": 16},
            {"unit": "who", "records_per_unit": 4},
            {"unit": "whose", "records_per_unit": 16},
            {"group": "sex"},
            {"group": "age"},
            {"classes": ["a", "b"]},
            {"classes": ["b", "a"]},
            {"source": "table"},
        ]

        files = {
            cache_file(Path("kept"), plain.model_copy(update=change), split, *made_by)
            for change in changes
            for split in ("train", "validation", "test")
            for made_by in ((), ("features of one model",), ("features of another",))
        }

        assert len(files) == len(changes) * 3 * 3

    def test_one_content_is_kept_once_whatever_it_is_called(self, image_parquet: Path) -> None:
        ref = make_ref(data.inspect(str(image_parquet)), image_parquet)
        moved = ref.model_copy(update={"name": "again", "path": "/elsewhere", "public": True})

        assert cache_file(Path(), moved, "train") == cache_file(Path(), ref, "train")

    def test_images_and_the_numbers_beside_them_are_two_datasets(self, tmp_path: Path) -> None:
        file = write_images(tmp_path / "a.parquet", grey_images(30), [n % 2 for n in range(30)])
        numbers = pa.array([n / 30 for n in range(30)])
        pq.write_table(pq.read_table(file).append_column("x", numbers), file)

        shapes = [
            data.load_split(
                make_ref(data.inspect(str(file), source=source), file),
                "train",
                cache_dir=tmp_path / "kept",
            ).inputs.shape[1:]
            for source in ("parquet", "table")
        ]

        assert shapes == [(1, 5, 5), (1,)]

    def test_two_processes_that_read_at_once_find_the_same(
        self, image_parquet: Path, tmp_path: Path
    ) -> None:
        ref = make_ref(data.inspect(str(image_parquet)), image_parquet)
        script = (
            "import sys; from pathlib import Path; from tan_core import data, wire; "
            "ref = wire.DatasetRef.model_validate_json(sys.argv[1]); "
            "print(data.load_split(ref, 'train', cache_dir=Path(sys.argv[2])).inputs.sum())"
        )
        command = [sys.executable, "-c", script, ref.model_dump_json(), str(tmp_path / "cache")]

        readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in "ab"]
        sums = {reader.communicate(timeout=60)[0].strip() for reader in readers}

        assert sums == {str(data.load_split(ref, "train").inputs.sum())}
        assert not list((tmp_path / "cache").glob("*.tmp"))

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
    def test_a_full_disk_is_named_and_half_a_split_never_read(
        self, image_parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref = make_ref(data.inspect(str(image_parquet)), image_parquet)

        opened = os.open

        def full(file: Path, *rest: int) -> int:
            return opened("/dev/full" if file.suffix == ".tmp" else file, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", full)
            with pytest.raises(DatasetError, match="No space") as error:
                data.load_split(ref, "train", cache_dir=tmp_path / "cache")

        assert error.value.field == "cache_dir"
        read = data.load_split(ref, "train", cache_dir=tmp_path / "cache")
        assert np.array_equal(read.inputs, data.load_split(ref, "train").inputs)

    @pytest.mark.parametrize("kept", [0, 50, 1000])
    @pytest.mark.parametrize("labels", [False, True])
    def test_a_damaged_cache_is_named(
        self, image_parquet: Path, tmp_path: Path, kept: int, labels: bool
    ) -> None:
        ref = make_ref(data.inspect(str(image_parquet)), image_parquet)
        data.load_split(ref, "train", cache_dir=tmp_path / "cache")
        (file,) = [
            file
            for file in (tmp_path / "cache").glob("*.npy")
            if (".labels" in file.name) is labels
        ]
        file.write_bytes(file.read_bytes()[: min(kept, file.stat().st_size - 1)])

        with pytest.raises(DatasetError, match="what is kept is damaged, delete it") as error:
            data.load_split(ref, "train", cache_dir=tmp_path / "cache")

        assert error.value.field == "cache_dir"

    def test_a_split_that_there_is_not_is_named(self, image_parquet: Path) -> None:
        ref = make_ref(data.inspect(str(image_parquet)), image_parquet)

        with pytest.raises(DatasetError, match=r"split must be one of .*, got 'dev'") as error:
            data.load_split(ref, "dev")  # type: ignore[arg-type]

        assert error.value.field == "split"

    def test_data_that_shrank_since_registration_is_refused(self, image_parquet: Path) -> None:
        ref = make_ref(data.inspect(str(image_parquet)), image_parquet)
        write_images(image_parquet / "train.parquet", grey_images(30), [i % 4 for i in range(30)])

        with pytest.raises(DatasetError, match="train has 27 records, registered were 36"):
            data.load_split(ref, "train")

    @pytest.mark.parametrize("part", ["train", "test"])
    def test_data_that_grew_since_registration_are_refused(
        self, image_parquet: Path, part: str
    ) -> None:
        ref = make_ref(data.inspect(str(image_parquet)), image_parquet)
        write_images(image_parquet / f"{part}.parquet", grey_images(50), [i % 4 for i in range(50)])

        with pytest.raises(DatasetError, match=f"{part} has [0-9]+ records, registered were"):
            data.load_split(ref, part)

    @pytest.mark.parametrize("in_memory_bytes", [0, 2**30])
    def test_a_label_that_came_since_registration_is_refused(
        self, image_parquet: Path, tmp_path: Path, in_memory_bytes: int
    ) -> None:
        storage = data.Storage(data.Store(tmp_path / "kept"), in_memory_bytes=in_memory_bytes)
        ref = make_ref(data.inspect(str(image_parquet)), image_parquet)
        write_images(image_parquet / "test.parquet", grey_images(8), [4, *[0] * 7])

        with pytest.raises(DatasetError, match="test record 0 has label 4; accepted: 0 to 3"):
            data.load_split(ref, "test", storage=storage)

    def test_images_of_another_size_than_registered_are_refused(self, image_parquet: Path) -> None:
        ref = make_ref(data.inspect(str(image_parquet)), image_parquet)
        write_images(image_parquet / "test.parquet", grey_images(8, side=6), [0, 1] * 4)

        with pytest.raises(
            DatasetError, match=r"have shape \[1, 6, 6\], registered was \[1, 5, 5\]"
        ):
            data.load_split(ref, "test")

    def test_verify_accepts_what_was_registered_and_refuses_a_changed_byte(
        self, image_parquet: Path
    ) -> None:
        ref = make_ref(data.inspect(str(image_parquet)), image_parquet)
        data.verify(ref)
        with (image_parquet / "test.parquet").open("r+b") as stream:
            stream.seek(100)
            stream.write(b"\xff\x00\xff")

        with pytest.raises(DatasetError) as error:
            data.verify(ref)

        assert error.value.field == "content_sha256"


@pytest.mark.skipif(not MNIST.is_dir(), reason=f"no MNIST at {MNIST}; set TAN_DATA_DIR")
class TestMnist:
    @pytest.mark.slow
    def test_every_image_arrives_in_its_split(self) -> None:
        facts = data.inspect(str(MNIST))
        test = data.load_split(make_ref(facts, MNIST), "test")

        assert facts.shape == (1, 28, 28)
        assert (facts.num_train, facts.num_validation, facts.num_test) == (54_000, 6_000, 10_000)
        assert test.inputs.shape == (10_000, 1, 28, 28)
        assert test.inputs.mean() == pytest.approx(33.79, abs=0.01)


class TestWeight:
    def test_importing_the_room_loads_no_torch(self) -> None:
        script = "import sys, tan_core.data; sys.exit('torch' in sys.modules)"

        assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
