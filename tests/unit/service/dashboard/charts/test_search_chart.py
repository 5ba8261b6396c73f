"""The chart of a search."""

import re

from hypothesis import given
from hypothesis import strategies as st

from service.dashboard.charts.scale import SIZE
from service.dashboard.charts.search import MAX_POINTS, Point, best_so_far, search_chart

shares = st.floats(0.0, 1.0)


class TestBestSoFar:
    def test_only_completed_trials_set_a_record(self) -> None:
        points = [
            Point(0, "completed", 0.5),
            Point(1, "running", 0.9),
            Point(2, "diverged", None),
            Point(3, "completed", 0.4),
            Point(4, "completed", 0.6),
        ]

        assert best_so_far(points) == [(0, 0.5), (4, 0.6)]


class TestSearchChart:
    def test_there_is_no_chart_without_an_accuracy(self) -> None:
        assert search_chart([]) is None
        assert search_chart([Point(0, "diverged", None)]) is None

    @given(values=st.lists(st.none() | shares, min_size=1, max_size=60))
    def test_every_mark_lies_inside_the_plot(self, values: list[float | None]) -> None:
        points = [Point(n, "completed", value) for n, value in enumerate(values)]

        chart = search_chart(points)

        if chart is None:
            assert all(value is None for value in values)
            return
        numbers = [int(n) for n in re.findall(r"[MHV ](\d+)", chart.dots + chart.best)]
        assert all(0 <= n <= SIZE for n in numbers)

    def test_every_trial_is_drawn_once(self) -> None:
        points = [Point(n, "completed", 0.5 + n / 100) for n in range(12)]
        points += [Point(12, "running", 0.5), Point(13, "failed", None)]

        chart = search_chart(points)

        assert chart is not None
        assert (chart.dots.count("h0"), chart.other_dots.count("h0"), chart.lost.count("v")) == (
            12,
            1,
            1,
        )

    def test_room_is_left_for_trials_to_come(self) -> None:
        chart = search_chart([Point(0, "completed", 0.5)], num_expected=40)

        assert chart is not None
        assert int(chart.frame.x_labels[-1]) >= 39

    def test_many_trials_are_thinned_out(self) -> None:
        points = [Point(n, "completed", 0.5) for n in range(10_000)]

        chart = search_chart(points)

        assert chart is not None
        assert chart.num_shown <= MAX_POINTS
