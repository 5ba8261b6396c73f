"""The timeline of a search: where its bars lie, in which rows, and what they are called."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from service.dashboard.charts.scale import elapsed_scale
from service.dashboard.charts.timeline import (
    KINDS,
    MAX_BARS,
    REPETITION,
    Span,
    Timeline,
    timeline,
)
from tan_core.wire import TrialState

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NOW = NOON + timedelta(seconds=100)


def span(number: int, begin: float, end: float | None, kind: str = "completed") -> Span:
    """Of seconds after noon."""
    ended = None if end is None else NOON + timedelta(seconds=end)
    return Span(number, kind, NOON + timedelta(seconds=begin), ended)


def drawn(*spans: Span) -> Timeline:
    chart = timeline(spans, NOW)
    assert chart is not None
    return chart


def rows(chart: Timeline) -> dict[int, int]:
    """The row of each trial's last bar, by its mark."""
    marks = re.findall(r"M\d+ (\d+)L\d+ \d+", chart.marks)
    numbers = map(int, chart.trials.split(","))
    return {n: int(y) * chart.num_rows // 1000 for n, y in zip(numbers, marks, strict=True)}


def bars(path: str) -> list[tuple[int, float, float, int]]:
    """Left, top, height and right of each."""
    found = re.findall(r"M(\d+) ([\d.]+)H(\d+)v([\d.]+)H(\d+)z", path)
    assert all(left == back for left, *_, back in found)
    return [(int(left), float(top), float(high), int(right)) for left, top, right, high, _ in found]


def test_a_bar_reaches_from_begin_to_end_in_the_colour_of_its_state() -> None:
    chart = drawn(span(0, 0, 30), span(1, 10, 60, "pruned"), span(2, 60, None, "running"))

    kinds = dict(chart.bars)
    assert list(kinds) == ["completed", "running", "pruned"]
    assert bars(kinds["completed"]) == [(0, 50, 400, 250)]
    assert bars(kinds["pruned"]) == [(83, 650, 200, 500)]
    (running,) = bars(kinds["running"])
    assert (running[0], running[3]) == (500, 833)
    assert chart.frame.x_labels[-1] == "120 s"
    assert chart.begin == NOON


def test_trials_at_one_time_have_a_row_each_and_no_more_rows_are_taken() -> None:
    chart = drawn(span(0, 0, 10), span(1, 1, 30), span(2, 2, 20), span(3, 10, 15), span(4, 31, 40))

    assert chart.num_rows == 3
    assert rows(chart) == {0: 0, 1: 1, 2: 2, 3: 0, 4: 1}
    assert chart.frame.y_labels == ("", "1", "", "2", "", "3", "")
    assert "at most 3 at once" in chart.summary


def test_of_the_rows_that_are_free_the_last_one_is_taken_so_that_idle_ones_are_seen() -> None:
    chart = drawn(span(0, 0, 10), span(1, 0, 40), *(span(n, 40 + n, 41 + n) for n in range(2, 9)))

    assert set(rows(chart).values()) == {0, 1}
    assert [number for number, row in rows(chart).items() if row == 0] == [0]
    assert chart.busy == pytest.approx((10 + 40 + 7) / (2 * 49))


def test_of_many_rows_the_first_and_the_last_are_numbered() -> None:
    labels = drawn(*(span(number, 0, 10) for number in range(40))).frame.y_labels

    assert [label for label in labels if label] == ["1", "40"]
    assert (labels[1], labels[-2], len(labels)) == ("1", "40", 81)


def test_repetitions_are_bars_of_their_own_whose_begin_may_be_off_by_a_little() -> None:
    chart = drawn(span(0, 0, 20), span(0, 19.6, 40, REPETITION), span(0, 39.5, 60, REPETITION))

    assert chart.num_rows == 1
    assert chart.trials == "0,0,0"
    assert len(bars(dict(chart.bars)[REPETITION])) == 2
    assert json.loads(chart.named) == {"0": "trial 0: completed, 20s, 2 repetitions"}
    assert drawn(span(0, 0, 20), span(1, 19.6, 40)).num_rows == 2


def test_each_bar_says_how_its_trial_stands_and_how_long_it_took() -> None:
    chart = drawn(span(3, 0, 65, "diverged"), span(4, 40, None, "running"))

    assert json.loads(chart.named) == {
        "3": "trial 3: diverged, 1m05s",
        "4": "trial 4: running, 1m00s",
    }
    assert chart.summary.endswith("in 1m40s: 1 running, 1 diverged.")
    assert chart.table.rows == [
        (3, "diverged", "2026-01-02T12:00:00.000+00:00", "2026-01-02T12:01:05.000+00:00"),
        (4, "running", "2026-01-02T12:00:40.000+00:00", None),
    ]


def test_of_many_the_latest_are_drawn() -> None:
    chart = drawn(*(span(number, number / 10, number / 10 + 0.1) for number in range(MAX_BARS + 9)))

    assert (chart.num_shown, chart.num_spans) == (MAX_BARS, MAX_BARS + 9)
    assert chart.trials.split(",")[0] == "9"
    assert all(right > left for _, path in chart.bars for left, _, _, right in bars(path))


def test_what_took_no_time_is_seen() -> None:
    chart = drawn(span(0, 100, 100, "failed"))

    assert bars(chart.bars[0][1]) == [(0, 300, 400, 1)]
    assert chart.frame.x_labels == ("0", "1 s")


def test_every_state_of_a_trial_has_its_bars() -> None:
    chart = drawn(*(span(number, 0, 9, state) for number, state in enumerate(TrialState)))

    assert [kind for kind, _ in chart.bars] == [kind for kind in KINDS if kind != REPETITION]


def test_there_is_none_before_the_first_begin() -> None:
    assert timeline([], NOW) is None


@pytest.mark.parametrize("seconds", [0.3, 7, 59, 61, 3599, 40_000, 86_401, 3e6, 4e8])
def test_ticks_of_elapsed_time_hold_it_in_few_intervals(seconds: float) -> None:
    scale = elapsed_scale(seconds)

    assert scale.ticks[-1] >= seconds > scale.ticks[-2] - 1e-9
    assert len(scale.ticks) <= 7 or seconds > 6 * 500 * 86_400
    assert len({b - a for a, b in zip(scale.ticks, scale.ticks[1:], strict=False)}) == 1
