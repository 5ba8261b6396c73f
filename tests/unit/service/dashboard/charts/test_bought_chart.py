"""The chart of what budgets bought."""

import json
from dataclasses import replace

from service.dashboard.charts.bought import MOST_SERIES, Reached, bought_chart
from tests.unit.service.dashboard.charts.marks import dots

ONE = Reached(
    name="one", model="mlp", metric=None, epsilon=2.0, accountant="pld", delta=1e-5,
    search_accounting="accounted", test_accuracy=0.9, study_id="s-1",
)  # fmt: skip
LARGER = replace(ONE, epsilon=4.0, test_accuracy=0.95)


def test_more_epsilon_lies_to_the_right_and_more_accuracy_above() -> None:
    chart = bought_chart([LARGER, ONE])

    assert chart is not None
    (series,) = chart.series
    (right, high), (left, low) = dots(series.dots)
    assert left < right
    assert high < low  # from the top
    assert "95.0 %, of one at ε 4.000" in chart.summary


def test_one_dot_is_no_chart_and_what_was_not_tested_or_cost_nothing_is_none() -> None:
    nothing = [replace(ONE, test_accuracy=None), replace(ONE, epsilon=0.0)]

    assert bought_chart([ONE, *nothing]) is None


def test_accuracies_of_two_kinds_have_two_colours() -> None:
    chart = bought_chart([ONE, replace(LARGER, metric="balanced_accuracy")])

    assert chart is not None
    assert [one.label for one in chart.series] == ["mlp", "mlp, balanced"]


def test_each_dot_is_one_of_a_study_that_has_a_name() -> None:
    linear = replace(ONE, name="two", model="linear", study_id="s-2")

    chart = bought_chart([ONE, linear, replace(LARGER, study_id="s-3")])

    assert chart is not None
    assert [(one.label, len(dots(one.dots))) for one in chart.series] == [("linear", 1), ("mlp", 2)]
    assert chart.studies == "s-2,s-1,s-3"
    assert json.loads(chart.named)["s-2"] == "two: 90.0 %"


def test_many_models_share_the_last_colour() -> None:
    many = [replace(ONE, model=f"m{number}") for number in range(MOST_SERIES + 3)]

    chart = bought_chart(many)

    assert chart is not None
    assert [one.label for one in chart.series][-2:] == ["m4", "other models"]
    assert [len(dots(one.dots)) for one in chart.series] == [1] * (MOST_SERIES - 1) + [4]
    assert len(chart.table.rows) == len(many)
