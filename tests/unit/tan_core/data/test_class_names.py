"""What labels mean, where the files of a dataset say so."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tan_core import data
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
