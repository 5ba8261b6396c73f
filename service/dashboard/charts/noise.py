"""The chart of searched steps: accuracy over the noise multiplier that each number of steps leaves.

Every candidate has the private run's batch and ends at the same epsilon, so its steps set its noise:
the chart shows the best noise level at a fixed batch (De et al. 2022).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from service import text
from service.dashboard.charts.scale import Frame, accuracy_scale, dots, number_scale
from service.dashboard.charts.table import Table

MAX_GROUPS = 4
"""Marks that can be told apart; more numbers of steps than that share them."""


@dataclass(frozen=True, slots=True)
class NoisePoint:
    """One trial at one rung."""

    rung: int
    batch_size: float
    """That was simulated."""
    noise_multiplier: float
    """Of the private run that the trial would be."""
    steps: int
    accuracy: float


@dataclass(frozen=True, slots=True)
class StepsGroup:
    """Trials with about as many steps."""

    label: str
    dots: str


@dataclass(frozen=True, slots=True)
class NoiseChart:
    """What the template draws."""

    frame: Frame
    groups: tuple[StepsGroup, ...]
    """Fewest steps first, at most :data:`MAX_GROUPS`."""
    best: NoisePoint
    summary: str
    table: Table


def noise_chart(points: Sequence[NoisePoint]) -> NoiseChart | None:
    """The trials of a search over steps, compared at one batch; None while one number of steps is known.

    Compared is at the highest rung that trials of every group of steps have reached.
    """
    groups = _groups(sorted({point.steps for point in points}))
    if sum(map(len, groups)) < 2:
        return None
    common = min(max(p.rung for p in points if p.steps in group) for group in groups)
    shown = [point for point in points if point.rung == common]
    best = max(shown, key=lambda point: point.accuracy)
    x = number_scale([point.noise_multiplier for point in shown])
    y = accuracy_scale([point.accuracy for point in shown])
    return NoiseChart(
        frame=Frame.of(x, y),
        groups=tuple(
            StepsGroup(
                label=_label(group),
                dots=dots(
                    ((p.noise_multiplier, p.accuracy) for p in shown if p.steps in group), x, y
                ),
            )
            for group in groups
        ),
        best=best,
        summary=(
            f"Accuracy of {text.counted(len(shown), 'trial')} at batch "
            f"{text.number(best.batch_size)} over the noise multiplier of their private runs; the "
            f"best is {text.percent(best.accuracy)} at σ {best.noise_multiplier:.3g} and "
            f"{text.number(best.steps)} steps."
        ),
        table=Table(
            ("noise multiplier", "steps", "accuracy"),
            sorted((p.noise_multiplier, p.steps, p.accuracy) for p in shown),
        ),
    )


def _groups(steps: Sequence[int]) -> list[Sequence[int]]:
    """Neighbouring numbers of steps together, in groups of about one size."""
    count = min(MAX_GROUPS, len(steps))
    edges = [round(i * len(steps) / count) for i in range(count + 1)] if count else []
    return [steps[begin:end] for begin, end in pairwise(edges)]


def _label(group: Sequence[int]) -> str:
    few, many = text.number(group[0]), text.number(group[-1])
    return few if few == many else f"{few} to {many}"
