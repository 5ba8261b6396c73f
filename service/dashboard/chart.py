"""The chart of a search: where each trial goes, in a plot area of 1000 by 1000. Pure.

The template draws it as an SVG that stretches with the page, with the labels of the axes as text
beside it, so nothing here knows pixels or colours.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SIZE = 1000
MAX_POINTS = 2000
"""More dots than this say nothing more: the rest are thinned out evenly."""
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Point:
    """One trial: its number, its state, and its accuracy if it has one."""

    number: int
    state: str
    value: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    """What the template draws."""

    dots: str
    """SVG path of the completed trials: a zero-length line each, round at its ends."""
    other_dots: str
    """The same for trials with an accuracy that did not complete: running, pruned, ..."""
    lost: str
    """Ticks on the lower edge: trials that ended without an accuracy."""
    best: str
    """The best accuracy so far, as stairs."""
    grid: str
    y_labels: tuple[str, ...]
    """Evenly spaced, highest first."""
    x_labels: tuple[str, ...]
    """Evenly spaced trial numbers, lowest first."""
    num_shown: int
    summary: str
    """The chart in one sentence, for those who do not see it."""


def search_chart(points: Sequence[Point], *, num_expected: int = 0) -> Chart | None:
    """The chart of these trials in order of number; None while none has an accuracy.

    ``num_expected`` trials leave room for those that are still to come.
    """
    scored = [(p, p.value) for p in points if p.value is not None and math.isfinite(p.value)]
    if not scored:
        return None
    values = [value for _, value in scored]
    y_ticks = accuracy_ticks(min(values), max(values))
    x_ticks = number_ticks(max(points[-1].number, num_expected - 1))
    low, high, last = y_ticks[0], y_ticks[-1], x_ticks[-1]

    def x(number: int) -> str:
        return f"{SIZE * number / last:.0f}"

    def y(value: float) -> str:
        return f"{SIZE * (high - value) / (high - low):.0f}"

    shown = list(_thinned(scored))
    completed = [(p, v) for p, v in shown if p.state == "completed"]
    other = [(p, v) for p, v in shown if p.state != "completed"]
    lost = [p for p in points if p.value is None and p.state in ("diverged", "failed", "pruned")]
    return Chart(
        dots="".join(f"M{x(p.number)} {y(v)}h0" for p, v in completed),
        other_dots="".join(f"M{x(p.number)} {y(v)}h0" for p, v in other),
        lost="".join(f"M{x(p.number)} {SIZE}v-24" for p in lost[:MAX_POINTS]),
        best=_stairs([(x(n), y(v)) for n, v in best_so_far(points)], end=x(points[-1].number)),
        grid="".join(f"M0 {y(tick)}h{SIZE}" for tick in y_ticks),
        y_labels=tuple(_percent(tick, y_ticks[1] - low) for tick in reversed(y_ticks)),
        x_labels=tuple(str(tick) for tick in x_ticks),
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


def accuracy_ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Evenly spaced round shares that hold ``low`` and ``high``, at least two."""
    step = max(_round_step(max(high - low, 0.01) / (about - 1)), 0.002)
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil(high / step - 1e-9), first + 1)
    return [round(k * step, 9) for k in range(first, last + 1)]


def number_ticks(highest: int, *, about: int = 8) -> list[int]:
    """Evenly spaced whole numbers from 0 that hold ``highest``, at least two."""
    step = max(1, math.ceil(_round_step(max(highest, 1) / (about - 1))))
    return list(range(0, max(highest, 1) + step, step))


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next((k * power for k in _STEPS if k * power >= least * (1 - 1e-9)), 10 * power)


def _thinned(scored: list[tuple[Point, float]]) -> Iterator[tuple[Point, float]]:
    stride = math.ceil(len(scored) / MAX_POINTS)
    return (pair for index, pair in enumerate(scored) if index % stride == 0)


def _stairs(corners: list[tuple[str, str]], *, end: str) -> str:
    if not corners:
        return ""
    (x0, y0), *rest = corners
    return f"M{x0} {y0}" + "".join(f"H{x}V{y}" for x, y in rest) + f"H{end}"


def _percent(tick: float, step: float) -> str:
    return f"{100 * tick:.{0 if step >= 0.01 else 1}f} %"


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
