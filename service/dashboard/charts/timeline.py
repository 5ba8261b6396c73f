"""The timeline of a search: a bar for each trial from begin to end, in as few rows as hold those at the same time.

Where workers wait there is a gap. Which worker had a trial is not known: a trial is put in the row that was free
last, as a worker that ends one begins the next.
"""

import json
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count

from service import text
from service.dashboard.charts.scale import SIZE, Frame, Scale, elapsed_scale
from service.dashboard.charts.table import Table

MAX_BARS = 600
"""The latest: of more than that most are thinner than a pixel."""
REPETITION = "repetition"
TALL = ("completed", "running", REPETITION)
"""Kinds of bars that fill their row; those that ended early are low."""
KINDS = (*TALL, "pruned", "diverged", "failed", "interrupted")
"""As keys and summary name them."""
MAX_LABELLED = 12
"""Rows; of more the first and the last have a number."""
_SHARE = {True: 0.8, False: 0.4}
"""Of a row: the height of a bar, by whether it is tall."""
_UNSURE = 0.05
"""Of a repetition: it is told when it ended and how long it took, so its begin is off by what the telling took."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a worker did for a trial."""

    number: int
    """Of the trial."""
    kind: str
    """The trial's state, or :data:`REPETITION`."""
    begin: datetime
    end: datetime | None
    """None: it goes on."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the template draws."""

    frame: Frame
    bars: tuple[tuple[str, str], ...]
    """Kind and path, of those kinds that there are."""
    marks: str
    """The middle of each bar from end to end, by begin: what a pointer is near to."""
    trials: str
    """Numbers of the trials, bar by bar."""
    named: str
    """What each of them is called, as JSON."""
    num_rows: int
    num_shown: int
    num_spans: int
    begin: datetime
    """Where the axis begins: with the first bar that is drawn."""
    busy: float
    """What of all rows is bars."""
    summary: str
    table: Table


def timeline(spans: Sequence[Span], now: datetime) -> Timeline | None:
    """The chart of what was done until now; None while nothing has begun."""
    if not spans:
        return None
    shown = sorted(spans, key=lambda span: (span.begin, span.number))[-MAX_BARS:]
    begin = shown[0].begin
    ends = [max(span.end or now, span.begin) for span in shown]
    scale = elapsed_scale((max(ends) - begin).total_seconds())
    rows = _rows(shown, ends)
    num_rows = max(rows) + 1
    bars: dict[str, str] = dict.fromkeys(KINDS, "")
    marks = ""
    for span, end, row in zip(shown, ends, rows, strict=True):
        left = scale.right((span.begin - begin).total_seconds())
        right = max(scale.right((end - begin).total_seconds()), left + 1)
        middle = SIZE * (row + 0.5) / num_rows
        height = SIZE * _SHARE[span.kind in TALL] / num_rows
        bars[span.kind] += f"M{left} {middle - height / 2:.4g}H{right}v{height:.4g}H{left}z"
        marks += f"M{left} {round(middle)}L{right} {round(middle)}"
    worked = sum((end - span.begin for span, end in zip(shown, ends, strict=True)), timedelta())
    whole = max(ends) - begin
    return Timeline(
        frame=_frame(scale, num_rows),
        bars=tuple((kind, path) for kind, path in bars.items() if path),
        marks=marks,
        trials=",".join(str(span.number) for span in shown),
        named=_named(shown, ends),
        num_rows=num_rows,
        num_shown=len(shown),
        num_spans=len(spans),
        begin=begin,
        busy=worked / (num_rows * whole) if whole else 1.0,
        summary=_summary(shown, num_rows, whole),
        table=Table(
            ("trial", "what", "began", "ended"),
            [
                (span.number, span.kind, _written(span.begin), span.end and _written(span.end))
                for span in shown
            ],
        ),
    )


def _rows(spans: Sequence[Span], ends: Sequence[datetime]) -> list[int]:
    """The row of each, from 0; of those that are free by then the one that was so last."""
    free: list[tuple[datetime, int]] = []
    numbers = count()
    rows: list[int] = []
    for span, end in zip(spans, ends, strict=True):
        unsure = _UNSURE * (end - span.begin) if span.kind == REPETITION else timedelta()
        place = bisect_right(free, span.begin + unsure, key=lambda each: each[0])
        row = free.pop(place - 1)[1] if place else next(numbers)
        insort(free, (end, row))
        rows.append(row)
    return rows


def _frame(scale: Scale, num_rows: int) -> Frame:
    """A line at each tick; rows have their number in their middle."""
    every = num_rows <= MAX_LABELLED
    labels = [str(row) if every or row in (1, num_rows) else "" for row in range(1, num_rows + 1)]
    return Frame(
        grid="".join(f"M{scale.right(tick)} 0v{SIZE}" for tick in scale.ticks),
        x_labels=scale.labels,
        y_labels=("", *(each for label in labels for each in (label, ""))),
    )


def _named(spans: Sequence[Span], ends: Sequence[datetime]) -> str:
    """The state of each trial and how long it took, and how often it was repeated."""
    repeated = Counter(span.number for span in spans if span.kind == REPETITION)
    names: dict[int, str] = {}
    for span, end in zip(spans, ends, strict=True):
        took = text.duration((end - span.begin).total_seconds())
        if span.kind == REPETITION:
            names.setdefault(span.number, f"trial {span.number}")
        else:
            names[span.number] = f"trial {span.number}: {span.kind}, {took}"
    for number, times in repeated.items():
        names[number] += f", {text.counted(times, REPETITION)}"
    return json.dumps(names)


def _summary(spans: Sequence[Span], num_rows: int, whole: timedelta) -> str:
    kinds = Counter(span.kind for span in spans)
    told = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
    return (
        f"When each trial ran, at most {num_rows} at once, "
        f"in {text.duration(whole.total_seconds())}: {told}."
    )


def _written(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds")
