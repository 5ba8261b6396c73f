import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest

from service.dashboard.charts.burndown import burndown_chart
from service.dashboard.charts.compared import Search, best_so_far, predictions_chart
from service.ledger.schemas import Account, Burndown, BurndownPoint, Head
from service.studies.schemas import StudyView
from tests.support.trials import RUNGS, make_trial


class TestBestSoFar:
    def test_each_search_ends_with_its_last_trial(self) -> None:
        chart = best_so_far(
            [Search("one", [(0, 0.5), (2, 0.7), (3, 0.6)]), Search("two", [(1, 0.6)])]
        )

        assert chart is not None
        assert list(chart.x) == [0, 1, 2, 3]
        assert [list(each.values) for each in chart.series] == [
            [0.5, 0.5, 0.7, 0.7],
            [None, 0.6, None, None],
        ]

    def test_is_none_without_a_completed_trial(self) -> None:
        assert best_so_far([Search("one", []), Search("two", [])]) is None

    def test_ten_thousand_trials_are_as_few_points_as_there_are_steps_up(self) -> None:
        trials = [(number, 0.5 + 0.1 * (number >= 5000)) for number in range(10_000)]

        chart = best_so_far([Search("one", trials), Search("two", [(3, 0.4)])])

        assert chart is not None
        assert list(chart.x) == [0, 3, 5000, 9999]


def burndown(*committed: float, budget: float = 10.0) -> Burndown:
    return Burndown(
        scope_id="dataset:digits",
        budget_epsilon=budget,
        delta=1e-5,
        accountant="rdp",
        head=Head(seq=len(committed), hash="0" * 64),
        points=[
            BurndownPoint(
                seq=place + 1,
                at=datetime(2026, 1, 2, tzinfo=UTC),
                committed_epsilon=each,
                charged_epsilon=each / 2,
                by_study={},
            )
            for place, each in enumerate(committed)
        ],
    )


class TestBurndownChart:
    def test_nothing_is_drawn_before_the_first_reservation(self) -> None:
        assert burndown_chart(burndown(0.0)) is None

    def test_the_budget_is_drawn_only_where_it_leaves_room_for_the_rest(self) -> None:
        near, far = (
            burndown_chart(burndown(0.0, 3.0)),
            burndown_chart(burndown(0.0, 3.0, budget=99)),
        )

        assert near is not None
        assert far is not None
        assert [each.label for each in near.series][-1] == "budget"
        assert [each.label for each in far.series][-1] == "charged and reserved"

    @pytest.mark.parametrize(("accountant", "dots"), [("pld", [1.25, 2.5]), ("rdp", [])])
    def test_it_ends_in_what_admits_studies_where_that_is_another(
        self, accountant: str, dots: list[float]
    ) -> None:
        account = SimpleNamespace(
            accountant=accountant, charged_epsilon=1.25, committed_epsilon=2.50001
        )

        chart = burndown_chart(burndown(0.0, 3.0), cast("Account", account))

        assert chart is not None
        found = [each.values for each in chart.series if each.kind == "dots"]
        assert [first for first, _ in found] == [None] * len(dots)
        assert [last for _, last in found] == pytest.approx(dots, rel=1e-4)
        assert ("it is 1.250 and 2.501" in chart.summary) == bool(dots)

    def test_over_time_its_points_are_the_moments_of_the_entries(self) -> None:
        found = burndown(0.0, 3.0)

        chart = burndown_chart(found, over_time=True)

        assert chart is not None
        assert list(chart.x) == [point.at.timestamp() for point in found.points]
        told = json.loads(chart.to_json())
        assert told["time"] is True
        assert told["data"][0] == list(chart.x)  # every digit of them

    def test_figures_are_never_said_smaller_than_they_are(self) -> None:
        chart = burndown_chart(burndown(0.0, 2.00001))

        assert chart is not None
        assert "2.001 with what is reserved" in chart.summary


class TestPredictions:
    def test_one_rung_of_one_study_is_enough(self) -> None:
        scored = make_trial(0, (0.9,))
        study = SimpleNamespace(name="early", best_trial=scored, prediction=None)

        chart = predictions_chart(cast("list[StudyView]", [study]))

        assert chart is not None
        assert [row[2:] for row in chart.table.rows] == [(RUNGS[0], 0.9)]
