"""Columns of a table that are read as their registration says: ranges and choices, and nothing off the records."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import TypeAdapter, ValidationError

from tan_core import data
from tan_core.errors import DatasetError, ParameterError
from tan_core.spec.columns import ChoiceColumn, Feature, RangeColumn, as_json
from tan_core.wire import DatasetRef
from tests.support.datasets import dataset_ref

AGE = RangeColumn(column="age", low=0, high=100)
JOB = ChoiceColumn(column="job", choices=["clerk", "nurse"])
ROWS = """age,job,height,label
20,clerk,0.5,no
130, nurse ,0.25,yes
,Clerk,1,no
-5,,0.75,yes
"""


def written(folder: Path, text: str = ROWS, name: str = "people.csv") -> Path:
    (folder / name).write_text(text * 1)
    return folder / name


def many(folder: Path) -> Path:
    """Enough rows for a split."""
    head, *rows = ROWS.strip().split("\n")
    return written(folder, "\n".join([head, *rows * 10]) + "\n")


def test_a_range_becomes_minus_1_to_1_and_choices_0_and_1(tmp_path: Path) -> None:
    found = data.read_features(written(tmp_path), [AGE, JOB, "height"])

    np.testing.assert_allclose(
        found,
        [[-0.6, 1, 0, 0.5], [1, 0, 1, 0.25], [0, 0, 0, 1], [-1, 0, 0, 0.75]],
        atol=1e-6,
    )
    assert found.dtype == np.float32


def test_all_parts_are_read_so_and_the_numbers_have_names(tmp_path: Path) -> None:
    path = many(tmp_path)
    features: list[Feature] = ["height", JOB, AGE]

    facts = data.inspect(path, features=features, classes=["no", "yes"])
    ref = dataset_ref(
        facts, name="people", path=path, features=as_json(features), classes=["no", "yes"]
    )

    assert facts.shape == (4,)
    assert (facts.far_features, facts.unseen_choices, facts.unread_columns) == ((), (), ())
    for role in ("train", "validation", "test"):
        inputs = np.asarray(data.load_split(ref, role).inputs)
        assert inputs.shape[1:] == (4,)
        assert set(np.unique(inputs[:, 1:3])) <= {0.0, 1.0}
        assert np.abs(inputs[:, 3]).max() <= 1


def test_it_is_another_dataset_to_a_cache(tmp_path: Path) -> None:
    path = many(tmp_path)
    facts = data.inspect(path, features=["height"], classes=["no", "yes"])
    wide = RangeColumn(column="height", low=0, high=10)

    def first(features: list[Any]) -> float:
        ref = dataset_ref(
            facts, name="people", path=path, features=as_json(features), classes=["no", "yes"]
        )
        split = data.load_split(ref, "train", cache_dir=tmp_path / "cache")
        return float(np.asarray(split.inputs).ravel().min())

    assert first(["height"]) == pytest.approx(0.25)
    assert first([wide]) == pytest.approx(-0.95)


def test_a_choice_that_no_record_has_is_told(tmp_path: Path) -> None:
    job = ChoiceColumn(column="job", choices=["clerk", "Nurse"])

    facts = data.inspect(many(tmp_path), features=[job], classes=["no", "yes"])

    assert facts.unseen_choices == ("job=Nurse",)


@pytest.mark.parametrize(
    ("values", "choices", "expected"),
    [
        (pa.array([1, 2, None, 1]), ["1", "3"], [[1, 0], [0, 0], [0, 0], [1, 0]]),
        (pa.array([True, False, None, True]), ["true"], [[1], [0], [0], [1]]),
        (pa.array(["b", None, "a", "b"]).dictionary_encode(), ["a", "b"], [[0, 1], [0, 0], [1, 0], [0, 1]]),
        (pa.chunked_array([["a"], ["b", "a"], ["b"]]), ["b", "a"], [[0, 1], [1, 0], [0, 1], [1, 0]]),
        (pa.array([None] * 4, pa.string()), ["a"], [[0]] * 4),
    ],
)  # fmt: skip
def test_choices_of_whole_numbers_truth_values_and_text(
    tmp_path: Path, values: pa.Array, choices: list[str], expected: list[list[int]]
) -> None:
    pq.write_table(pa.table({"x": values}), tmp_path / "t.parquet")

    found = data.read_features(tmp_path / "t.parquet", [ChoiceColumn(column="x", choices=choices)])

    assert found.tolist() == expected


def test_choices_of_other_numbers_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([0.5, 1.0])}), tmp_path / "t.parquet")

    with pytest.raises(DatasetError, match="'x' is double; choices are of text") as caught:
        data.read_features(tmp_path / "t.parquet", [ChoiceColumn(column="x", choices=["1"])])
    assert caught.value.field == "features"


@pytest.mark.parametrize(
    ("cells", "choices", "expected"),
    [
        (["01", "1", "02"], ["1", "2"], [[0, 0], [1, 0], [0, 0]]),
        (["True", "true"], ["true"], [[0], [1]]),
        (["NA", "1"], ["NA", "1"], [[1, 0], [0, 1]]),
        (["1.0", "1"], ["1.0", "1"], [[1, 0], [0, 1]]),
        (["2020-01-01", "2021-01-01"], ["2020-01-01"], [[1], [0]]),
    ],
    ids=["numbers", "truth-values", "not-available", "fractions", "dates"],
)
def test_a_cell_of_csv_is_read_alike_whatever_the_others_hold(
    tmp_path: Path, cells: list[str], choices: list[str], expected: list[list[int]]
) -> None:
    """One record more must not change what is read of another: no clip bounds that."""
    job = ChoiceColumn(column="job", choices=choices)

    def read(cells: list[str]) -> list[list[float]]:
        text = "".join(f"{cell},0\n" for cell in cells)
        return data.read_features(written(tmp_path, f"job,label\n{text}"), [job]).tolist()

    assert read(cells) == expected
    assert read([*cells, "word"])[:-1] == expected
    assert [read([cell])[0] for cell in cells] == expected


def test_whole_numbers_that_no_float_holds_are_rounded_into_a_range(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([2**53 + 1, 0])}), tmp_path / "t.parquet")

    found = data.read_features(
        tmp_path / "t.parquet", [RangeColumn(column="x", low=0, high=2.0**53)]
    )

    assert found.tolist() == [[1], [-1]]


@given(
    low=st.floats(-1e6, 1e6),
    width=st.floats(1e-3, 1e6),
    values=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=20),
)
def test_whatever_is_in_a_column_stays_within_its_range(
    tmp_path_factory: pytest.TempPathFactory, low: float, width: float, values: list[float]
) -> None:
    file = tmp_path_factory.mktemp("ranges") / "t.parquet"
    pq.write_table(pa.table({"x": pa.array(values, pa.float64())}), file)

    found = data.read_features(file, [RangeColumn(column="x", low=low, high=low + width)])[:, 0]

    within = np.clip(values, low, low + width)
    expected = 2 * (within - low) / width - 1
    np.testing.assert_allclose(found, np.nan_to_num(expected), atol=1e-3)
    assert np.abs(found).max() <= 1


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (RangeColumn(column="job", low=0, high=1), "'job' is string; a range is of numbers"),
        (RangeColumn(column="weight", low=0, high=1), "'weight' is not a feature column"),
        (RangeColumn(column="label", low=0, high=1), "'label' is not a feature column"),
        ("job", "'job' is string; features must be numbers, or say which choices"),
    ],
)
def test_a_column_of_another_kind_is_refused_by_name(
    tmp_path: Path, feature: Feature, message: str
) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        data.inspect(many(tmp_path), features=[feature], classes=["no", "yes"])
    assert caught.value.field == "features"


def test_a_column_is_a_feature_once(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="name column 'age' more than once"):
        data.inspect(many(tmp_path), features=["age", AGE], classes=["no", "yes"])


def test_a_list_of_numbers_is_told_to_have_a_column_for_each(tmp_path: Path) -> None:
    table = pa.table({"vector": [[0.5, 1.0]] * 20, "label": [0, 1] * 10})
    pq.write_table(table, tmp_path / "a.parquet")

    with pytest.raises(DatasetError, match=r"features must be numbers, one to a column$"):
        data.inspect(tmp_path / "a.parquet", features=["vector"])


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("features", ["0"]),
        ("features", [RangeColumn(column="0", low=0, high=100)]),
        ("label", "diagnosis"),
    ],
)
@pytest.mark.parametrize("source", ["npz", "image_folder", "digits"])
def test_a_source_without_columns_has_no_features_and_no_other_label(
    tmp_path: Path, source: str, field: str, asked: Any
) -> None:
    """They would be shown and signed, and a model would read all of a record as it is, and what lies beside it."""
    pixels = np.zeros((30, 8, 8), np.uint8)
    labels = np.arange(30) % 2
    np.savez(tmp_path / "a.npz", x=pixels.reshape(30, 64), y=labels, diagnosis=1 - labels)
    for at, image in enumerate(pixels):
        (tmp_path / "images" / "ab"[at % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "images" / "ab"[at % 2] / f"{at}.png")
    path = {"npz": tmp_path / "a.npz", "image_folder": tmp_path / "images"}.get(source)

    assert data.inspect(path, source=source).source == source
    with pytest.raises(DatasetError, match=f"source {source} has no column") as caught:
        data.inspect(path, source=source, **{field: asked})

    assert caught.value.field == field


@pytest.mark.parametrize("wrong", ["age", [3], [{"column": "age", "low": 0, "high": 1}]])
def test_what_is_no_feature_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ParameterError, match="features"):
        data.inspect(many(tmp_path), features=wrong, classes=["no", "yes"])


@pytest.mark.parametrize(
    "stated",
    [
        {"column": "age", "low": 1, "high": 1},
        {"column": "age", "low": 2, "high": 1},
        {"column": "age", "low": 0},
        {"column": "job", "choices": []},
        {"column": "job", "choices": ["a", "a"]},
        {"column": "job", "choices": ["a", " a"]},
        {"column": "job", "choices": ["a"], "low": 0, "high": 1},
        {"column": "", "choices": ["a"]},
    ],
)
def test_what_makes_no_range_and_no_choice_is_refused(stated: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Feature).validate_python(stated)


def test_a_worker_is_told_as_it_was_stated() -> None:
    features = [
        "height",
        {"column": "age", "low": 0.0, "high": 100.0},
        {"column": "job", "choices": ["clerk"]},
    ]
    field = TypeAdapter(DatasetRef.model_fields["features"].annotation)

    assert as_json(field.validate_python(features)) == features


def test_a_range_is_wide_enough_to_divide_by() -> None:
    assert RangeColumn(column="a", low=0.0, high=4e-300).high == 4e-300
    with pytest.raises(ValidationError, match="2e-300 apart, got 0 and 4"):
        RangeColumn(column="a", low=0.0, high=5e-324)
