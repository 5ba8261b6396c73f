"""The chart of what budgets bought: the test accuracy of completed studies over the ε of their statements."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from service import text
from service.dashboard.charts.scale import Frame, accuracy_scale, dots, doublings_scale
from service.dashboard.charts.table import Table

MOST_SERIES = 6
"""Colours there are; the last one is of all models beyond."""


@dataclass(frozen=True)
class Reached:
    """A study with a statement."""

    name: str
    model: str
    metric: str | None
    """Of its accuracies; None, of a study from before there was a choice: of all records."""
    epsilon: float
    accountant: str
    delta: float
    search_accounting: str
    test_accuracy: float | None
    study_id: str


@dataclass(frozen=True, slots=True)
class Bought:
    """One model's studies."""

    label: str
    dots: str


@dataclass(frozen=True, slots=True)
class BoughtChart:
    """What the template draws: accuracy over ε, on a logarithmic axis."""

    frame: Frame
    series: tuple[Bought, ...]
    studies: str
    """Their ids, dot by dot, of all series."""
    named: str
    """What each study is called, as JSON."""
    summary: str
    table: Table


def bought_chart(stated: Sequence[Reached]) -> BoughtChart | None:
    """The chart of these studies; None without two that were tested."""
    known = [
        (one, one.test_accuracy)
        for one in stated
        if one.test_accuracy is not None and one.epsilon > 0
    ]
    if len(known) < 2:
        return None
    x = doublings_scale(min(one.epsilon for one, _ in known), max(one.epsilon for one, _ in known))
    y = accuracy_scale([accuracy for _, accuracy in known])
    models = sorted({_label(one) for one, _ in known})
    labels = models if len(models) <= MOST_SERIES else [*models[: MOST_SERIES - 1], "other models"]
    drawn: dict[str, list[tuple[Reached, float]]] = {label: [] for label in labels}
    for one, accuracy in known:
        drawn.get(_label(one), drawn[labels[-1]]).append((one, accuracy))
    best, reached = max(known, key=lambda pair: pair[1])
    return BoughtChart(
        frame=Frame.of(x, y),
        series=tuple(
            Bought(label, dots(((math.log2(one.epsilon), share) for one, share in found), x, y))
            for label, found in drawn.items()
        ),
        studies=",".join(one.study_id for found in drawn.values() for one, _ in found),
        named=json.dumps(
            {one.study_id: f"{one.name}: {text.percent(accuracy)}" for one, accuracy in known}
        ),
        summary=(
            f"Test accuracy over ε of {len(known)} studies; the highest is "
            f"{text.percent(reached)}, of {best.name} at ε {text.epsilon(best.epsilon)}."
        ),
        table=Table(
            columns=("study", "model", "metric", "epsilon", "delta", "test_accuracy", "search"),
            rows=[
                (
                    *(one.name, one.model, one.metric, one.epsilon, one.delta, accuracy),
                    one.search_accounting,
                )
                for one, accuracy in known
            ],
        ),
    )


def _label(one: Reached) -> str:
    return f"{one.model}, balanced" if text.is_balanced(one.metric) else one.model
