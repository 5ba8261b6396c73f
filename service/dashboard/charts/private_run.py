"""The private run over its steps: what is done, charged and spent, how fast, and what it has released.

There is no accuracy and no loss to draw: the test split is scored once, at the end, and whatever else would be
read from the private data on the way would have to be charged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from service import text
from service.dashboard.charts.lines import Lines, Series, Value
from service.dashboard.charts.table import Table
from service.private_run.schemas import PrivateRunCurves, RatePoint, SpendingPoint, StepPoint
from tan_core.wire import UpdatePoint


@dataclass(frozen=True, slots=True)
class RunCharts:
    """What is drawn of a run; None where there is nothing to draw (yet)."""

    run: Lines | None
    """Steps over time, as charged and as done."""
    speed: Lines | None
    spending: Lines | None
    learning_rate: Lines | None
    updates: Lines | None

    def by_name(self) -> dict[str, Lines | None]:
        """As the addresses of their numbers have it."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def run_charts(curves: PrivateRunCurves) -> RunCharts:
    """The charts of a run."""
    return RunCharts(
        run=_steps_chart(curves),
        speed=_speed_chart(curves.progress),
        spending=_spending_chart(curves),
        learning_rate=_rate_chart(curves.learning_rates),
        updates=_updates_chart(curves.updates),
    )


def _steps_chart(curves: PrivateRunCurves) -> Lines | None:
    if not curves.progress:
        return None
    reported, segments = curves.progress, curves.segments
    start = min([reported[0].at, *(segment.at for segment in segments)])
    done = {_since(start, point.at): point for point in reported}
    paid = {_since(start, segment.at): segment.charged_steps for segment in segments}
    times = sorted({*done, *paid})
    carried = _carried(paid, times)
    steps = [done[t].step if t in done else None for t in times]
    summary = f"Step {text.number(reported[-1].step)} after {text.duration(times[-1])}"
    if segments:
        summary += f"; {text.number(segments[-1].charged_steps)} steps were charged"
    charged = [Series("charged", "stairs", carried, "amber")] if segments else []
    return Lines(
        x_label="Seconds",
        y_label="Steps",
        x=times,
        series=[*charged, Series("done", "line", steps, "accent")],
        summary=f"{summary}.",
        table=Table(
            ("seconds", "step", "steps charged"), list(zip(times, steps, carried, strict=True))
        ),
    )


def _speed_chart(reported: Sequence[StepPoint]) -> Lines | None:
    points = [point for point in reported if point.steps_per_second is not None]
    if not points:
        return None
    times = [_since(reported[0].at, point.at) for point in points]
    speeds = [point.steps_per_second for point in points]
    return Lines(
        x_label="Seconds",
        y_label="Steps per second",
        x=times,
        series=[Series("steps per second", "line", speeds, "accent")],
        summary=f"Speed of the private run; at last {text.number(speeds[-1])} steps per second.",
        table=Table(("seconds", "steps per second"), list(zip(times, speeds, strict=True))),
    )


def _spending_chart(curves: PrivateRunCurves) -> Lines | None:
    charged = curves.charged_steps
    if charged is None or len(curves.spending) < 2:
        return None
    points = curves.spending
    now = spent_by_now(curves)
    is_open = points[-1].charged_steps > charged
    reserved = [p.epsilon if p.charged_steps >= charged else None for p in points]
    spent = [p.epsilon if p.charged_steps <= charged else None for p in points]
    of_all = (
        f"{text.epsilon(now[-1].epsilon)} of {text.epsilon(points[-1].epsilon)} after {text.number(charged)} of "
        f"{text.number(points[-1].charged_steps)} steps"
    )
    in_all = f"{text.epsilon(now[-1].epsilon)} in all, after {text.number(charged)} steps"
    return Lines(
        x_label="Steps charged",
        y_label="ε",
        x=[point.charged_steps for point in points],
        series=[
            *([Series("reserved", "line", reserved, "muted")] if is_open else []),
            Series("spent", "line", spent, "accent"),
        ],
        summary=(
            f"Epsilon over the steps charged: {of_all if is_open else in_all}, at δ {text.number(curves.delta)}; "
            f"{curves.search_note}."
        ),
        table=Table(("steps charged", "epsilon"), [(p.charged_steps, p.epsilon) for p in points]),
    )


def spent_by_now(curves: PrivateRunCurves) -> list[SpendingPoint]:
    """What is charged already, the last point that of now; the rest is only reserved."""
    charged = curves.charged_steps or 0
    return [point for point in curves.spending if point.charged_steps <= charged]


def _rate_chart(points: Sequence[RatePoint]) -> Lines | None:
    if len({point.learning_rate for point in points}) < 2:
        return None  # a rate that stays is in the study.yaml
    rates = [point.learning_rate for point in points]
    return Lines(
        x_label="Step",
        y_label="Learning rate",
        x=[point.step for point in points],
        series=[Series("learning rate", "line", rates, "accent")],
        summary=(
            f"Learning rate over the steps: at most {text.number(max(rates))}, at last "
            f"{text.number(rates[-1])}."
        ),
        table=Table(
            ("step", "learning rate"), [(point.step, point.learning_rate) for point in points]
        ),
    )


def _updates_chart(points: Sequence[UpdatePoint]) -> Lines | None:
    norms = [point.gradient_norm for point in points]
    known = [norm for norm in norms if norm is not None]
    if not known:
        return None
    distances = [point.ema_distance for point in points]
    has_average = any(distance is not None for distance in distances)
    average = [Series("weights from their average", "line", distances, "amber")]
    return Lines(
        x_label="Step",
        y_label="Norm",
        x=[point.step for point in points],
        series=[
            Series("noisy gradient", "line", norms, "accent"),
            *(average if has_average else []),
        ],
        summary=(
            f"Norm of the noisy gradient over the steps: from {text.number(known[0])} to "
            f"{text.number(known[-1])}."
        ),
        table=Table(
            ("step", "norm of the noisy gradient", "distance of the weights from their average"),
            [(point.step, point.gradient_norm, point.ema_distance) for point in points],
        ),
    )


def _since(start: datetime, at: datetime) -> float:
    return round((at - start).total_seconds(), 3)


def _carried(paid: dict[float, int], times: Sequence[float]) -> list[Value]:
    carried: list[Value] = []
    for time in times:
        carried.append(paid.get(time, carried[-1] if carried else None))
    return carried
