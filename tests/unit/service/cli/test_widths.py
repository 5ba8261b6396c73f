"""Lists fit the terminal, and ε never stands without what it means nothing without."""

import io

import pytest
from rich.console import Console, RenderableType

from service.cli import views
from tests.unit.service.cli.recorded import DATASET, SUMMARY

NOTE = "search on private data NOT accounted"


def lines(made: RenderableType, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as captured:
        console.print(made)
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [80, 100, 130, 200])
def test_a_study_stands_on_one_line_with_its_guarantee(width: int) -> None:
    shown = lines(views.studies([SUMMARY], width=width), width)
    assert max(map(len, shown)) <= width
    (row,) = [line for line in shown if SUMMARY["id"] in line]
    for word in ("digits-eps3", "completed", "92.5 %", "2.941 (PLD)", "1e-05"):
        assert word in row
    assert NOTE in "\n".join(shown)
    assert "add_or_remove_one" in "\n".join(shown)


def test_the_star_is_only_where_the_search_is_not_accounted() -> None:
    public = {**SUMMARY, "id": "s-1", "search_accounting": "public_proxy"}
    shown = lines(views.studies([SUMMARY, public], width=80), 80)
    assert [("*" in line) for line in shown if "s-" in line] == [True, False]


@pytest.mark.parametrize("width", [80, 160])
def test_a_dataset_stands_on_one_line_with_its_budget(width: int) -> None:
    shown = lines(views.datasets([DATASET], width=width), width)
    assert max(map(len, shown)) <= width
    (row,) = [line for line in shown if "digits" in line]
    assert "100" in row
    assert "0.001" in row
    assert "add_or_remove_one" in "\n".join(shown)
