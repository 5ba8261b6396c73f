"""Plots of characters: the highest value is at the top, the last one at the right."""

import pytest

from service.cli import chart

BLANK = chr(0x2800)


def test_a_rising_curve_goes_from_the_lower_left_to_the_upper_right() -> None:
    top, bottom = chart.line([0, 1, 2, 3, 4, 5, 6, 7], width=4, height=2)
    assert top[:2] == BLANK * 2
    assert bottom[2:] == BLANK * 2
    assert BLANK not in top[2:] + bottom[:2]


def test_a_step_holds_until_the_next_value() -> None:
    top, bottom = chart.line([0, 1], width=4, height=2, is_stepped=True)
    assert bottom[:3] == "⣀⣀⣀"
    assert top[:3] == BLANK * 3


@pytest.mark.parametrize("values", [[5.0], [5.0, 5.0], list(range(1000))], ids=len)
def test_any_number_of_values_fills_the_width(values: list[float]) -> None:
    lines = chart.line(values, width=7, height=3)
    assert [len(line) for line in lines] == [7, 7, 7]
    for column in range(7):
        assert any(line[column] != BLANK for line in lines)


def test_a_sparkline_keeps_the_newest_and_stands_on_zero() -> None:
    assert chart.sparkline([100, 1, 2, 4, 8], width=4) == "▁▂▄█"
    assert chart.sparkline([8, 8], width=4) == "██"
    assert chart.sparkline([0, 0], width=4) == "▁▁"
    assert chart.sparkline([], width=4) == ""
