"""Two parameters at once: where its dots lie, and what they say."""

import math
from itertools import combinations

import pytest

from service.dashboard.charts.axis import axes_of
from service.dashboard.charts.pair import LEAST_DRAWN, MAX_DOTS, PairChart, pair_chart
from service.dashboard.charts.trial_point import TrialPoint, in_quarters
from tan_core.spec import Choices, Range
from tests.unit.service.dashboard.charts.marks import dots

AXES = axes_of(
    {
        "rate": Range(low=0.01, high=1.0, log=True),
        "views": Range(low=1, high=4),
        "kind": Choices(choices=["b", "a"]),
        "decay": Range(low=0.0, high=1.0),
    }
)
NAMES = [axis.name for axis in AXES]


def scored(count: int, **params: object) -> list[tuple[TrialPoint, float]]:
    """The higher the number, the better; each parameter at one value unless a list has one for each trial."""
    usual = {"rate": 0.1, "views": 2, "kind": "a", "decay": 0.5, **params}

    def tried(number: int) -> dict[str, object]:
        values = {k: v[number] if isinstance(v, list) else v for k, v in usual.items()}
        return {name: value for name, value in values.items() if value is not None}

    return [
        (TrialPoint(number, "completed", 0.5, tried(number)), 0.5 + number / 1000)
        for number in range(count)
    ]


def drawn(chart: PairChart | None) -> dict[int, tuple[int, int]]:
    """Where each trial's dot is."""
    assert chart is not None
    places = [place for quarter in chart.quarters for place in dots(quarter)]
    return dict(zip(map(int, chart.trials.split(",")), places, strict=True))


def test_a_dot_lies_where_its_trial_does_on_logarithmic_and_plain_axes() -> None:
    points = scored(4, rate=[0.01, 0.1, 1.0, 1.0], decay=[0.0, 0.25, 1.0, 0.5])

    chart = pair_chart(points, AXES, ranked=NAMES, across="rate", up="decay")

    assert drawn(chart) == {0: (0, 1000), 1: (500, 750), 2: (1000, 0), 3: (1000, 500)}
    assert chart is not None
    assert chart.frame.x_labels == ("0.01", "0.1", "1")
    assert chart.frame.y_labels == ("1", "0.5", "0")
    assert chart.summary.endswith("trial 3, 50.3 %, has rate 1 and decay 0.5.")


def test_choices_and_few_integers_are_bands_with_their_labels_in_the_middle() -> None:
    points = scored(4, views=[1, 2, 3, 4], kind=["b", "b", "a", "a"])

    chart = pair_chart(points, AXES, ranked=NAMES, across="kind", up="views")

    assert drawn(chart) == {0: (250, 875), 1: (250, 625), 2: (750, 375), 3: (750, 125)}
    assert chart is not None
    assert chart.frame.x_labels == ("", "b", "", "a", "")
    assert chart.frame.y_labels == ("", "4", "", "3", "", "2", "", "1", "")


@pytest.mark.parametrize(("across", "up"), [("kind", "views"), ("kind", "decay"), ("rate", "kind")])
def test_no_dot_of_a_band_hides_another_or_leaves_the_band(across: str, up: str) -> None:
    chart = pair_chart(scored(12), AXES, ranked=NAMES, across=across, up=up)

    places = drawn(chart).values()
    assert len(places) == 12
    assert all(abs(a - x) >= 18 or abs(b - y) >= 30 for (a, b), (x, y) in combinations(places, 2))
    for name, each in ((across, 0), (up, 1)):
        where = {place[each] for place in places}
        middle, reach = {"kind": (750, 250), "views": (375, 125)}.get(name, (500, 0))
        expected = middle if each == 0 else 1000 - middle
        assert all(abs(value - expected) <= reach for value in where), name


def test_where_any_number_may_stand_nothing_is_moved() -> None:
    chart = pair_chart(scored(30), AXES, ranked=NAMES, across="rate", up="decay")

    assert set(drawn(chart).values()) == {(500, 500)}


