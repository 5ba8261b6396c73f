"""Learning curves, the private run over time, and how lines and tables are written."""

import json
from datetime import UTC, datetime, timedelta

from service.dashboard.charts.curves import Curve, curves_chart
from service.dashboard.charts.lines import Lines, Series
from service.dashboard.charts.private_run import MAX_POINTS, Charge, StepPoint, run_charts
from service.dashboard.charts.table import Table
from tan_core.wire import CurvePoint, RungScore

START = datetime(2026, 1, 2, tzinfo=UTC)


def curve(trial: int, accuracies: dict[int, float]) -> Curve:
    points = [CurvePoint(step=step, accuracy=share) for step, share in accuracies.items()]
    score = RungScore(
        rung=1, expected_batch_size=32, noise_multiplier=0.6, steps=300, seconds=1.0,
        accuracy=0.9, curve=points,
    )  # fmt: skip
    return Curve(trial, score)


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

    def test_none_has_no_chart(self) -> None:
        assert curves_chart([]) is None
        assert curves_chart([curve(4, {})]) is None


class TestPrivateRun:
    def test_charges_stand_before_the_steps_they_pay_for(self) -> None:
        charges = [Charge(START, 60), Charge(START + timedelta(seconds=8), 100)]
        reported = [
            StepPoint(START + timedelta(seconds=4), 40, 10.0),
            StepPoint(START + timedelta(seconds=12), 90, None),
        ]

        charts = run_charts(reported, charges)

        assert charts is not None
        assert charts.steps.x == [0.0, 4.0, 8.0, 12.0]
        charged, done = charts.steps.series
        assert list(charged.values) == [60, 60, 160, 160]
        assert list(done.values) == [None, 40, None, 90]
        assert charts.steps.summary == "Step 90 after 12s; 160 steps were charged."
        assert charts.speed is not None
        assert list(charts.speed.series[0].values) == [10.0]

    def test_public_data_has_no_charges_to_draw(self) -> None:
        charts = run_charts([StepPoint(START, 0, None)], [])

        assert charts is not None
        assert [each.label for each in charts.steps.series] == ["done"]
        assert charts.speed is None

    def test_a_long_run_is_thinned_to_its_end(self) -> None:
        points = [StepPoint(START + timedelta(seconds=n), n, 1.0) for n in range(5000)]

        charts = run_charts(points, [])

        assert charts is not None
        assert len(charts.steps.x) <= MAX_POINTS + 1
        assert charts.steps.series[0].values[-1] == 4999

    def test_before_a_report_there_is_nothing(self) -> None:
        assert run_charts([], [Charge(START, 60)]) is None


class TestWriting:
    def test_points_are_short_and_what_is_no_number_is_left_out(self) -> None:
        table = Table(("a",), [])
        series = [Series("y", "line", [1 / 3, None, float("nan")])]

        written = json.loads(Lines("x", "y", [0.0, 1.0, 2.5], series, "", table).to_json())

        assert written["data"] == [[0, 1, 2.5], [0.333333, None, None]]

    def test_csv_has_every_digit_and_runs_nothing(self) -> None:
        table = Table(("share", "note"), [(1 / 3, "=1+1"), (-0.5, 'a,"b"')])

        assert table.csv() == 'share,note\r\n0.3333333333333333,\'=1+1\r\n-0.5,"a,""b"""\r\n'
