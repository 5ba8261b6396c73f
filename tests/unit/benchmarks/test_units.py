"""A benchmark of hours that is killed and goes on."""

from pathlib import Path

import pytest
from _units import Units

UNITS = ["first", "second", "third"]


def state_of(path: Path) -> Path:
    units = Units(path)
    for number, name in enumerate(UNITS):
        units.once(name, lambda number=number: {"number": number})
    return path


def test_a_unit_is_done_once_over_all_processes(tmp_path: Path) -> None:
    path = state_of(tmp_path / "below" / "state.jsonl")

    units = Units(path)

    for number, name in enumerate(UNITS):
        assert units.once(name, pytest.fail) == {"number": number}


@pytest.mark.parametrize("lost", [1, 2, 10, 30])
def test_a_kill_while_writing_loses_one_unit(tmp_path: Path, lost: int) -> None:
    path = state_of(tmp_path / "state.jsonl")
    path.write_bytes(path.read_bytes()[:-1][:-lost])

    units = Units(path)

    assert [name for name in UNITS if units.get(name) is None] == ["third"]
    units.once("third", lambda: {"number": 3})
    again = Units(path)
    assert [again.get(name) for name in UNITS] == [{"number": 0}, {"number": 1}, {"number": 3}]


def test_what_fails_is_not_done(tmp_path: Path) -> None:
    units = Units(tmp_path / "state.jsonl")

    with pytest.raises(ZeroDivisionError):
        units.once("first", lambda: {"number": 1 // 0})

    assert units.get("first") is None
    assert Units(tmp_path / "state.jsonl").get("first") is None
