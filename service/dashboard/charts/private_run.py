"""The private run over time: its steps, as done and as charged, and its speed.

There is no accuracy to draw: the test split is read once, at the end, and whatever else would be read from
the private data on the way would have to be charged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from service import text
from service.dashboard.charts.lines import Lines, Series, Value
from service.dashboard.charts.table import Table

MAX_POINTS = 600


@dataclass(frozen=True, slots=True)
class StepPoint:
    """What a driver reported."""

    at: datetime
    step: int
    steps_per_second: float | None


@dataclass(frozen=True, slots=True)
class Charge:
    """A segment that was charged before it ran."""

    at: datetime
    num_steps: int


@dataclass(frozen=True, slots=True)
class RunCharts:
    """Both charts have the same x: seconds since the first charge or report."""

    steps: Lines
    speed: Lines | None
    """None while no speed is known."""


def run_charts(reported: Sequence[StepPoint], charges: Sequence[Charge]) -> RunCharts | None:
    """The charts of a run; None before anything was reported."""
    if not reported:
        return None
    start = min([reported[0].at, *(charge.at for charge in charges)])
    charged = list(accumulate(charge.num_steps for charge in charges))
    done = {_since(start, point.at): point for point in _thinned(reported)}
    paid = {_since(start, charge.at): sum_ for charge, sum_ in zip(charges, charged, strict=True)}
    times = sorted({*done, *paid})
    carried = _carried(paid, times)
    speeds = [point for point in done.values() if point.steps_per_second is not None]
    last = reported[-1]
    summary = f"Step {text.number(last.step)} after {text.duration(times[-1])}"
    if charged:
        summary += f"; {text.number(charged[-1])} steps were charged"
    return RunCharts(
        steps=Lines(
            x_label="Seconds",
            y_label="Steps",
            x=times,
            series=[
                *([Series("charged", "stairs", carried, "amber")] if charged else []),
                Series(
                    "done", "line", [done[t].step if t in done else None for t in times], "accent"
                ),
            ],
            summary=f"{summary}.",
            table=Table(
                ("seconds", "step", "steps charged", "steps per second"),
                [
                    (
                        t,
                        done[t].step if t in done else None,
                        sum_,
                        done[t].steps_per_second if t in done else None,
                    )
                    for t, sum_ in zip(times, carried, strict=True)
                ],
            ),
        ),
        speed=_speed_chart(start, speeds) if speeds else None,
    )


def _speed_chart(start: datetime, points: Sequence[StepPoint]) -> Lines:
    times = [_since(start, point.at) for point in points]
    speeds = [point.steps_per_second for point in points]
    return Lines(
        x_label="Seconds",
        y_label="Steps per second",
        x=times,
        series=[Series("steps per second", "line", speeds, "accent")],
        summary=f"Speed of the private run; at last {text.number(speeds[-1])} steps per second.",
        table=Table(("seconds", "steps per second"), list(zip(times, speeds, strict=True))),
    )


def _since(start: datetime, at: datetime) -> float:
    return round((at - start).total_seconds(), 3)


def _carried(paid: dict[float, int], times: Sequence[float]) -> list[Value]:
    carried: list[Value] = []
    for time in times:
        carried.append(paid.get(time, carried[-1] if carried else None))
    return carried


def _thinned(points: Sequence[StepPoint]) -> Sequence[StepPoint]:
    stride = -(-len(points) // MAX_POINTS)
    return [*points[:-1:stride], points[-1]]
