"""Lists and tables fit the terminal, and ε never stands without what it means nothing without."""

import io

import pytest
from rich.console import Console, RenderableType

from service import text
from service.cli import prediction_view, views
from service.cli.tables import table
from tests.unit.service.cli.recorded import CALIBRATION, DATASET, STUDY, SUMMARY

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


@pytest.mark.parametrize("width", [40, 60, 71])
def test_on_a_narrow_terminal_no_figure_is_cut(width: int) -> None:
    for made, words in (
        (views.studies([SUMMARY], width=width), (SUMMARY["id"], "completed", "2.941 (PLD)* at 1e-05")),
        (views.datasets([DATASET], width=width), ("digits", "1,295", "ε = 100 at δ = 0.001")),
        (prediction_view.calibration(CALIBRATION), ("digits", text.percent(CALIBRATION["items"][0]["reached"]))),
        (prediction_view.standings(STUDY), ("fresh", "promoted")),
    ):  # fmt: skip
        shown = lines(made, width)
        assert max(map(len, shown)) <= width
        for word in words:
            assert any(word in line for line in shown), (word, shown)


def test_a_table_becomes_cards_only_where_it_does_not_fit() -> None:
    made = table("Keys", "id", "state", "")
    made.add_row("k-1", "signs", "")
    made.add_row(
        "k-2", "retired", "by hand, after the disk was lost, and none too soon for anybody"
    )

    assert ["id", "state"] in [line.split() for line in lines(made, 72)]
    assert [line.rstrip() for line in lines(made, 71)] == [
        "Keys", "", "id     k-1", "state  signs", "", "id     k-2", "state  retired",
        "       by hand, after the disk was lost, and none too soon for anybody", "",
    ]  # fmt: skip
