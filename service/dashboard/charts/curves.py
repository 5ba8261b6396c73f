"""Learning curves: accuracy on a part of the validation split on the way through a rung."""

from collections.abc import Sequence
from dataclasses import dataclass

from service import text
from service.dashboard.charts.lines import Lines, Series
from service.dashboard.charts.table import Table
from tan_core.wire import RungScore

MAX_CURVES = 12
"""More than this cannot be told apart."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One trial at the rung."""

    trial: int
    score: RungScore


def curves_chart(curves: Sequence[Curve]) -> Lines | None:
    """The chart of these trials, the best first; None where none has a curve."""
    drawn = [each for each in curves if each.score.curve]
    if not drawn:
        return None
    steps = sorted({point.step for each in drawn for point in each.score.curve})
    reached = [{point.step: point.accuracy for point in each.score.curve} for each in drawn]
    best = drawn[0]
    return Lines(
        x_label="Step",
        y_label="Accuracy",
        x=steps,
        series=[
            Series(f"trial {each.trial}", "line", [found.get(step) for step in steps])
            for each, found in zip(drawn, reached, strict=True)
        ],
        summary=(
            f"Learning curves of {text.counted(len(drawn), 'trial')} at batch "
            f"{text.number(best.score.expected_batch_size)}; the best, trial {best.trial}, ends at "
            f"{text.percent(best.score.curve[-1].accuracy)}."
        ),
        table=Table(
            ("trial", "step", "accuracy"),
            [
                (each.trial, point.step, point.accuracy)
                for each in drawn
                for point in each.score.curve
            ],
        ),
        is_share=True,
    )
