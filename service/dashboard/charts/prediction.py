"""The chart of a prediction: one trial's accuracy over its batch sizes, followed to the private run's."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean

from service import text
from service.dashboard.charts.scale import Frame, Scale, accuracy_scale, dots, doublings_scale
from service.studies.schemas import PredictionView
from tan_core.tan import LawMethod
from tan_core.wire import RungScore, TrialRecord

_CAP = 12
"""Half the width of an interval's ends."""


@dataclass(frozen=True, slots=True)
class PredictionChart:
    """What the template draws."""

    frame: Frame
    fitted: str
    """Accuracies that the prediction rests on, one dot for each seed and rung."""
    others: str
    """Accuracies that chose the trial, and so are too high."""
    line: str
    """From the smallest batch that was fitted to the private run's."""
    interval: str
    """At the private run's batch."""
    predicted: str
    reached: str
    """Empty before the private run has a test accuracy."""
    summary: str


def prediction_chart(prediction: PredictionView, trial: TrialRecord) -> PredictionChart | None:
    """The chart of a trial and its prediction; None without an accuracy."""
    explored, fresh = list(_points(trial.scores)), list(_points(trial.repeats))
    fitted, others = (fresh, explored) if prediction.is_fresh else (explored, [])
    if not fitted:
        return None
    batch = prediction.expected_batch_size
    begin, end = _line(prediction, [size for size, _ in fitted])
    shown = [accuracy for _, accuracy in (*fitted, *others, begin, end)]
    shown += [prediction.low, prediction.high]
    if prediction.reached is not None:
        shown.append(prediction.reached)
    x = doublings_scale(min(size for size, _ in (*fitted, *others)), batch)
    y = accuracy_scale(shown)
    return PredictionChart(
        frame=Frame.of(x, y),
        fitted=_dots(fitted, x, y),
        others=_dots(others, x, y),
        line="".join(
            f"{command}{x.right(math.log2(size))} {y.down(accuracy)}"
            for command, (size, accuracy) in zip("ML", (begin, end), strict=True)
        ),
        interval=_interval(
            x.right(math.log2(batch)), y.down(prediction.low), y.down(prediction.high)
        ),
        predicted=_dots([end], x, y),
        reached="" if prediction.reached is None else _dots([(batch, prediction.reached)], x, y),
        summary=_summary(prediction, fitted),
    )


def _points(scores: Iterable[RungScore]) -> Iterator[tuple[float, float]]:
    """Batch sizes and accuracies."""
    return (
        (score.expected_batch_size, score.accuracy)
        for score in scores
        if score.accuracy is not None
    )


def _line(
    prediction: PredictionView, sizes: list[float]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Both ends of what was fitted, in batch sizes and accuracies."""
    batch = prediction.expected_batch_size
    size = min(sizes) if prediction.method is LawMethod.LINE else max(sizes)
    there = prediction.accuracy - prediction.slope * math.log2(batch / size)
    return (size, min(max(there, 0.0), 1.0)), (batch, prediction.accuracy)


def _dots(points: Iterable[tuple[float, float]], x: Scale, y: Scale) -> str:
    return dots(((math.log2(size), accuracy) for size, accuracy in points), x, y)


def _interval(across: int, low: int, high: int) -> str:
    ends = "".join(f"M{across - _CAP} {end}h{2 * _CAP}" for end in (low, high))
    return f"M{across} {low}V{high}{ends}"


def _summary(prediction: PredictionView, fitted: list[tuple[float, float]]) -> str:
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
