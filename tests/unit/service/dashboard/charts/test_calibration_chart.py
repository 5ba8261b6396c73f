"""The chart of a calibration."""

import json

from hypothesis import given
from hypothesis import strategies as st

from service.calibration.schemas import CalibrationItem
from service.dashboard.charts.calibration import calibration_chart
from service.dashboard.charts.scale import SIZE
from tests.unit.service.dashboard.charts.marks import bars, dots, line

shares = st.floats(0.0, 1.0)


def item(predicted: float, reached: float, *, low: float, high: float) -> CalibrationItem:
    return CalibrationItem(
        study="s-0123456789ab", name="one", dataset="digits", model="mlp", epsilon=3.0, trial=1,
        predicted=predicted, low=low, high=high, reached=reached, error=reached - predicted,
        inside=low <= reached <= high, finished_at=None,
    )  # fmt: skip


class TestCalibrationChart:
    def test_without_a_study_there_is_none(self) -> None:
        assert calibration_chart([]) is None

    @given(ends=st.lists(st.tuples(shares, shares, shares, shares), min_size=1, max_size=30))
    def test_an_interval_held_where_its_bar_meets_the_diagonal(
        self, ends: list[tuple[float, float, float, float]]
    ) -> None:
        items = [
            item(predicted, reached, low=low, high=high)
            for low, predicted, high, reached in ((*sorted(three), last) for *three, last in ends)
        ]

        chart = calibration_chart(items)

        assert chart is not None
        assert line(chart.diagonal) == [(0, SIZE), (SIZE, 0)]
        assert len(dots(chart.held_dots)) == len(bars(chart.held)) == sum(i.inside for i in items)
        assert len(bars(chart.held)) + len(bars(chart.missed)) == len(items)
        for x, low, high in bars(chart.held):
            assert high - 1 <= SIZE - x <= low + 1
        for x, low, high in bars(chart.missed):
            assert SIZE - x >= low - 1 or SIZE - x <= high + 1

    def test_the_chart_is_put_in_words(self) -> None:
        chart = calibration_chart(
            [item(0.9, 0.91, low=0.88, high=0.92), item(0.9, 0.95, low=0.88, high=0.92)]
        )

        assert chart is not None
        assert chart.summary == (
            "Predicted over reached test accuracy of 2 runs: 1 inside their interval, 1 outside."
        )

    def test_each_dot_is_one_of_a_study_that_has_a_name(self) -> None:
        missed = item(0.9, 0.95, low=0.88, high=0.92).model_copy(update={"study": "s-1"})

        chart = calibration_chart([missed, item(0.9, 0.91, low=0.88, high=0.92)])

        assert chart is not None
        assert chart.studies == "s-0123456789ab,s-1"
        assert json.loads(chart.named)["s-1"] == "one: predicted 90.0 %, reached 95.0 %"
