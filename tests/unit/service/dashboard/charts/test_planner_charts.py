from dataclasses import replace

import pytest

from service.dashboard.charts.batch_cost import batch_cost_chart
from service.dashboard.charts.scale import SIZE, decades_scale
from service.dashboard.charts.wall import wall_chart
from tan_core.planner.sketch import Dials, Sketch, sketch

DIGITS = Dials(num_examples=1149, expected_batch_size=256, steps=300, epsilon=3.0, delta=1e-5)


@pytest.fixture(scope="module")
def found() -> Sketch:
    return sketch(DIGITS)


def places(path: str) -> list[tuple[int, int]]:
    """The corners of a line."""
    return [
        (int(x), int(y))
        for x, y in (corner.split() for corner in path.removeprefix("M").split("L"))
    ]


class TestWallChart:
    def test_epsilon_falls_to_the_right_and_stays_in_the_plot(self, found: Sketch) -> None:
        corners = places(wall_chart(found).curve)

        assert corners == sorted(corners)
        heights = [y for _, y in corners]
        assert heights == sorted(heights)
        assert all(0 <= each <= SIZE for corner in corners for each in corner)

    def test_the_run_stands_on_the_curve_right_of_the_wall(self, found: Sketch) -> None:
        chart = wall_chart(found)

        x, y = (int(each) for each in chart.run.removeprefix("M").removesuffix("h0").split())
        edge = int(chart.wall.removeprefix("M0 0H").partition("V")[0])
        assert edge < x
        left = max(corner for corner in places(chart.curve) if corner[0] <= x)
        right = min(corner for corner in places(chart.curve) if corner[0] >= x)
        assert left[1] - 2 <= y <= right[1] + 2

    def test_a_run_without_a_curve_or_an_epsilon_is_drawn_all_the_same(self, found: Sketch) -> None:
        chart = wall_chart(replace(found, curve=(), wall=0.0, epsilon=0.0))

        assert chart.wall == ""
        assert chart.run.startswith("M")
        assert chart.table.rows == []

    def test_the_table_has_every_point_exactly(self, found: Sketch) -> None:
        table = wall_chart(found).table

        assert [row[0] for row in table.rows] == [p.noise_multiplier for p in found.curve]
        assert [row[2] for row in table.rows] == [p.epsilon for p in found.curve]


class TestBatchCostChart:
    def test_the_private_run_costs_twice_at_twice_the_batch(self, found: Sketch) -> None:
        chart = batch_cost_chart(found.costs, batch=256)

        examples = {row[0]: row[1] for row in chart.table.rows}
        assert examples[256] == 256 * 300
        assert examples[512] == 2 * 256 * 300
        rising = [y for _, y in places(chart.private_run)]
        assert rising == sorted(rising, reverse=True)

    def test_no_batch_is_above_the_data(self, found: Sketch) -> None:
        assert max(one.expected_batch_size for one in found.costs) <= DIGITS.num_examples


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (1, 9, ("1", "10")),
        (1000, 1000, ("1 k", "10 k")),
        (5e9, 2e12, ("1 G", "10 G", "100 G", "1 T", "10 T")),
    ],
)
def test_decades_are_named_by_their_thousands(
    low: float, high: float, labels: tuple[str, ...]
) -> None:
    assert decades_scale(low, high).labels == labels
