"""The chart of a search: the accuracy of each trial by its number, and the best so far."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.dashboard.charts.scale import SIZE, Frame, accuracy_scale, count_scale, dots

MAX_POINTS = 2000
"""More dots than this say nothing more: the rest are thinned out evenly."""


@dataclass(frozen=True, slots=True)
class Point:
    """One trial: its number, its state, and its accuracy if it has one."""

    number: int
    state: str
    value: float | None


@dataclass(frozen=True, slots=True)
class SearchChart:
    """What the template draws."""

    frame: Frame
    dots: str
    """The completed trials."""
    other_dots: str
    """Trials with an accuracy that did not complete: running, pruned, ..."""
    lost: str
    """Ticks on the lower edge: trials that ended without an accuracy."""
    best: str
    """The best accuracy so far, as stairs."""
    num_shown: int
    summary: str
    """The chart in one sentence, for those who do not see it."""


def search_chart(points: Sequence[Point], *, num_expected: int = 0) -> SearchChart | None:
    """The chart of these trials in order of number; None while none has an accuracy.

    ``num_expected`` trials leave room for those that are still to come.
    """
    scored = [(p, p.value) for p in points if p.value is not None and math.isfinite(p.value)]
    if not scored:
        return None
    x = count_scale(max(points[-1].number, num_expected - 1))
    y = accuracy_scale([value for _, value in scored])
    shown = list(_thinned(scored))
    completed = [(p, v) for p, v in shown if p.state == "completed"]
    other = [(p, v) for p, v in shown if p.state != "completed"]
    lost = [p for p in points if p.value is None and p.state in ("diverged", "failed", "pruned")]
    corners = [(x.right(number), y.down(value)) for number, value in best_so_far(points)]
    return SearchChart(
        frame=Frame.of(x, y),
        dots=dots(((p.number, v) for p, v in completed), x, y),
        other_dots=dots(((p.number, v) for p, v in other), x, y),
        lost="".join(f"M{x.right(p.number)} {SIZE}v-24" for p in lost[:MAX_POINTS]),
        best=_stairs(corners, end=x.right(points[-1].number)),
        num_shown=len(shown),
        summary=_summary(points),
    )


def best_so_far(points: Sequence[Point]) -> list[tuple[int, float]]:
    """The completed trials that beat every completed one before them."""
    records: list[tuple[int, float]] = []
    for point in points:
        if point.state != "completed" or point.value is None:
            continue
        if not records or point.value > records[-1][1]:
            records.append((point.number, point.value))
    return records


def _thinned(scored: list[tuple[Point, float]]) -> Iterator[tuple[Point, float]]:
    stride = math.ceil(len(scored) / MAX_POINTS)
    return (pair for index, pair in enumerate(scored) if index % stride == 0)


def _stairs(corners: list[tuple[int, int]], *, end: int) -> str:
    if not corners:
        return ""
    (x0, y0), *rest = corners
    return f"M{x0} {y0}" + "".join(f"H{x}V{y}" for x, y in rest) + f"H{end}"


def _summary(points: Sequence[Point]) -> str:
    records = best_so_far(points)
    completed = sum(p.state == "completed" for p in points)
    if not records:
        return f"{len(points)} trials, none completed yet."
    number, value = records[-1]
    return (
        f"Validation accuracy of {completed} completed trials; the best is {100 * value:.1f} %, "
        f"trial {number}. Improved {len(records) - 1} times after the first."
    )
