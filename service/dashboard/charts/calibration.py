"""The chart of a calibration: what was predicted over what was reached."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from service import text
from service.calibration.schemas import CalibrationItem
from service.dashboard.charts.scale import SIZE, Frame, Scale, accuracy_scale, dots
from service.dashboard.charts.table import Table


@dataclass(frozen=True, slots=True)
class CalibrationChart:
    """What the template draws. Both axes have one scale."""

    frame: Frame
    diagonal: str
    """Where a prediction is what was reached."""
    held: str
    """Intervals that cross the diagonal."""
    missed: str
    held_dots: str
    missed_dots: str
    studies: str
    """Their ids, dot by dot: those that held come first."""
    named: str
    """What each study is called, as JSON."""
    summary: str


def calibration_chart(items: Sequence[CalibrationItem]) -> CalibrationChart | None:
    """The chart of these studies; None without any."""
    if not items:
        return None
    scale = accuracy_scale(
        [share for one in items for share in (one.low, one.high, one.predicted, one.reached)]
    )
    held = [one for one in items if one.inside]
    missed = [one for one in items if not one.inside]
    return CalibrationChart(
        frame=Frame.of(scale, scale),
        diagonal=f"M0 {SIZE}L{SIZE} 0",
        held=_bars(held, scale),
        missed=_bars(missed, scale),
        held_dots=_dots(held, scale),
        missed_dots=_dots(missed, scale),
        studies=",".join(one.study for one in (*held, *missed)),
        named=json.dumps(
            {
                one.study: f"{one.name}: predicted {text.percent(one.predicted)}, reached {text.percent(one.reached)}"
                for one in items
            }
        ),
        summary=(
            f"Predicted over reached test accuracy of {text.counted(len(items), 'run')}: "
            f"{len(held)} inside their interval, {len(missed)} outside."
        ),
    )


def calibration_table(items: Sequence[CalibrationItem]) -> Table:
    """The numbers of the chart, in the order of the studies."""
    names = ("study", "name", "dataset", "model", "epsilon", "predicted", "low", "high", "reached")
    names += ("error", "inside", "metric")
    return Table(columns=names, rows=[[getattr(one, name) for name in names] for one in items])


def _bars(items: Sequence[CalibrationItem], scale: Scale) -> str:
    return "".join(
        f"M{scale.right(one.reached)} {scale.down(one.low)}V{scale.down(one.high)}" for one in items
    )


def _dots(items: Sequence[CalibrationItem], scale: Scale) -> str:
    return dots(((one.reached, one.predicted) for one in items), scale, scale)
