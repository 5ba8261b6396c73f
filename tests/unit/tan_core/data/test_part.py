"""Which part of a dataset a file belongs to, by its name: a test file that was taken for train would be trained on."""

from pathlib import Path

import pytest

from tan_core.data import image_folder
from tan_core.data.part import files_by_role, role_of
from tan_core.errors import DatasetError


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("train.csv", "train"),
        ("train-00000-of-00002.parquet", "train"),
        ("Training_1.csv", "train"),
        ("validation.parquet", "validation"),
        ("valid-1.csv", "validation"),
        ("VAL_1.csv", "validation"),
        ("dev.csv.gz", "validation"),
        ("test", "test"),
        ("TEST_final-2.csv", "test"),
        ("contest.csv", None),
        ("testing.csv", None),
        ("evaluation.csv", None),
        (".test.csv", None),
        ("my-test.csv", None),
    ],
)
def test_the_first_word_of_a_name_says_it(name: str, role: str | None) -> None:
    assert role_of(name) == role


def test_files_lie_in_the_folder_itself_or_below_data_or_below_their_role(tmp_path: Path) -> None:
    named = {
        "train-1.csv": "train",
        "data/test-1.csv": "test",
        "val/1.CSV": "validation",
        "train/b.csv": "train",
    }
    others = ["._train-1.csv", "train.parquet", "deeper/test.csv"]
    for name in (*named, *others):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    found = {
        file.relative_to(tmp_path).as_posix(): role
        for role, files in files_by_role(tmp_path, suffix=".csv").items()
        for file in files
    }

    assert found == named


def test_what_the_dataset_itself_is_called_says_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "dev-2024"
    folder.mkdir()
    (folder / "more.csv").touch()
    assert files_by_role(folder, suffix=".csv") == {"train": [folder / "more.csv"]}

    (folder / "train.csv").touch()

    with pytest.raises(DatasetError, match=r"more\.csv: cannot tell which split") as error:
        files_by_role(folder, suffix=".csv")
    assert error.value.field == "path"


def test_parts_without_train_are_refused_by_what_there_is(tmp_path: Path) -> None:
    for name in ("test.csv", "val.csv"):
        (tmp_path / name).touch()

    with pytest.raises(DatasetError, match=r"no train part, only \['test', 'validation'\]"):
        files_by_role(tmp_path, suffix=".csv")


@pytest.mark.parametrize(
    ("link", "to"),
    [("data", "."), ("train_latest", "train"), ("train-2.csv", "train/a.csv")],
)
def test_a_file_that_a_link_names_again_is_refused(tmp_path: Path, link: str, to: str) -> None:
    for name in ("train/a.csv", "train-1.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / link).symlink_to(to)

    with pytest.raises(
        DatasetError, match="are one file, whose records would count twice"
    ) as refused:
        files_by_role(tmp_path, suffix=".csv")

    assert refused.value.field == "path"


def test_a_file_may_be_a_link_and_two_parts_may_share_one(tmp_path: Path) -> None:
    (tmp_path / "blob").touch()
    for name in ("train.csv", "validation.csv", "test.csv"):
        (tmp_path / name).symlink_to("blob")

    assert [*files_by_role(tmp_path, suffix=".csv")] == ["test", "train", "validation"]


def test_two_files_may_be_links_to_one_elsewhere(tmp_path: Path) -> None:
    """As where contents are stored by their hash: equal records are one file there."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store/5d41").touch()
    for name in ("cat/1.png", "cat/2.png"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).symlink_to("../../store/5d41")

    found = image_folder.files_by_class(tmp_path / "images")

    assert [len(files) for files in found["train"].values()] == [2]


@pytest.mark.parametrize(
    ("link", "to"), [("cat/2.png", "1.png"), ("dog/2.png", "../cat/1.png"), ("cow", "cat")]
)
def test_so_is_an_image_of_a_class(tmp_path: Path, link: str, to: str) -> None:
    for name in ("cat/1.png", "dog/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    image_folder.files_by_class(tmp_path)
    (tmp_path / link).symlink_to(to)

    with pytest.raises(DatasetError, match="are one file, whose records would count twice"):
        image_folder.files_by_class(tmp_path)
