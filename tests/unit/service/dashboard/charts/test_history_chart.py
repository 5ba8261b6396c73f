"""The history of a search: its points, the best so far, and what is left of ten thousand."""

import json

from service.dashboard.charts.history import MAX_BUCKETS, best_so_far, history_chart
from service.dashboard.charts.trial_point import TrialPoint


def point(number: int, value: float | None, state: str = "completed") -> TrialPoint:
    return TrialPoint(number, state, value, {})


class TestHistoryChart:
    def test_nothing_scored_is_nothing_drawn(self) -> None:
        assert history_chart([]) is None
        assert history_chart([point(0, None, "diverged")]) is None

    def test_each_kind_has_its_series_and_the_best_goes_on(self) -> None:
        points = [point(0, 0.5), point(1, 0.9, "pruned"), point(2, None, "failed"), point(3, 0.7)]

        chart = history_chart([*points, point(4, 0.6)])

        assert chart is not None
        assert chart.x == [0, 1, 3, 4]
        assert {each.label: list(each.values) for each in chart.series} == {
            "ended earlier": [None, 0.9, None, None],
            "completed": [0.5, None, 0.7, 0.6],
            "best so far": [0.5, 0.5, 0.7, 0.7],
        }
        assert "the best is 70.0 %, trial 3" in chart.summary

    def test_a_long_one_is_thinned_and_loses_no_extreme(self) -> None:
        values = [0.5 + (number * 7919 % 1000) / 10_000 for number in range(10_000)]
        values[4321], values[8765] = 0.99, 0.01
        points = [point(number, value) for number, value in enumerate(values)]

        chart = history_chart(points)

        assert chart is not None
        assert len(chart.x) <= 2 * MAX_BUCKETS + len(best_so_far(points)) + 1
        assert {4321, 8765, 9999} <= set(chart.x)
        assert chart.series[2].values[-1] == 0.99
        assert len(chart.table.rows) == 10_000
        assert len(json.dumps(chart.to_json())) < 40_000


def test_only_completed_trials_set_records() -> None:
    points = [point(0, 0.5), point(1, 0.9, "pruned"), point(2, 0.5), point(3, 0.6)]

    assert best_so_far(points) == [(0, 0.5), (3, 0.6)]
