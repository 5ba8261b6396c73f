"""The chart of a prediction, against the law that predicts."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.dashboard.charts.prediction import PredictionChart, prediction_chart
from service.dashboard.charts.scale import SIZE
from service.studies.schemas import Prediction, PredictionView
from tan_core.planner import rests_on
from tan_core.tan import fit_law
from tan_core.wire import RungScore, TrialRecord, TrialState
from tests.unit.service.dashboard.charts.marks import bars, dots, line

BATCHES = (64, 256, 1024)
PRIVATE = 4096


def ladder(accuracies: Sequence[float | None], *, seed: int = 0) -> list[RungScore]:
    return [
        RungScore(
            rung=rung, seed=seed, expected_batch_size=BATCHES[rung], noise_multiplier=1.0,
            steps=100, accuracy=accuracy, seconds=1.0,
        )
        for rung, accuracy in enumerate(accuracies)
    ]  # fmt: skip


def trial(scores: list[RungScore], repeats: list[RungScore]) -> TrialRecord:
    return TrialRecord(
        number=5, state=TrialState.COMPLETED, params={}, scores=scores, repeats=repeats
    )


def predicted(record: TrialRecord, *, reached: float | None = None) -> PredictionView:
    fitted = rests_on(record)
    ahead = fit_law(fitted).predict(PRIVATE)
    known = Prediction(
        **{
            name: getattr(ahead, name)
            for name in ("accuracy", "low", "high", "level", "method", "slope", "caution")
        },
        expected_batch_size=PRIVATE,
        trial=5,
        seeds=len({score.seed for score in fitted}),
        is_fresh=bool(record.repeats),
    )
    return PredictionView.of(known, reached)


def drawn(record: TrialRecord, *, reached: float | None = None) -> PredictionChart:
    chart = prediction_chart(predicted(record, reached=reached), record)
    assert chart is not None
    return chart


class TestLine:
    @given(start=st.floats(0.5, 0.9), slope=st.floats(-0.02, -1e-4))
    def test_accuracies_on_a_line_lie_on_the_line_that_is_drawn(
        self, start: float, slope: float
    ) -> None:
        straight = [start + slope * math.log2(batch / 64) for batch in BATCHES]

        chart = drawn(trial(ladder(straight), ladder(straight, seed=1)))

        corners = line(chart.line)
        (x, y), (to_x, to_y) = corners[0], corners[-1]
        assert (x, to_x) == (0, SIZE)
        assert len(dots(chart.fitted)) == 2 * len(BATCHES)
        for across, down in (*dots(chart.fitted), *corners):
            assert down == pytest.approx(y + (to_y - y) * across / SIZE, abs=2)
        assert dots(chart.predicted) == [(to_x, to_y)]

    def test_a_rise_is_followed_through_the_rungs_to_where_it_dies_away(self) -> None:
        rising = [0.95 / (1 + 0.2 * 64 / batch) for batch in BATCHES]

        chart = drawn(trial(ladder(rising), []))

        corners = line(chart.line)
        heights = [SIZE - down for _, down in corners]
        climbs = [after - before for before, after in pairwise(heights)]
        assert corners[0] == dots(chart.fitted)[0]
        assert heights == sorted(heights)
        assert climbs[0] > 10 * max(climbs[-4:])
        assert corners[-1] == dots(chart.predicted)[0]

    def test_rungs_off_any_line_are_followed_from_the_largest_alone(self) -> None:
        chart = drawn(trial(ladder([0.8, 0.1, 0.7]), []))

        assert line(chart.line)[0] == dots(chart.fitted)[-1]

    def test_a_rung_that_knows_too_little_is_no_part_of_it(self) -> None:
        chart = drawn(trial(ladder([0.25, 0.44, 0.50]), []))

        assert len(dots(chart.fitted)) == 2
        assert len(dots(chart.others)) == 1
        assert line(chart.line)[0][0] == dots(chart.fitted)[0][0]

    def test_what_an_older_law_predicted_stays_where_it_was(self) -> None:
        record = trial(ladder([0.95, 0.94, 0.93]), [])
        older = predicted(record).model_copy(update={"accuracy": 0.90, "low": 0.88})

        chart = prediction_chart(older, record)

        assert chart is not None
        assert line(chart.line)[-1][1] < dots(chart.predicted)[0][1]

    def test_how_far_a_prediction_lies_beside_its_end_is_told(self) -> None:
        record = trial(ladder([0.95, 0.94, 0.93]), [])
        known = predicted(record)
        moved = known.model_copy(update={"accuracy": known.accuracy + 0.018, "ahead": 0.018})

        on, above = (prediction_chart(one, record) for one in (known, moved))

        assert on is not None
        assert above is not None
        assert (on.beside, above.beside) == pytest.approx((0.0, 0.018), abs=1e-9)


class TestMarks:
    def test_luck_and_ladders_left_on_the_way_are_told_from_what_is_fitted(self) -> None:
        repeats = [*ladder([0.90, 0.89, 0.88], seed=1), *ladder([0.91, 0.90, 0.89], seed=2)]
        repeats += ladder([0.95], seed=3)

        chart = drawn(trial(ladder([0.95, 0.94, 0.93]), repeats), reached=0.87)

        assert len(dots(chart.fitted)) == 6
        assert len(dots(chart.others)) == 4
        assert len(dots(chart.reached)) == 1
        highest = min(down for _, down in dots(chart.fitted))
        assert all(down < highest for _, down in dots(chart.others))

    def test_a_prediction_of_fresh_seeds_alone_is_drawn_so(self) -> None:
        """The first versions left the search's own seed out."""
        record = trial(ladder([0.90, 0.89, 0.88]), ladder([0.91, 0.90, 0.89], seed=1))
        older = predicted(record).model_copy(update={"seeds": 1})

        chart = prediction_chart(older, record)

        assert chart is not None
        assert (len(dots(chart.fitted)), len(dots(chart.others))) == (3, 3)

    def test_without_fresh_seeds_the_scores_themselves_are_fitted(self) -> None:
        chart = drawn(trial(ladder([0.95, 0.94, 0.93]), []))

        assert (len(dots(chart.fitted)), chart.others, chart.reached) == (3, "", "")

    def test_what_was_given_up_is_not_drawn(self) -> None:
        chart = drawn(trial(ladder([0.9, 0.9, 0.9]), ladder([0.9, 0.9, None], seed=1)))

        assert (len(dots(chart.fitted)), len(dots(chart.others))) == (3, 2)

    def test_a_trial_without_an_accuracy_has_no_chart(self) -> None:
        scored = trial(ladder([0.9]), [])

        assert prediction_chart(predicted(scored), trial(ladder([None]), [])) is None

    @example(accuracies=[0.0, 1.0, 2.2e-313], reached=None)
    @given(
        accuracies=st.lists(st.floats(0, 1), min_size=3, max_size=3),
        reached=st.none() | st.floats(0, 1),
    )
    def test_every_mark_lies_inside_the_plot_and_the_prediction_inside_its_interval(
        self, accuracies: list[float], reached: float | None
    ) -> None:
        chart = drawn(trial(ladder(accuracies), []), reached=reached)

        for across, down in dots(chart.fitted + chart.predicted + chart.reached):
            assert 0 <= across <= SIZE
            assert 0 <= down <= SIZE
        ((across, low, high),) = bars(chart.interval)
        ((_, middle),) = dots(chart.predicted)
        assert across == SIZE
        assert 0 <= high <= middle <= low <= SIZE

    def test_the_chart_is_put_in_words(self) -> None:
        record = trial(ladder([0.95, 0.94, 0.93]), ladder([0.9, 0.89, 0.88], seed=1))

        assert drawn(record, reached=0.871).summary.startswith(
            "Trial 5 scored 90.0 % at batch 64, 89.0 % at batch 256, 88.0 % at batch 1,024; "
            "predicted are 87.5 % ["
        )
        assert "reached were 87.1 %" in drawn(record, reached=0.871).summary
        assert "reached" not in drawn(record).summary
