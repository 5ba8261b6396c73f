"""The chart of a planned run: what its total noise costs at other batches, and where the wall stands."""

import math
from dataclasses import dataclass

from service import text
from service.dashboard.charts.scale import SIZE, Frame, Scale, dots, doublings_scale
from service.dashboard.charts.table import Table
from tan_core.planner.sketch import TOLERANCE, Sketch

_HIGHEST = 12.0
"""The axis ends at so many times the lowest epsilon: the curve behind the wall has no end."""

_LEAST = 1e-6
"""Where an epsilon of 0 is drawn: a logarithm has no place for it."""


@dataclass(frozen=True, slots=True)
class WallChart:
    """What the template draws. Both axes are logarithmic."""

    frame: Frame
    wall: str
    """The area behind it; empty where none of it is in sight."""
    curve: str
    estimate: str
    """A level line: epsilon_TAN is the same at every batch."""
    run: str
    summary: str
    table: Table


def wall_chart(found: Sketch) -> WallChart:
    """The chart of a sketch."""
    run = (found.run.noise_multiplier, max(found.epsilon, _LEAST))
    curve = {point.noise_multiplier: max(point.epsilon, _LEAST) for point in found.curve}
    points = sorted({run[0]: run[1], **curve}.items())
    lowest = min(*(epsilon for _, epsilon in points), found.epsilon_tan)
    highest = max(_HIGHEST * lowest, run[1], found.epsilon_tan)
    points = [(sigma, epsilon) for sigma, epsilon in points if epsilon <= highest]
    x = doublings_scale(points[0][0], points[-1][0])
    y = doublings_scale(lowest, max(found.epsilon_tan, *(epsilon for _, epsilon in points)))
    level = y.down(math.log2(found.epsilon_tan))
    return WallChart(
        frame=Frame.of(x, y),
        wall=_area(x, found.wall),
        curve=_line(points, x, y),
        estimate=f"M0 {level}H{SIZE}",
        run=dots([(math.log2(run[0]), math.log2(run[1]))], x, y),
        summary=(
            f"Epsilon over the noise multiplier at one total amount of noise: this run has σ "
            f"{text.number(found.run.noise_multiplier)} and ε {text.estimate(found.epsilon)}"
            f"{_told(found.wall)}."
        ),
        table=_table(found),
    )


def _told(wall: float) -> str:
    if not 0 < wall < math.inf:
        return ""
    return (
        f"; below σ {wall:.3g} epsilon is more than {100 * (TOLERANCE - 1):.0f} % above its limit"
    )


def _area(x: Scale, wall: float) -> str:
    """Left of the wall: nothing where it is out of sight, everything where there is nothing else."""
    if wall <= 0:
        return ""
    edge = SIZE if math.isinf(wall) else x.right(math.log2(wall))
    return f"M0 0H{edge}V{SIZE}H0Z" if edge else ""


def _line(points: list[tuple[float, float]], x: Scale, y: Scale) -> str:
    corners = [f"{x.right(math.log2(sigma))} {y.down(math.log2(eps))}" for sigma, eps in points]
    return f"M{'L'.join(corners)}"


def _table(found: Sketch) -> Table:
    rate = found.run.sampling_rate / found.run.noise_multiplier
    return Table(
        columns=("noise_multiplier", "sampling_rate", "epsilon_not_certified", "overcharge"),
        rows=[
            (
                point.noise_multiplier,
                rate * point.noise_multiplier,
                point.epsilon,
                point.overcharge,
            )
            for point in found.curve
        ],
    )
