"""What a dataset is known by: every byte of every file, its part and, where that is the label, its folder."""

from pathlib import Path

import pytest

from tan_core.data.content import content_sha256, hashed_files
from tan_core.data.part import Source

LAYOUTS: dict[Source, list[str]] = {
    "parquet": ["train-0.parquet", "train-1.parquet", "train-2.parquet", "test.parquet"],
    "table": ["train-0.csv", "train-1.csv", "validation.csv", "test.csv"],
    "image_folder": ["train/a/0.png", "train/a/1.png", "train/b/0.png", "test/a/0.png"],
}


def layout(folder: Path, names: list[str]) -> Path:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes([number]))
    return folder


def content(source: Source, folder: Path) -> str:
    return content_sha256(source, hashed_files(source, str(folder)))


@pytest.mark.parametrize("source", LAYOUTS)
def test_a_changed_byte_of_any_file_changes_it(tmp_path: Path, source: Source) -> None:
    folder = layout(tmp_path, LAYOUTS[source])
    found = {content(source, folder)}

    for name in LAYOUTS[source]:
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(b"changed")
        found.add(content(source, folder))
        (folder / name).write_bytes(before)

    assert len(found) == 1 + len(LAYOUTS[source])


@pytest.mark.parametrize("source", LAYOUTS)
def test_the_order_in_which_a_disk_lists_its_folders_does_not(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = layout(tmp_path, LAYOUTS[source])
    listed = Path.iterdir
    found = set()

    for order in (-1, 1):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "iterdir", lambda at, by=order: iter(sorted(listed(at))[::by]))
            found.add(content(source, folder))

    assert len(found) == 1


def test_another_label_changes_it_though_no_image_changes_its_place(tmp_path: Path) -> None:
    folder = layout(tmp_path, LAYOUTS["image_folder"])
    before = content("image_folder", folder)

    (folder / "train/a/1.png").rename(folder / "train/b/!.png")

    assert content("image_folder", folder) != before


def test_another_word_for_the_same_part_leaves_it(tmp_path: Path) -> None:
    first = layout(tmp_path / "first", ["dev.csv", "test.csv", "train.csv"])
    second = layout(tmp_path / "second", ["valid.csv", "test.csv", "training.csv"])

    assert content("table", first) == content("table", second)
