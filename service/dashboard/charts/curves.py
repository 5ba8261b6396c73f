"""Learning curves: accuracy on a part of the validation split on the way through a rung."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service import text
from service.dashboard.charts.lines import Lines, Series
from service.dashboard.charts.table import Table
from service.trials.schemas import TrialView
from tan_core.wire import CurvePoint, RungScore

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
    best = drawn[0]
    return _lines(
        {f"trial {each.trial}": each.score.curve for each in drawn},
        summary=(
            f"Learning curves of {text.counted(len(drawn), 'trial')} at batch "
            f"{text.number(best.score.expected_batch_size)}; the best, trial {best.trial}, ends at "
            f"{text.percent(best.score.curve[-1].accuracy)}."
        ),
        table=_table(drawn),
    )


def compared_curves(trials: Sequence[TrialView], rung: int) -> Lines | None:
    """How chosen trials learnt at one rung, in the order of choosing; None where none told it.

    One without a curve there keeps its place among the colours: it has the same one at every rung.
    """
    chosen = {
        trial.number: next((score for score in trial.scores if score.rung == rung), None)
        for trial in trials
    }
    drawn = [Curve(number, score) for number, score in chosen.items() if score and score.curve]
    if not drawn:
        return None
    ends = (f"trial {each.trial} {text.percent(each.score.curve[-1].accuracy)}" for each in drawn)
    batch = text.number(drawn[0].score.expected_batch_size)
    return _lines(
        {f"trial {number}": score.curve if score else () for number, score in chosen.items()},
        summary=f"Learning curves at batch {batch}, and where they end: {', '.join(ends)}.",
        table=_table(drawn),
    )


def _table(curves: Sequence[Curve]) -> Table:
    return Table(
        ("trial", "step", "accuracy"),
        [(each.trial, point.step, point.accuracy) for each in curves for point in each.score.curve],
    )


def ladder_chart(scores: Sequence[RungScore]) -> Lines | None:
    """How one trial learnt in its simulations; None where none told more than one point."""
    drawn = [score for score in scores if len(score.curve) > 1][:MAX_CURVES]
    if not drawn:
        return None
    return _lines(
        {simulation_name(score): score.curve for score in drawn},
        summary=(
            f"Learning curves of {text.counted(len(drawn), 'simulation')} of one trial; "
            f"{simulation_name(drawn[-1])} ends at {text.percent(drawn[-1].curve[-1].accuracy)}."
        ),
        table=Table(
            ("batch", "seed", "step", "accuracy"),
            [
                (score.expected_batch_size, score.seed, point.step, point.accuracy)
                for score in drawn
                for point in score.curve
            ],
        ),
    )


def simulation_name(score: RungScore) -> str:
    """What tells a trial's simulations apart.

    Example:
        >>> simulation_name(RungScore(rung=0, seed=2, expected_batch_size=16, noise_multiplier=1,
        ...     steps=9, accuracy=None, seconds=1))
        'b = 16, seed 2'
    """
    seed = f", seed {score.seed}" if score.seed else ""
    return f"b = {text.number(score.expected_batch_size)}{seed}"


def _lines(curves: Mapping[str, Sequence[CurvePoint]], *, summary: str, table: Table) -> Lines:
    steps = sorted({point.step for curve in curves.values() for point in curve})
    reached = {
        name: {point.step: point.accuracy for point in curve} for name, curve in curves.items()
    }
    return Lines(
        x_label="Step",
        y_label="Accuracy",
        x=steps,
        series=[
            Series(name, "line", [found.get(step) for step in steps])
            for name, found in reached.items()
        ],
        summary=summary,
        table=table,
        is_share=True,
    )
