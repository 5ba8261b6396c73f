"""Learning curves, the private run over time, and how lines and tables are written."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from service.dashboard.charts.compared_runs import NamedRun, compared_spending, compared_updates
from service.dashboard.charts.curves import (
    Curve,
    compared_curves,
    curves_chart,
    ladder_chart,
)
from service.dashboard.charts.lines import Lines, Series
from service.dashboard.charts.private_run import run_charts
from service.dashboard.charts.table import Table
from service.private_run.schemas import (
    PrivateRunCurves,
    RatePoint,
    Segment,
    SpendingPoint,
    StepPoint,
)
from service.trials.schemas import TrialView
from tan_core.wire import CurvePoint, RungScore, TrialState, UpdatePoint

START = datetime(2026, 1, 2, tzinfo=UTC)


def curve(trial: int, accuracies: dict[int, float]) -> Curve:
    points = [CurvePoint(step=step, accuracy=share) for step, share in accuracies.items()]
    score = RungScore(
        rung=1, expected_batch_size=32, noise_multiplier=0.6, steps=300, seconds=1.0,
        accuracy=0.9, curve=points,
    )  # fmt: skip
    return Curve(trial, score)


def learnt(number: int, accuracies: dict[int, float]) -> TrialView:
    return TrialView(
        number=number, state=TrialState.PRUNED, params={}, attempt=1, started_at=START,
        updated_at=START, finished_at=START, scores=[curve(number, accuracies).score],
    )  # fmt: skip


class TestCurves:
    def test_curves_with_other_steps_share_one_axis(self) -> None:
        chart = curves_chart([curve(7, {10: 0.5, 20: 0.8}), curve(3, {15: 0.6}), curve(4, {})])

        assert chart is not None
        assert chart.x == [10, 15, 20]
        assert [(each.label, list(each.values)) for each in chart.series] == [
            ("trial 7", [0.5, None, 0.8]),
            ("trial 3", [None, 0.6, None]),
        ]
        assert "batch 32; the best, trial 7, ends at 80.0 %" in chart.summary

    def test_simulations_of_one_trial_are_told_apart_by_batch_and_seed(self) -> None:
        first = curve(7, {10: 0.5, 20: 0.8}).score
        again = first.model_copy(update={"seed": 2})

        chart = ladder_chart([first, curve(7, {}).score, again])

        assert chart is not None
        assert [each.label for each in chart.series] == ["b = 32", "b = 32, seed 2"]
        assert chart.table.rows[0] == (32.0, 0, 10, 0.5)
        assert "2 simulations of one trial; b = 32, seed 2 ends at 80.0 %" in chart.summary

    def test_chosen_trials_keep_their_order_and_colours_at_every_rung(self) -> None:
        trials = [
            learnt(7, {10: 0.5, 20: 0.8}),
            learnt(3, {}).model_copy(update={"scores": []}),
            learnt(4, {15: 0.9}),
        ]

        chart = compared_curves(trials, 1)

        assert chart is not None
        assert [(each.label, list(each.values)) for each in chart.series] == [
            ("trial 7", [0.5, None, 0.8]),
            ("trial 3", [None, None, None]),
            ("trial 4", [None, 0.9, None]),
        ]
        assert chart.table.rows == [(7, 10, 0.5), (7, 20, 0.8), (4, 15, 0.9)]
        assert "batch 32, and where they end: trial 7 80.0 %, trial 4 90.0 %" in chart.summary
        assert compared_curves(trials, 0) is None

    def test_none_has_no_chart(self) -> None:
        assert curves_chart([]) is None
        assert curves_chart([curve(4, {})]) is None
        assert ladder_chart([curve(4, {}).score]) is None


def private_run(**changes: Any) -> PrivateRunCurves:
    """A run of which nothing is known yet, and what is."""
    known: dict[str, Any] = {
        "steps": 300, "charged_steps": None, "delta": 1e-5, "accountant": "pld",
        "neighboring_relation": "add_or_remove_one", "search_note": "search NOT accounted", "progress": [],
        "segments": [], "spending": [], "learning_rates": [], "updates": [],
    }  # fmt: skip
    return PrivateRunCurves.model_validate(known | changes)


def later(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class TestPrivateRun:
    def test_charges_stand_before_the_steps_they_pay_for(self) -> None:
        charts = run_charts(
            private_run(
                segments=[
                    Segment(at=START, start_step=0, num_steps=60, charged_steps=60),
                    Segment(at=later(8), start_step=40, num_steps=100, charged_steps=160),
                ],
                progress=[
                    StepPoint(at=later(4), step=40, steps_per_second=10.0),
                    StepPoint(at=later(12), step=90, steps_per_second=None),
                ],
            )
        )

        assert charts.run is not None
        assert charts.run.x == [0.0, 4.0, 8.0, 12.0]
        charged, done = charts.run.series
        assert list(charged.values) == [60, 60, 160, 160]
        assert list(done.values) == [None, 40, None, 90]
        assert charts.run.summary == "Step 90 after 12s; 160 steps were charged."
        assert charts.speed is not None
        assert list(charts.speed.series[0].values) == [10.0]

    def test_public_data_has_no_charges_to_draw(self) -> None:
        charts = run_charts(
            private_run(progress=[StepPoint(at=START, step=0, steps_per_second=None)])
        )

        assert charts.run is not None
        assert [each.label for each in charts.run.series] == ["done"]
        assert (charts.speed, charts.spending) == (None, None)

    def test_what_is_spent_and_what_is_reserved_meet_at_the_last_charge(self) -> None:
        points = [SpendingPoint(charged_steps=n, epsilon=n / 100) for n in (0, 100, 160, 200, 330)]

        chart = run_charts(private_run(charged_steps=160, spending=points)).spending

        assert chart is not None
        reserved, spent = chart.series
        assert list(spent.values) == [0, 1.0, 1.6, None, None]
        assert list(reserved.values) == [None, None, 1.6, 2.0, 3.3]
        assert "1.600 of 3.300 after 160 of 330 steps" in chart.summary
        assert "search NOT accounted" in chart.summary

    def test_of_a_run_that_ended_all_is_drawn_that_was_spent_and_nothing_else(self) -> None:
        points = [SpendingPoint(charged_steps=n, epsilon=n / 100) for n in (0, 100, 160)]

        chart = run_charts(private_run(charged_steps=160, spending=points)).spending

        assert chart is not None
        (spent,) = chart.series
        assert list(spent.values) == [0, 1.0, 1.6]
        assert "1.600 in all, after 160 steps" in chart.summary

    def test_a_rate_that_stays_is_not_drawn_and_one_that_moves_is(self) -> None:
        rates = [RatePoint(step=step, learning_rate=2.0) for step in range(3)]
        falling = [*rates, RatePoint(step=3, learning_rate=0.5)]

        assert run_charts(private_run(learning_rates=rates)).learning_rate is None
        chart = run_charts(private_run(learning_rates=falling)).learning_rate
        assert chart is not None
        assert list(chart.series[0].values) == [2.0, 2.0, 2.0, 0.5]

    def test_noisy_gradients_are_drawn_with_the_average_where_one_is_kept(self) -> None:
        def points(distance: float | None) -> list[UpdatePoint]:
            return [
                UpdatePoint(step=step, gradient_norm=norm, ema_distance=distance)
                for step, norm in ((0, 1.5), (2, None), (4, 0.5))
            ]

        without = run_charts(private_run(updates=points(None))).updates
        beside = run_charts(private_run(updates=points(0.1))).updates

        assert without is not None
        assert beside is not None
        assert [len(chart.series) for chart in (without, beside)] == [1, 2]
        assert list(without.series[0].values) == [1.5, None, 0.5]

    def test_before_a_report_there_is_nothing(self) -> None:
        charts = run_charts(private_run())

        assert not any(charts.by_name().values())


class TestComparedRuns:
    def test_each_run_is_drawn_as_far_as_it_is_charged(self) -> None:
        points = [SpendingPoint(charged_steps=n, epsilon=n / 100) for n in (0, 100, 200)]
        chart = compared_spending(
            [
                NamedRun("half", private_run(charged_steps=100, spending=points)),
                NamedRun("queued", None),
                NamedRun("whole", private_run(charged_steps=200, spending=points)),
            ]
        )

        assert chart is not None
        assert chart.x == [0, 100, 200]
        assert [list(each.values) for each in chart.series] == [
            [0, 1.0, None],
            [None, None, None],
            [0, 1.0, 2.0],
        ]

    def test_without_a_charge_or_an_update_there_is_nothing(self) -> None:
        runs = [NamedRun("queued", None), NamedRun("public", private_run())]

        assert compared_spending(runs) is None
        assert compared_updates(runs) is None


class TestWriting:
    def test_points_are_short_and_what_is_no_number_is_left_out(self) -> None:
        table = Table(("a",), [])
        series = [Series("y", "line", [1 / 3, None, float("nan")])]

        written = json.loads(Lines("x", "y", [0.0, 1.0, 2.5], series, "", table).to_json())

        assert written["data"] == [[0, 1, 2.5], [0.333333, None, None]]

    def test_csv_has_every_digit_and_runs_nothing(self) -> None:
        table = Table(("share", "note"), [(1 / 3, "=1+1"), (-0.5, 'a,"b"')])

        assert table.csv() == 'share,note\r\n0.3333333333333333,\'=1+1\r\n-0.5,"a,""b"""\r\n'
