"""A trial as the charts of a search see it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TrialPoint:
    """One trial: its number, its state, what it tried, and its accuracy if it has one."""

    number: int
    state: str
    value: float | None
    """At the highest rung that it reached: only those of completed trials are at one batch size."""
    params: Mapping[str, Any]


def completed(points: Sequence[TrialPoint]) -> list[tuple[TrialPoint, float]]:
    """Those that have come to the last rung, with their accuracy."""
    return [(p, p.value) for p in points if p.state == "completed" and p.value is not None]


def spread(points: Sequence[tuple[TrialPoint, float]], most: int) -> list[tuple[TrialPoint, float]]:
    """At most so many, in order of accuracy: the best half of them, and the others evenly."""
    ranked = sorted(points, key=lambda pair: (-pair[1], pair[0].number))
    if len(ranked) <= most:
        return ranked
    best, rest = ranked[: most // 2], ranked[most // 2 :]
    left = most - len(best)
    return best + [rest[index * len(rest) // left] for index in range(left)]
