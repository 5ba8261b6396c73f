"""The charts over a search space: axes, parallel coordinates, slices."""

import json
import math

import pytest

from service.dashboard.charts.axis import Axis, axes_of
from service.dashboard.charts.parallel import MAX_LINES, parallel_chart
from service.dashboard.charts.slices import slices
from service.dashboard.charts.trial_point import TrialPoint, completed, scored, spread
from tan_core.spec import Choices, Range
from tests.unit.service.dashboard.charts.marks import dots

AXES = axes_of(
    {
        "rate": Range(low=0.01, high=1.0, log=True),
        "views": Range(low=1, high=9),
        "decay": Choices(choices=[0.99, 0.9]),
        "kind": Choices(choices=["b", "a", "c"]),
        "fixed": 3,
        "alone": Choices(choices=[7]),
    }
)


def point(number: int, value: float, **params: object) -> TrialPoint:
    whole = {"rate": 0.1, "views": 5, "decay": 0.9, "kind": "a", "fixed": 3, **params}
    return TrialPoint(number, "completed", value, whole)


class TestAxes:
    def test_what_cannot_vary_has_none(self) -> None:
        assert [axis.name for axis in AXES] == ["rate", "views", "decay", "kind"]

    @pytest.mark.parametrize(
        ("name", "value", "place"),
        [
            ("rate", 0.01, 0.0), ("rate", 0.1, 0.5), ("rate", 1.0, 1.0), ("rate", 2.0, None),
            ("rate", 0.0, None), ("rate", None, None), ("views", 3, 0.25), ("views", True, None),
            ("decay", 0.9, 0.0), ("decay", 0.99, 1.0), ("kind", "a", 0.5), ("kind", "d", None),
        ],
    )  # fmt: skip
    def test_a_value_has_its_place(self, name: str, value: object, place: float | None) -> None:
        (axis,) = [axis for axis in AXES if axis.name == name]

        found = axis.place(value)

        assert found == (place if place is None else pytest.approx(place))

    def test_labels_name_both_ends_and_every_choice(self) -> None:
        assert [axis.labels for axis in AXES] == [
            ("0.01", "0.1", "1"), ("1", "5", "9"), ("0.9", "0.99"), ("b", "a", "c"),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("ends", "label"), [((1, 8), ""), ((1, 9), "5"), ((1, 1000), "500"), ((0, 1), "")]
    )
    def test_between_two_integers_nothing_is_marked(
        self, ends: tuple[int, int], label: str
    ) -> None:
        (axis,) = axes_of({"views": Range(low=ends[0], high=ends[1])})

        assert axis.labels == (str(ends[0]), label, str(ends[1]))

    def test_a_grid_has_no_more_places_than_the_axis_values(self) -> None:
        assert [axis.num_places(50) for axis in AXES] == [50, 9, 2, 3]
        assert Axis("w", (), log=True, integers=400).num_places(50) == 10


class TestParallel:
    def test_a_trial_is_a_line_to_its_accuracy_and_the_best_lies_on_top(self) -> None:
        points = [point(number, 0.5 + 0.1 * number) for number in range(4)]

        chart = parallel_chart(completed(points), AXES)

        assert chart is not None
        assert chart.tones[-1] == "M0 500L250 500L500 1000L750 500L1000 0"
        assert [tone.count("M") for tone in chart.tones] == [1, 1, 1, 1]
        assert [name for name, _ in chart.axes] == ["rate", "views", "decay", "kind", "accuracy"]
        assert [row[0] for row in chart.table.rows] == [3, 2, 1, 0]
        assert chart.trials == "0,1,2,3"

    def test_each_trial_is_a_line_of_its_own_and_each_axis_says_what_stands_on_it(self) -> None:
        chart = parallel_chart(
            completed([point(number, 0.5 + 0.05 * number) for number in range(9)]), AXES
        )

        assert chart is not None
        lines = [line for tone in chart.tones for line in tone.split("\n")]
        assert [line.startswith("M0 ") for line in lines] == [True] * 9
        scales = json.loads(chart.scales)
        assert [scale["name"] for scale in scales] == ["rate", "views", "decay", "kind", "accuracy"]
        rate, views, decay = scales[:3]
        assert math.exp(rate["low"]) == pytest.approx(0.01)
        assert (views["whole"], rate["whole"], rate["log"]) == (True, False, True)
        assert decay == {"name": "decay", "choices": 2}

    def test_a_missing_parameter_breaks_the_line(self) -> None:
        chart = parallel_chart(
            completed([point(0, 0.5, views=None), point(1, 0.5, views=None)]), AXES
        )

        assert chart is not None
        assert chart.tones[-1].count("M") == 2

    def test_of_many_the_best_half_is_kept(self) -> None:
        points = [point(number, number / 10_000) for number in range(10_000)]

        kept = {each.number for each, _ in spread([(p, p.value or 0) for p in points], MAX_LINES)}
        chart = parallel_chart(completed(points), AXES)

        assert len(kept) == MAX_LINES
        assert set(range(10_000 - MAX_LINES // 2, 10_000)) <= kept
        assert min(kept) < 200
        assert chart is not None
        assert chart.num_shown == MAX_LINES

    def test_there_is_none_without_something_to_compare(self) -> None:
        assert parallel_chart(completed([point(0, 0.5)]), AXES) is None
        assert parallel_chart(completed([point(0, 0.5), point(1, 0.6)]), []) is None


class TestSlices:
    def test_each_parameter_has_one_with_every_trial(self) -> None:
        points = [point(0, 0.5, rate=0.01), point(1, 0.9, rate=1.0), point(2, 0.7, rate=None)]

        found = slices(completed(points), AXES)

        assert found is not None
        rate = found.charts[0]
        assert sorted(x for x, _ in dots(rate.dots)) == [0, 1000]
        assert rate.trials == "1,0"
        assert [x for x, _ in dots(rate.best)] == [1000]
        assert rate.summary.endswith("trial 1 has 1.")

    def test_the_trial_that_stands_for_the_study_stands_out(self) -> None:
        points = [point(0, 0.5, rate=0.01), point(1, 0.9, rate=1.0)]

        found = slices(completed(points), AXES, marked=0)

        assert found is not None
        assert [x for x, _ in dots(found.charts[0].best)] == [0]
        assert "trial 0 has 0.01" in found.charts[0].summary

    def test_what_is_read_out_has_few_digits(self) -> None:
        found = slices(completed([point(0, 0.5, rate=0.12345678901234567)]), AXES)

        assert found is not None
        assert found.charts[0].summary.endswith("trial 0 has 0.1235.")

    def test_there_is_none_without_a_trial(self) -> None:
        assert slices([], AXES) is None


def test_at_a_rung_is_every_trial_that_came_so_far() -> None:
    points = [
        TrialPoint(0, "completed", 0.8, {}, (0.9, 0.8)),
        TrialPoint(1, "pruned", 0.7, {}, (0.7,)),
        TrialPoint(2, "diverged", None, {}, (None,)),
        TrialPoint(3, "running", None, {}),
    ]
    assert [(p.number, v) for p, v in scored(points, 0)] == [(0, 0.9), (1, 0.7)]
    assert [(p.number, v) for p, v in scored(points, 1)] == [(0, 0.8)]
