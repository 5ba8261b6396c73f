"""The charts of a comparison: searches and predictions of a few studies over each other."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from service import text
from service.dashboard.charts.lines import Lines, Series
from service.dashboard.charts.scale import Frame, accuracy_scale, doublings_scale
from service.dashboard.charts.table import Table
from service.studies.schemas import StudyView
from tan_core.planner import rests_on

_CAP = 9
"""Half the width of an interval's ends."""

_ASIDE = 24
"""Between two studies of one batch: what lies on each other cannot be read."""


@dataclass(frozen=True, slots=True)
class Search:
    """One study's completed trials: their numbers, rising, and their accuracies."""

    label: str
    trials: Sequence[tuple[int, float]]


def best_so_far(searches: Sequence[Search]) -> Lines | None:
    """The best accuracy of each search by the number of trials; None without any accuracy."""
    known = {one.label: _best(one.trials) for one in searches}
    numbers = sorted({number for best in known.values() for number in best})
    if not numbers:
        return None
    columns = [_carried(known[one.label], numbers) for one in searches]
    ends = [f"{one.label} {text.percent(max(known[one.label].values()))}" for one in searches if known[one.label]]  # fmt: skip
    return Lines(
        x_label="Trial",
        y_label="Best accuracy so far",
        x=numbers,
        series=[
            Series(one.label, "stairs", values)
            for one, values in zip(searches, columns, strict=True)
        ],
        summary=f"Best validation accuracy by the number of trials: {', '.join(ends)}.",
        table=Table(
            columns=("trial", *(one.label for one in searches)),
            rows=list(zip(numbers, *columns, strict=True)),
        ),
        is_share=True,
    )


def _best(trials: Sequence[tuple[int, float]]) -> dict[int, float]:
    """Where the best rises, and where the search has come to."""
    levels = accumulate((accuracy for _, accuracy in trials), max)
    found: dict[int, float] = {}
    highest = -math.inf
    for (number, _), level in zip(trials, levels, strict=True):
        if level > highest:
            found[number] = highest = level
    if trials:
        found[trials[-1][0]] = highest
    return found


def _carried(best: dict[int, float], numbers: Sequence[int]) -> list[float | None]:
    """The level at each number, from the first trial to the last."""
    last = max(best, default=-1)
    level: float | None = None
    values: list[float | None] = []
    for number in numbers:
        level = best.get(number, level)
        values.append(level if number <= last else None)
    return values


@dataclass(frozen=True, slots=True)
class StudyMarks:
    """One study in the chart of predictions."""

    label: str
    line: str
    """Accuracies of its trial at the rungs."""
    interval: str
    predicted: str
    reached: str


@dataclass(frozen=True, slots=True)
class PredictionsChart:
    """What the template draws: accuracy over the batch, on a logarithmic axis."""

    frame: Frame
    studies: tuple[StudyMarks, ...]
    summary: str
    table: Table


@dataclass(frozen=True, slots=True)
class _Climb:
    """A study's trial: mean accuracy by batch, and what is predicted of it."""

    study: StudyView
    rungs: list[tuple[float, float]]


def predictions_chart(studies: Sequence[StudyView]) -> PredictionsChart | None:
    """The best trial of each study at its rungs, and its prediction; None while no study has a score."""
    climbs = [_Climb(study, _rungs(study)) for study in studies]
    batches = [batch for climb in climbs for batch, _ in climb.rungs]
    if not batches:
        return None
    predictions = [study.prediction for study in studies if study.prediction]
    shares = [accuracy for climb in climbs for _, accuracy in climb.rungs]
    for one in predictions:
        shares += [one.low, one.high, *([] if one.reached is None else [one.reached])]
    x = doublings_scale(
        min(batches), max([*batches, *(p.expected_batch_size for p in predictions)])
    )
    y = accuracy_scale(shares)

    def marks(place: int, climb: _Climb) -> StudyMarks:
        places = [f"{x.right(math.log2(b))} {y.down(a)}" for b, a in climb.rungs]
        line = f"M{'L'.join(places)}" if len(places) > 1 else ""
        one = climb.study.prediction
        if one is None:
            return StudyMarks(climb.study.name, line, "", "", "")
        across = x.right(math.log2(one.expected_batch_size)) - (len(climbs) - 1 - place) * _ASIDE
        low, high = y.down(one.low), y.down(one.high)
        ends = "".join(f"M{across - _CAP} {end}h{2 * _CAP}" for end in (low, high))
        return StudyMarks(
            label=climb.study.name,
            line=line,
            interval=f"M{across} {low}V{high}{ends}",
            predicted=f"M{across} {y.down(one.accuracy)}h0",
            reached="" if one.reached is None else f"M{across} {y.down(one.reached)}h0",
        )

    return PredictionsChart(
        frame=Frame.of(x, y),
        studies=tuple(marks(place, climb) for place, climb in enumerate(climbs)),
        summary=" ".join(_told(study) for study in studies),
        table=Table(
            columns=("study", "what", "expected_batch_size", "accuracy"),
            rows=[row for climb in climbs for row in _rows(climb)],
        ),
    )


def _rungs(study: StudyView) -> list[tuple[float, float]]:
    """Mean accuracy at each batch, as a prediction rests on it."""
    if study.best_trial is None:
        return []
    by_batch: dict[float, list[float]] = defaultdict(list)
    for one in rests_on(study.best_trial):
        by_batch[one.expected_batch_size].append(one.accuracy)
    return [(batch, fmean(found)) for batch, found in sorted(by_batch.items())]


def _rows(climb: _Climb) -> list[tuple[str, str, float, float]]:
    name = climb.study.name
    rows = [(name, "scored", batch, accuracy) for batch, accuracy in climb.rungs]
    one = climb.study.prediction
    if one is not None:
        batch = one.expected_batch_size
        rows += [
            (name, what, batch, accuracy)
            for what, accuracy in (
                ("predicted", one.accuracy),
                ("low", one.low),
                ("high", one.high),
                ("reached", one.reached),
            )
            if accuracy is not None
        ]
    return rows


def _told(study: StudyView) -> str:
    one = study.prediction
    if one is None:
        return f"{study.name}: not predicted."
    reached = "" if one.reached is None else f", reached {text.percent(one.reached)}"
    return (
        f"{study.name}: predicted {text.percent(one.accuracy)} "
        f"{text.interval(one.low, one.high)}{reached}."
    )
