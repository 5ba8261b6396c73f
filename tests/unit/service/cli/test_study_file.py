import io
from pathlib import Path

import pytest

from service.cli.errors import Exit, InputError
from service.cli.study_file import read_study


def read(tmp_path: Path, text: str) -> dict:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return read_study(str(path))


def test_numbers_are_numbers_as_people_write_them(tmp_path: Path) -> None:
    study = read(tmp_path, "a: 1e-5\nb: 1.0E+3\nc: 3\nd: .5\ne: -2.5\nf: 1_000.5\ng: 2026-01-02\n")
    assert study == {
        "a": 1e-5, "b": 1000.0, "c": 3, "d": 0.5, "e": -2.5, "f": 1000.5, "g": "2026-01-02",
    }  # fmt: skip


def test_standard_input_is_read_for_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("name: x"))
    assert read_study("-") == {"name": "x"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "line 1, column 6"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: key 'a' is given twice"),
        ("- a\n- b", "got a list"),
        ("", "got nothing"),
        ("a: !!python/object:os.system {}", "line 1, column 4"),
        ("a: \x00", "not YAML"),
    ],
)
def test_what_is_no_study_is_refused_with_the_place(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InputError, match=r"study\.yaml") as caught:
        read(tmp_path, text)
    assert message in caught.value.message
    assert caught.value.exit_code == Exit.BAD_INPUT


def test_what_json_cannot_carry_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, "privacy: {epsilon: .inf}\nlist: [1, .nan]\n")
    assert [str(fault) for fault in caught.value.faults] == [
        "privacy.epsilon: must be a finite number (got inf)",
        "list.1: must be a finite number (got nan)",
    ]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputError, match=r"no such file: nowhere\.yaml"):
        read_study("nowhere.yaml")
