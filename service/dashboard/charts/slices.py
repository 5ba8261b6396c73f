"""Slices: the accuracy of the completed trials over each searched parameter."""

from collections.abc import Sequence
from dataclasses import dataclass

from service import text
from service.dashboard.charts.axis import Axis
from service.dashboard.charts.scale import SIZE, Frame, accuracy_scale
from service.dashboard.charts.table import Table
from service.dashboard.charts.trial_point import TrialPoint, completed, spread

MAX_DOTS = 400
"""In each slice."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What the template draws for one parameter."""

    name: str
    frame: Frame
    dots: str
    best: str
    """The dot of the best trial."""
    summary: str


@dataclass(frozen=True, slots=True)
class Slices:
    """One slice for each parameter, all with one scale of accuracies."""

    charts: tuple[Slice, ...]
    table: Table


def slices(points: Sequence[TrialPoint], axes: Sequence[Axis]) -> Slices | None:
    """The slices of the completed trials; None without one, or with nothing searched."""
    done = completed(points)
    if not done or not axes:
        return None
    shown = spread(done, MAX_DOTS)
    scale = accuracy_scale([value for _, value in shown])
    best = shown[0][0]

    def draw(axis: Axis) -> Slice:
        placed = [(axis.place(point.params.get(axis.name)), point, value) for point, value in shown]
        grid = "".join(f"M0 {scale.down(tick)}h{SIZE}" for tick in scale.ticks)
        return Slice(
            name=axis.name,
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
                f"Accuracy of {text.counted(len(shown), 'completed trial')} over {axis.name}; the best has "
                f"{best.params.get(axis.name)}."
            ),
        )

    return Slices(
        charts=tuple(draw(axis) for axis in axes),
        table=Table(
            ("trial", *(axis.name for axis in axes), "accuracy"),
            [(p.number, *(p.params.get(axis.name) for axis in axes), v) for p, v in shown],
        ),
    )


def _dot(place: float, down: int) -> str:
    return f"M{round(SIZE * place)} {down}h0"
