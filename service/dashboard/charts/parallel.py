"""Parallel coordinates: a line for each trial, over the searched parameters to its accuracy at one batch."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from service import text
from service.dashboard.charts.axis import ACCURACY, Axis
from service.dashboard.charts.scale import SIZE, accuracy_scale
from service.dashboard.charts.table import Table
from service.dashboard.charts.trial_point import TrialPoint, in_quarters, named, spread

MAX_LINES = 300
"""More than this are one dark band: the best half of them is drawn, and the others thinned out."""


@dataclass(frozen=True, slots=True)
class ParallelChart:
    """What the template draws."""

    axes: tuple[tuple[str, tuple[str, ...]], ...]
    """Name and labels of each, from the left; labels from the low end."""
    rules: str
    tones: tuple[str, ...]
    """Paths of the quarters by accuracy, the best last, so that it lies on top; each trial's is a line of its own."""
    scales: str
    """Each axis from the left, as JSON for the script that lets a reader choose a part of it."""
    trials: str
    """Numbers of the trials, line by line."""
    named: str
    """What each of them is called, as JSON."""
    num_shown: int
    summary: str
    table: Table


def parallel_chart(
    scored: Sequence[tuple[TrialPoint, float]], axes: Sequence[Axis]
) -> ParallelChart | None:
    """The chart of trials with their accuracies at one batch; None with fewer than two, or nothing searched."""
    if len(scored) < 2 or not axes:
        return None
    shown = spread(scored, MAX_LINES)
    scale = accuracy_scale([value for _, value in shown])
    paths = [_path(point, scale.down(value), axes) for point, value in reversed(shown)]
    best, value = shown[0]
    return ParallelChart(
        axes=(*((axis.name, axis.labels) for axis in axes), (ACCURACY, scale.labels)),
        rules="".join(f"M{_across(index, axes)} 0v{SIZE}" for index in range(len(axes) + 1)),
        tones=tuple("\n".join(quarter) for quarter in in_quarters(paths)),
        scales=json.dumps(
            [
                *map(_scale, axes),
                {"name": ACCURACY, "low": scale.ticks[0], "high": scale.ticks[-1]},
            ]
        ),
        trials=",".join(str(point.number) for point, _ in reversed(shown)),
        named=named(shown),
        num_shown=len(shown),
        summary=(
            f"Parameters of {text.counted(len(shown), 'trial')} and their accuracy; the best "
            f"is trial {best.number} with {text.percent(value)}."
        ),
        table=Table(
            ("trial", *(axis.name for axis in axes), "accuracy"),
            [(p.number, *(p.params.get(axis.name) for axis in axes), v) for p, v in shown],
        ),
    )


def _scale(axis: Axis) -> dict[str, object]:
    if axis.choices:
        return {"name": axis.name, "choices": len(axis.choices)}
    is_whole = axis.integers is not None
    return {
        "name": axis.name,
        "low": axis.low,
        "high": axis.high,
        "log": axis.log,
        "whole": is_whole,
    }


def _across(index: int, axes: Sequence[Axis]) -> int:
    return round(SIZE * index / len(axes))


def _path(point: TrialPoint, end: int, axes: Sequence[Axis]) -> str:
    """A line over the axes; it is broken where the trial has no such parameter."""
    path, command = "", "M"
    for index, axis in enumerate(axes):
        place = axis.place(point.params.get(axis.name))
        if place is None:
            command = "M"
            continue
        path += f"{command}{_across(index, axes)} {SIZE - round(SIZE * place)}"
        command = "L"
    return f"{path}{command}{SIZE} {end}"
