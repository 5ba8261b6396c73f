"""What labels mean, where the files of a dataset say so."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tan_core import data
from tan_core.errors import DatasetError
from tests.support.datasets import dataset_ref
from tests.support.image_files import png


def images(folder: Path, names: list[str]) -> Path:
    for name in names:
        (folder / "train" / name).mkdir(parents=True)
        for number in range(12):
            pixels = np.full((4, 4), number, np.uint8)
            (folder / "train" / name / f"{number}.png").write_bytes(png(pixels))
    return folder


def parquet(file: Path, about: Any, *, has_images: bool = True) -> Path:
    """Three classes, with what ``datasets`` writes beside a schema; None: nothing."""
    rows = range(30)
    pixels = [{"bytes": png(np.full((4, 4), row, np.uint8)), "path": None} for row in rows]
    inputs = {"image": pixels} if has_images else {"width": [row / 30 for row in rows]}
    table = pa.table({**inputs, "label": pa.array([row % 3 for row in rows], pa.int64())})
    if about is not None:
        text = about if isinstance(about, str) else json.dumps(about)
        table = table.replace_schema_metadata({"huggingface": text})
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, file)
    return file


def features(names: Any) -> dict[str, Any]:
    return {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}


def names_of(path: Path | None, *, public: bool = True, **stated: Any) -> list[str] | None:
    source = "digits" if path is None else None
    found = data.inspect(None if path is None else str(path), source=source, **stated)
    ref = dataset_ref(found, path=path).model_copy(update={"public": public})
    return data.class_names(ref)


def test_folders_of_private_data_tell_nothing_and_their_schemas_do(tmp_path: Path) -> None:
    assert names_of(images(tmp_path / "people", ["ann", "bob"]), public=False) is None
    file = parquet(tmp_path / "train.parquet", features(["a", "b", "c"]))
    assert names_of(file, public=False) == ["a", "b", "c"]


def test_class_folders_are_named_in_the_order_of_their_labels(tmp_path: Path) -> None:
    assert names_of(images(tmp_path / "words", ["dog", "cat"])) == ["cat", "dog"]
    assert names_of(images(tmp_path / "digits", ["10", "9", "2"])) == ["2", "9", "10"]


@pytest.mark.parametrize("has_images", [True, False])
def test_what_hugging_face_says_of_the_label_is_read(tmp_path: Path, has_images: bool) -> None:
    names = ["airplane", "automobile", "été"]
    file = parquet(tmp_path / "train.parquet", features(names), has_images=has_images)
    assert names_of(file) == names
    assert names_of(tmp_path) == names


NO_NAMES = {
    "nothing": None,
    "no JSON": "{",
    "nested without end": "[" * 100_000,
    "a list": [],
    "no features": {"info": None},
    "other columns": {"info": {"features": {}}},
    "no names": features(None),
    "a word": features("abc"),
    "numbers": features([1, 2, 3]),
    "too few": features(["a", "b"]),
    "too many": features(["a", "b", "c", "d"]),
    "what steers a terminal": features(["a", "b", "c\x1b[2J"]),
    "a book": features(["a", "b", "c" * 1_000_001]),
}


@pytest.mark.parametrize("about", NO_NAMES.values(), ids=NO_NAMES)
def test_other_names_are_none(tmp_path: Path, about: Any) -> None:
    assert names_of(parquet(tmp_path / "train.parquet", about)) is None


def test_folders_do_not_tell_which_of_the_stated_classes_have_records(tmp_path: Path) -> None:
    assert names_of(images(tmp_path, ["cat", "dog"]), num_classes=3) is None


def test_other_sources_name_no_classes(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text("x,label\n" + "".join(f"{row / 30},{row % 2}\n" for row in range(30)))
    arrays = tmp_path / "arrays.npz"
    np.savez(arrays, x=np.zeros((30, 2), np.float32), y=np.arange(30) % 2)
    assert [names_of(each) for each in (file, arrays, None)] == [None] * 3


def test_names_of_two_classes_are_not_one_name(tmp_path: Path) -> None:
    assert names_of(parquet(tmp_path / "train.parquet", features(["a", "b", "a"]))) is None


class TestNamed:
    """Classes that were named when the dataset was registered."""

    def table(self, folder: Path, labels: list[str], name: str = "train") -> Path:
        rows = [f"{row / 30},{labels[row % len(labels)]}" for row in range(30)]
        file = folder / f"{name}.csv"
        file.write_text("\n".join(["x,label", *rows]) + "\n")
        return file

    def labels(self, path: Path, classes: list[str], **stated: Any) -> list[int]:
        """Of train as a worker reads it, where all of it is train."""
        found = data.inspect(str(path), classes=classes, **stated)
        assert found.num_classes == len(classes)
        ref = dataset_ref(found, path=path, classes=classes)
        assert data.class_names(ref) == classes
        return data.load_split(ref, "train").labels.tolist()

    def whole(self, folder: Path, make: Any) -> Path:
        """The same as train, validation and test, so that nothing is cut from train."""
        for name in ("train", "validation", "test"):
            make(name)
        return folder

    @pytest.mark.parametrize("classes", [["no", "yes", "who knows"], ["yes", "who knows", "no"]])
    def test_text_is_numbered_by_them(self, tmp_path: Path, classes: list[str]) -> None:
        of = ["yes", "no", "yes", "who knows", "no"]
        folder = self.whole(tmp_path, lambda name: self.table(tmp_path, of, name))
        assert self.labels(folder, classes) == [classes.index(name) for name in of * 6]

    def test_categories_of_parquet_are_text_or_numbers(self, tmp_path: Path) -> None:
        text, numbers = tmp_path / "text.parquet", tmp_path / "numbers.parquet"
        column = pa.array(["b", "a"] * 15).dictionary_encode()
        pq.write_table(pa.table({"x": np.arange(30) / 30, "label": column}), text)
        column = pa.array([1, 0] * 15).dictionary_encode()
        pq.write_table(pa.table({"x": np.arange(30) / 30, "label": column}), numbers)
        assert set(self.labels(text, ["a", "b"])) == set(self.labels(numbers, ["a", "b"])) == {0, 1}
        found = data.inspect(str(numbers))
        assert found.num_classes == 2

    def test_beside_images_too(self, tmp_path: Path) -> None:
        def make(name: str) -> None:
            pixels = [
                {"bytes": png(np.full((4, 4), row, np.uint8)), "path": None} for row in range(6)
            ]
            labels = ["cat", "dog", "cat", "cat", "dog", "cat"]
            pq.write_table(
                pa.table({"image": pixels, "label": labels}), tmp_path / f"{name}.parquet"
            )

        assert self.labels(self.whole(tmp_path, make), ["dog", "cat"]) == [1, 0, 1, 1, 0, 1]

    def test_text_of_an_archive_is_numbered_by_them(self, tmp_path: Path) -> None:
        file = tmp_path / "a.npz"
        of = np.array(["no", "yes", "no"])
        np.savez(
            file,
            **{
                f"{part}_{role}": values
                for role in ("train", "val", "test")
                for part, values in (("x", np.zeros((3, 2))), ("y", of))
            },
        )
        assert self.labels(file, ["yes", "no"]) == [1, 0, 1]
        with pytest.raises(DatasetError, match=r"labels are text: name their classes") as error:
            data.inspect(str(file))
        assert error.value.field == "classes"

    def test_class_folders_are_numbered_by_them_and_one_may_be_missing(
        self, tmp_path: Path
    ) -> None:
        folder = images(tmp_path, ["cat", "dog"])
        classes = ["dog", "bird", "cat"]
        assert set(self.labels(folder, classes)) == {0, 2}
        with pytest.raises(
            DatasetError, match=r"train has the class 'cat' that is none of"
        ) as error:
            data.inspect(str(folder), classes=["dog", "bird"])
        assert error.value.field == "classes"

    def test_whole_numbers_keep_their_meaning_where_no_class_is_called_so(
        self, tmp_path: Path
    ) -> None:
        folder = self.whole(tmp_path, lambda name: self.table(tmp_path, ["1", "0"], name))
        assert self.labels(folder, ["no", "yes"]) == [1, 0] * 15
        assert self.labels(folder, ["yes", "no"]) == [1, 0] * 15

    @pytest.mark.parametrize(
        ("written", "classes", "labels"),
        [
            (["1", "2", "1"], ["1", "2", "other"], [0, 1, 0]),
            (["1", "2", "other"], ["1", "2", "other"], [0, 1, 2]),
            (["1", "0"], ["1", "0"], [0, 1]),
            (["10", "2"], ["2", "10"], [1, 0]),
            (["01", "1", " +2"], ["1", "2"], [0, 0, 1]),
            (["01", "1"], ["1", "01"], [1, 0]),
            (["true", "false"], ["true", "false", "unknown"], [0, 1]),
            (["0.5", "1.5"], ["0.5", "1.5", "more"], [0, 1]),
            (["2020-01-01", "2021-01-01"], ["2020-01-01", "2021-01-01", "later"], [0, 1]),
            (["NA", "NA"], ["NA", "yes"], [0, 0]),
        ],
    )
    def test_a_class_of_csv_that_is_called_as_a_number_is_known_by_that_name_in_every_record(
        self, tmp_path: Path, written: list[str], classes: list[str], labels: list[int]
    ) -> None:
        """Were the column numbers while no record holds a word, one more record would move all others."""
        folder = self.whole(tmp_path, lambda name: self.table(tmp_path, written, name))
        assert self.labels(folder, classes) == labels * (30 // len(labels))

    def test_a_number_that_no_class_is_called_is_refused_beside_numbers(
        self, tmp_path: Path
    ) -> None:
        with pytest.raises(DatasetError, match="record 1 has the label '0'; accepted") as error:
            data.inspect(str(self.table(tmp_path, ["1", "0"])), classes=["1", "2", "other"])
        assert error.value.field == "label"

    def test_whole_numbers_of_parquet_have_a_type_and_keep_their_meaning(
        self, tmp_path: Path
    ) -> None:
        table = pa.table({"x": np.arange(30) / 30, "label": [1, 0] * 15})
        folder = self.whole(
            tmp_path, lambda name: pq.write_table(table, tmp_path / f"{name}.parquet")
        )
        assert self.labels(folder, ["1", "0"]) == [1, 0] * 15

    def test_two_ways_to_number_text_are_not_kept_as_one(self, tmp_path: Path) -> None:
        folder = self.whole(tmp_path, lambda name: self.table(tmp_path, ["a", "b"], name))
        kept = tmp_path / "kept"
        for classes in (["a", "b"], ["b", "a"]):
            found = data.inspect(str(folder), classes=classes)
            ref = dataset_ref(found, path=folder, classes=classes)
            labels = data.load_split(ref, "train", cache_dir=kept).labels
            assert labels[0] == classes.index("a")

    @pytest.mark.parametrize(
        ("labels", "stated", "field", "message"),
        [
            (["no", "yes"], {}, "classes", "labels are text: name their classes"),
            (["no", " yes"], {"classes": ["no", "yes"]}, "label", "record 1 has the label ' yes'"),
            (
                ["no", "NO"],
                {"classes": ["no", "yes"]},
                "label",
                "accepted: the classes 'no', 'yes'",
            ),
            (["no", ""], {"classes": ["no", "yes"]}, "label", "record 1 has the label ''"),
            (["2", "1"], {"classes": ["no", "yes"]}, "label", "accepted: 0 to 1"),
            (["no", "yes"], {"classes": ["no", "no"]}, "classes", "'no' is named twice"),
            (["no", "yes"], {"classes": ["no", "ye\x1bs"]}, "classes", "printed"),
            (["no", "no"], {"classes": ["no"]}, "num_classes", "at least 2 classes"),
            (
                ["no", "yes"],
                {"classes": ["no", "yes"], "num_classes": 3},
                "num_classes",
                "leave it out",
            ),
            (["0.5", "1"], {"classes": ["no", "yes"]}, "label", "is double; labels must be"),
        ],
    )
    def test_what_does_not_fit_is_told(
        self, tmp_path: Path, labels: list[str], stated: dict[str, Any], field: str, message: str
    ) -> None:
        with pytest.raises(DatasetError, match=message) as error:
            data.inspect(str(self.table(tmp_path, labels)), **stated)
        assert error.value.field == field

    def test_parts_of_csv_may_hold_those_classes_alone_that_look_like_numbers(
        self, tmp_path: Path
    ) -> None:
        for name in ("validation", "test"):
            self.table(tmp_path, ["1", "2", "3b"], name)
        self.table(tmp_path, ["1", "2"], "train")
        assert self.labels(tmp_path, ["1", "2", "3b"]) == [0, 1] * 15

    def test_parts_tell_labels_in_one_way(self, tmp_path: Path) -> None:
        for name, labels in (("train", ["1", "2", "3b"]), ("test", [1, 2])):
            table = pa.table({"a": range(len(labels)), "label": labels})
            pq.write_table(table, tmp_path / f"{name}.parquet")
        with pytest.raises(DatasetError, match="of train is text, of test numbers") as error:
            data.inspect(str(tmp_path), classes=["1", "2", "3b"])
        assert error.value.field == "label"
