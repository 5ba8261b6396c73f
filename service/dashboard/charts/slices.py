"""Slices: the accuracy of trials at one batch over each searched parameter."""

from collections.abc import Sequence
from dataclasses import dataclass

from service import text
from service.dashboard.charts.axis import Axis
from service.dashboard.charts.scale import SIZE, Frame, accuracy_scale
from service.dashboard.charts.table import Table
from service.dashboard.charts.trial_point import TrialPoint, named, spread

MAX_DOTS = 400
"""In each slice."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What the template draws for one parameter."""

    name: str
    frame: Frame
    dots: str
    trials: str
    """Numbers of the trials, dot by dot."""
    best: str
    """The dot of the trial that stands for the study."""
    summary: str


@dataclass(frozen=True, slots=True)
class Slices:
    """One slice for each parameter, all with one scale of accuracies."""

    charts: tuple[Slice, ...]
    best: int
    """The number of the trial that stands out."""
    named: str
    """What each trial is called, as JSON."""
    table: Table


def slices(
    scored: Sequence[tuple[TrialPoint, float]], axes: Sequence[Axis], *, marked: int | None = None
) -> Slices | None:
    """The slices of trials with their accuracies at one batch; None without one, or with nothing searched.

    Args:
        scored: the trials.
        axes: the searched parameters.
        marked: the number of the trial that stands out; None, or not among them: the best.
    """
    if not scored or not axes:
        return None
    shown = spread(scored, MAX_DOTS)
    scale = accuracy_scale([value for _, value in shown])
    best = next((p for p, _ in scored if p.number == marked), shown[0][0])

    def draw(axis: Axis) -> Slice:
        placed = [(axis.place(point.params.get(axis.name)), point, value) for point, value in shown]
        grid = "".join(f"M0 {scale.down(tick)}h{SIZE}" for tick in scale.ticks)
        return Slice(
            name=axis.name,
            trials=",".join(str(point.number) for place, point, _ in placed if place is not None),
            frame=Frame(grid=grid, x_labels=axis.labels, y_labels=tuple(reversed(scale.labels))),
            dots="".join(
                _dot(place, scale.down(value)) for place, _, value in placed if place is not None
            ),
            best="".join(
                _dot(place, scale.down(value))
                for place, point, value in placed
                if place is not None and point is best
            ),
            summary=(
                f"Accuracy of {text.counted(len(shown), 'trial')} over {axis.name}; trial {best.number} has "
                f"{text.parameter(best.params.get(axis.name))}."
            ),
        )

    return Slices(
        charts=tuple(draw(axis) for axis in axes),
        best=best.number,
        named=named(shown),
        table=Table(
            ("trial", *(axis.name for axis in axes), "accuracy"),
            [(p.number, *(p.params.get(axis.name) for axis in axes), v) for p, v in shown],
        ),
    )


def _dot(place: float, down: int) -> str:
    return f"M{round(SIZE * place)} {down}h0"
