"""The history of a search: the accuracy of each trial by its number, and the best so far."""

import math
from collections.abc import Sequence

from service import text
from service.dashboard.charts.lines import Lines, Series, Value
from service.dashboard.charts.table import Table
from service.dashboard.charts.trial_point import TrialPoint, completed

MAX_BUCKETS = 600
"""Of a thinned history: each keeps its best and its worst point of either kind."""


def history_chart(points: Sequence[TrialPoint]) -> Lines | None:
    """The chart of these trials in order of number; None while none has an accuracy."""
    scored = [(p, p.value) for p in points if p.value is not None and math.isfinite(p.value)]
    if not scored:
        return None
    records = best_so_far(points)
    kept = _thinned(scored) | {number for number, _ in records} | {scored[-1][0].number}
    shown = [(p, v) for p, v in scored if p.number in kept]
    best = _carried(records, [p.number for p, _ in shown])
    return Lines(
        x_label="Trial",
        y_label="Validation accuracy",
        x=[p.number for p, _ in shown],
        series=[
            Series(
                "ended earlier",
                "dots",
                [v if p.state != "completed" else None for p, v in shown],
                "amber",
            ),
            Series(
                "completed",
                "dots",
                [v if p.state == "completed" else None for p, v in shown],
                "muted",
            ),
            Series("best so far", "stairs", best, "accent"),
        ],
        summary=_summary(points, records),
        table=Table(
            ("trial", "state", "accuracy", "best so far"),
            [
                (p.number, p.state, v, b)
                for (p, v), b in zip(
                    scored, _carried(records, [p.number for p, _ in scored]), strict=True
                )
            ],
        ),
        is_share=True,
    )


def best_so_far(points: Sequence[TrialPoint]) -> list[tuple[int, float]]:
    """The completed trials that beat every completed one before them."""
    records: list[tuple[int, float]] = []
    for point, value in completed(points):
        if not records or value > records[-1][1]:
            records.append((point.number, value))
    return records


def _carried(records: Sequence[tuple[int, float]], numbers: Sequence[int]) -> list[Value]:
    """The best at each of these rising numbers."""
    carried: list[Value] = []
    best: Value = None
    upcoming = list(reversed(records))
    for number in numbers:
        while upcoming and upcoming[-1][0] <= number:
            best = upcoming.pop()[1]
        carried.append(best)
    return carried


def _thinned(scored: Sequence[tuple[TrialPoint, float]]) -> set[int]:
    """Numbers of the highest and the lowest point of each kind in each bucket: no outlier is lost."""
    stride = max(1, math.ceil(len(scored) / MAX_BUCKETS))
    kept: set[int] = set()
    for start in range(0, len(scored), stride):
        bucket = scored[start : start + stride]
        for is_completed in (True, False):
            kind = [pair for pair in bucket if (pair[0].state == "completed") is is_completed]
            if kind:
                ends = (min(kind, key=lambda pair: pair[1]), max(kind, key=lambda pair: pair[1]))
                kept.update(point.number for point, _ in ends)
    return kept


def _summary(points: Sequence[TrialPoint], records: Sequence[tuple[int, float]]) -> str:
    if not records:
        return f"{text.counted(len(points), 'trial')}, none completed."
    number, value = records[-1]
    return (
        f"Validation accuracy of {text.counted(len(completed(points)), 'completed trial')}; the best is "
        f"{text.percent(value)}, trial {number}. "
        f"Improved {text.counted(len(records) - 1, 'time')} after the first."
    )
