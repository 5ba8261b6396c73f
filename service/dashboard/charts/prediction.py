"""The chart of a prediction: one trial's accuracy over its batch sizes, followed to the private run's."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from service import text
from service.dashboard.charts.scale import Frame, Scale, accuracy_scale, dots, doublings_scale
from service.dashboard.charts.table import Cell, Table
from service.studies.schemas import PredictionView
from tan_core.planner import observed, rests_on
from tan_core.tan import Observation, counted, fit_law
from tan_core.wire import TrialRecord

Place = tuple[float, float]
"""A batch size and an accuracy."""

_PIECES = 32
"""Straight ones, that a curve is drawn of."""

_CAP = 12
"""Half the width of an interval's ends."""


@dataclass(frozen=True, slots=True)
class PredictionChart:
    """What the template draws."""

    frame: Frame
    fitted: str
    """Accuracies that the prediction rests on, one dot for each seed and rung."""
    others: str
    """The other ones: ladders that were left on the way, or that count as less because fresh seeds fell short."""
    line: str
    """The law, a line or a curve, from the smallest batch that was fitted to the private run's."""
    interval: str
    """At the private run's batch."""
    predicted: str
    beside: float
    """How far the prediction lies above the end of the line."""
    reached: str
    """Empty before the private run has a test accuracy."""
    summary: str
    table: Table


def prediction_chart(
    prediction: PredictionView, trial: TrialRecord, *, what: str = "simulation"
) -> PredictionChart | None:
    """The chart of a trial and its prediction; None without an accuracy.

    The line or curve is that of simulations, on the validation split: a prediction that also knows what released
    weights are ahead by, or what earlier studies taught, stands beside its end. It is fitted anew, so that of a
    study that an older law predicted may, too.

    Args:
        prediction: of the private run.
        trial: whose scores it rests on.
        what: what was scored, in the table.
    """
    fitted = _fitted(prediction, trial)
    if not fitted:
        return None
    fitted = counted(fitted, guessing=prediction.guessing)
    simulated = [*observed(trial.scores), *observed(trial.repeats)]
    batch = prediction.expected_batch_size
    seen, rest = [
        [
            (one.expected_batch_size, one.accuracy)
            for one in simulated
            if (one in fitted) is is_fitted
        ]
        for is_fitted in (True, False)
    ]
    curve = list(_curve(fitted, batch, prediction.guessing))
    ahead = [(batch, prediction.accuracy)]
    reached = [] if prediction.reached is None else [(batch, prediction.reached)]
    x = doublings_scale(min(size for size, _ in (*seen, *rest)), batch)
    y = accuracy_scale(
        [
            *(accuracy for _, accuracy in (*seen, *rest, *curve, *reached)),
            prediction.low,
            prediction.high,
        ]
    )
    return PredictionChart(
        frame=Frame.of(x, y),
        fitted=_dots(seen, x, y),
        others=_dots(rest, x, y),
        line=_line(curve, x, y),
        interval=_interval(
            x.right(math.log2(batch)), y.down(prediction.low), y.down(prediction.high)
        ),
        predicted=_dots(ahead, x, y),
        beside=prediction.accuracy - curve[-1][1],
        reached=_dots(reached, x, y),
        summary=_summary(prediction, seen),
        table=_table(prediction, simulated, what),
    )


def _fitted(prediction: PredictionView, trial: TrialRecord) -> list[Observation]:
    found = rests_on(trial)
    # Predictions of the first versions rest on the fresh seeds alone.
    is_older = prediction.is_fresh and prediction.seeds < len({one.seed for one in found})
    return [one for one in found if one.seed] if is_older else found


def _curve(fitted: Sequence[Observation], batch: float, guessing: float) -> Iterator[Place]:
    """The law of these observations, from the smallest batch that it was fitted on."""
    law = fit_law(fitted, guessing=guessing)
    doublings = math.log2(batch) - law.smallest
    for i in range(_PIECES + 1):
        size = 2.0 ** (law.smallest + doublings * i / _PIECES)
        yield size, law.accuracy(size)


def _line(points: Iterable[Place], x: Scale, y: Scale) -> str:
    corners = [f"{x.right(math.log2(size))} {y.down(accuracy)}" for size, accuracy in points]
    return f"M{'L'.join(corners)}"


def _dots(points: Iterable[Place], x: Scale, y: Scale) -> str:
    return dots(((math.log2(size), accuracy) for size, accuracy in points), x, y)


def _interval(across: int, low: int, high: int) -> str:
    ends = "".join(f"M{across - _CAP} {end}h{2 * _CAP}" for end in (low, high))
    return f"M{across} {low}V{high}{ends}"


def _table(prediction: PredictionView, simulated: Iterable[Observation], what: str) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            f"{what}, fresh seed" if one.seed else what,
            one.expected_batch_size,
            one.seed,
            one.accuracy,
        )
        for one in simulated
    ]
    batch = prediction.expected_batch_size
    figures = (
        ("predicted", prediction.accuracy),
        ("low end", prediction.low),
        ("high end", prediction.high),
        ("reached", prediction.reached),
    )
    rows += [(name, batch, None, share) for name, share in figures if share is not None]
    return Table(("what", "batch", "seed", "accuracy"), rows)


def _summary(prediction: PredictionView, fitted: Sequence[Place]) -> str:
    sizes = sorted({size for size, _ in fitted})
    means = [fmean(accuracy for size, accuracy in fitted if size == one) for one in sizes]
    told = ", ".join(
        f"{text.percent(mean)} at batch {text.number(size)}"
        for size, mean in zip(sizes, means, strict=True)
    )
    reached = prediction.reached
    return (
        f"Trial {prediction.trial} scored {told}; predicted are {text.percent(prediction.accuracy)} "
        f"{text.interval(prediction.low, prediction.high)} at batch "
        f"{text.number(prediction.expected_batch_size)}"
        + ("." if reached is None else f", reached were {text.percent(reached)}.")
    )