def test_quarters_go_by_accuracy_and_the_best_lies_on_top() -> None:
    chart = pair_chart(scored(8), AXES, ranked=NAMES)

    assert chart is not None
    assert chart.trials == "0,1,2,3,4,5,6,7"
    assert [len(dots(quarter)) for quarter in chart.quarters] == [2, 2, 2, 2]
    assert (chart.best, chart.best_quarter) == (7, 4)


def test_the_trial_that_stands_for_the_study_is_marked_where_it_lies() -> None:
    points = scored(8, decay=[number / 7 for number in range(8)])

    chart = pair_chart(points, AXES, ranked=NAMES, across="rate", up="decay", marked=2)

    assert chart is not None
    assert (chart.best, chart.best_quarter) == (2, 2)
    assert dots(chart.best_dot) == [drawn(chart)[2]]
    other = pair_chart(points, AXES, ranked=NAMES, marked=99)
    assert other is not None
    assert other.best == 7


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ((None, None), ("decay", "rate")),
        (("kind", None), ("kind", "decay")),
        ((None, "decay"), ("rate", "decay")),
        (("views", "kind"), ("views", "kind")),
        (("decay", "decay"), ("decay", "rate")),
        (("odd", "kind"), ("decay", "kind")),
        (("rate", "odd"), ("rate", "decay")),
    ],
)
def test_what_mattered_most_is_shown_unless_others_are_named(
    asked: tuple[str | None, str | None], shown: tuple[str, str]
) -> None:
    ranked = ["decay", "rate", "kind", "views"]

    chart = pair_chart(scored(4), AXES, ranked=ranked, across=asked[0], up=asked[1])

    assert chart is not None
    assert (chart.across, chart.up) == shown
    assert chart.names == tuple(NAMES)
    assert chart.table.columns == ("trial", *shown, "accuracy")


def test_a_trial_without_one_of_them_has_no_dot() -> None:
    points = scored(6, decay=[0.1, None, 0.3, 0.4, None, 0.5])

    chart = pair_chart(points, AXES, ranked=NAMES, across="rate", up="decay")

    assert sorted(drawn(chart)) == [0, 2, 3, 5]


def test_what_no_trial_has_together_is_drawn_only_where_it_is_asked_for() -> None:
    first, second = [1, 1, 1, 1, None, None, None, None], [None] * 4 + ["a"] * 4
    points = scored(8, views=first, kind=second)
    ranked = ["views", "kind", "rate", "decay"]

    chart = pair_chart(points, AXES, ranked=ranked)
    nobody = pair_chart(points, AXES, ranked=ranked, across="views", up="kind")

    assert chart is not None
    assert (chart.across, chart.up) == ("views", "rate")
    assert nobody is not None
    assert (nobody.best, nobody.num_shown, nobody.quarters) == (None, 0, ("",) * 4)
    assert nobody.summary == "kind over views of 0 trials by accuracy."


def test_a_parameter_that_hardly_a_trial_has_cannot_be_chosen() -> None:
    points = scored(5, decay=[0.1, None, 0.3, 0.4, None])

    chart = pair_chart(points, AXES, ranked=NAMES, up="decay")

    assert chart is not None
    assert chart.names == ("rate", "views", "kind")
    assert pair_chart(points, [AXES[0], AXES[3]], ranked=["rate", "decay"]) is None


def test_there_is_none_of_few_trials_or_of_one_parameter() -> None:
    assert pair_chart(scored(LEAST_DRAWN - 1), AXES, ranked=NAMES) is None
    assert pair_chart(scored(9), AXES[:1], ranked=NAMES[:1]) is None


def test_of_many_the_best_half_is_kept() -> None:
    chart = pair_chart(scored(450), AXES, ranked=NAMES, across="kind", up="views")

    assert len(drawn(chart)) == MAX_DOTS
    assert set(range(250, 450)) <= set(drawn(chart))


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_quarters_hold_everything_in_order(count: int) -> None:
    parts = in_quarters(range(count))

    assert [each for part in parts for each in part] == list(range(count))
    assert {len(part) for part in parts} <= {math.floor(count / 4), math.ceil(count / 4)}
