"""A trial as the charts of a search see it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from service import text

NUM_QUARTERS = 4
Each = TypeVar("Each")


@dataclass(frozen=True, slots=True)
class TrialPoint:
    """One trial: its number, its state, what it tried, and its accuracy if it has one."""

    number: int
    state: str
    value: float | None
    """At the highest rung that it reached: only those of completed trials are at one batch size."""
    params: Mapping[str, Any]
    accuracies: Sequence[float | None] = ()
    """By rung, as far as it came; where the first one begins with a heat, after the heat."""
    went_on: bool = False
    """Whether it began with the weights of another one: then its accuracy is not what its parameters alone are worth."""


def completed(points: Sequence[TrialPoint]) -> list[tuple[TrialPoint, float]]:
    """Those that have come to the last rung, with their accuracy."""
    return [(p, p.value) for p in points if p.state == "completed" and p.value is not None]


def scored(points: Sequence[TrialPoint], rung: int) -> list[tuple[TrialPoint, float]]:
    """Those that were scored at a rung, however far they came, with their accuracy there."""
    known = [point for point in points if len(point.accuracies) > rung]
    return [(p, value) for p in known if (value := p.accuracies[rung]) is not None]


def named(scored: Sequence[tuple[TrialPoint, float]]) -> str:
    """What a pointer at a trial is told, by its number, as JSON."""
    return json.dumps({p.number: f"trial {p.number}: {text.percent(value)}" for p, value in scored})


def spread(points: Sequence[tuple[TrialPoint, float]], most: int) -> list[tuple[TrialPoint, float]]:
    """At most so many, in order of accuracy: the best half of them, and the others evenly."""
    ranked = sorted(points, key=lambda pair: (-pair[1], pair[0].number))
    if len(ranked) <= most:
        return ranked
    best, rest = ranked[: most // 2], ranked[most // 2 :]
    left = most - len(best)
    return best + [rest[index * len(rest) // left] for index in range(left)]


def in_quarters(ranked: Sequence[Each]) -> list[Sequence[Each]]:
    """Of as good as one size; of fewer than four some are empty, the first ones before others."""
    edges = [len(ranked) * k // NUM_QUARTERS for k in range(NUM_QUARTERS + 1)]
    return [ranked[begin:end] for begin, end in pairwise(edges)]
