"""Who is confirmed: rules for the finals of a search that begins with a heat, replayed over what was measured of its best."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tan_core.planner.prediction import foreseen
from tan_core.wire import RungScore

PLACES = 8
"""Of a heat, the best first, whose trials are looked at."""
DRAWS = 400
"""Replays of each heat."""

Draw = tuple[float, float]
"""What one simulation scores, and what it would release."""
Ladder = tuple[tuple[int, Draw], ...]


@dataclass(frozen=True, kw_only=True)
class Records:
    """All that rules are replayed over; candidates by their number."""

    batch_size: int
    guessing: float
    heats: Sequence[Mapping[int, float]]
    """What each candidate has after its heat."""
    simulated: Mapping[int, Mapping[int, Sequence[Draw]]]
    """By batch size, smallest first, and candidate; seeds that no heat had."""
    tests: Mapping[int, float]
    """What the candidates reach at full batch."""
    validated: Mapping[int, float]

    def foreseen(self, *ladder: tuple[int, Draw]) -> float:
        """What simulations say of the private run."""
        return _foreseen(ladder, self.batch_size, self.guessing)


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A rule's outcome: one figure of each replay, in points."""

    rule: str
    cost: float
    """Of the whole search, in private runs, where nothing diverges."""
    regrets: Sequence[float]
    errors: Sequence[float]
    """Predicted less reached, on the validation split."""


Rule = Callable[[Records, Sequence[int], Mapping[int, Mapping[int, Draw]]], tuple[int, float]]
"""Of the best of a heat and one simulation of each at each batch: who is promoted, and its prediction."""


def as_now(records: Records, best: Sequence[int], drawn: Mapping[int, Mapping[int, Draw]]) -> tuple[int, float]:  # fmt: skip
    """All are simulated at the smallest batch; the best one is confirmed at the largest."""
    small, *_, large = records.simulated
    chosen = max(best, key=lambda one: records.foreseen((small, drawn[small][one])))
    return chosen, records.foreseen((small, drawn[small][chosen]), (large, drawn[large][chosen]))


def confirmed(num: int) -> Rule:
    """So many are confirmed, and the best prediction wins."""

    def rule(
        records: Records, best: Sequence[int], drawn: Mapping[int, Mapping[int, Draw]]
    ) -> tuple[int, float]:
        small, *_, large = records.simulated
        said = {
            one: records.foreseen((small, drawn[small][one]), (large, drawn[large][one]))
            for one in best[:num]
        }
        return max(said.items(), key=lambda each: each[1])

    return rule


def raced(num: int) -> Rule:
    """So many are simulated at the middle batch too; the best score there is confirmed."""

    def rule(
        records: Records, best: Sequence[int], drawn: Mapping[int, Mapping[int, Draw]]
    ) -> tuple[int, float]:
        _, middle, _ = records.simulated
        chosen = max(best[:num], key=lambda one: drawn[middle][one][0])
        return chosen, records.foreseen(*((batch, each[chosen]) for batch, each in drawn.items()))

    return rule


def replays(records: Records, *, seed: int = 0) -> list[Replayed]:
    """Every rule over the same draws."""
    small, middle, large = records.simulated
    heats = len(records.heats[0]) * small / 4
    rest = small * 3 / 4
    rules: list[tuple[str, float, Rule]] = [
        (f"{PLACES} at {small}, one at {large} (now)", PLACES * rest + large, as_now),
        (f"2 at {middle}, one at {large}", 2 * (rest + middle) + large, raced(2)),
        *((f"{n} at {large}", n * (rest + large), confirmed(n)) for n in (2, 3, 4, 6)),
    ]
    return [
        _replayed(name, (heats + cost) / records.batch_size, rule, records, seed)
        for name, cost, rule in rules
    ]


def print_replays(found: Mapping[str, Sequence[Replayed]]) -> None:
    """A table of tasks and rules."""
    print("\n| task | rule | cost | regret | at most .3 | error | rms | more than a point off |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for task, rules in found.items():
        for each in rules:
            regrets, errors = np.array(each.regrets), np.array(each.errors)
            print(
                f"| {task} | {each.rule} | {each.cost:.2f} | {regrets.mean():.2f} | {np.mean(regrets <= 0.3):.0%} "
                f"| {errors.mean():+.2f} | {np.sqrt(np.mean(errors**2)):.2f} | {np.mean(np.abs(errors) > 1):.0%} |"
            )


def _replayed(name: str, cost: float, rule: Rule, records: Records, seed: int) -> Replayed:
    random = np.random.default_rng(seed)
    top = max(records.tests.values())
    regrets: list[float] = []
    errors: list[float] = []
    for heat in records.heats:
        best = sorted(heat, key=lambda one: -heat[one])[:PLACES]
        for _ in range(DRAWS):
            drawn = {
                batch: {one: _any(random, of[one]) for one in best}
                for batch, of in records.simulated.items()
            }
            chosen, predicted = rule(records, best, drawn)
            regrets.append(100 * (top - records.tests[chosen]))
            errors.append(100 * (predicted - records.validated[chosen]))
    return Replayed(rule=name, cost=cost, regrets=regrets, errors=errors)


def _any(random: np.random.Generator, draws: Sequence[Draw]) -> Draw:
    return draws[int(random.integers(len(draws)))]


@cache
def _foreseen(ladder: Ladder, batch_size: int, guessing: float) -> float:
    known: dict[str, Any] = {"noise_multiplier": 1.0, "steps": 1, "seconds": 0.0}
    scores = [
        RungScore(rung=rung, expected_batch_size=batch, accuracy=score, released=released, **known)
        for rung, (batch, (score, released)) in enumerate(ladder)
    ]
    said = foreseen(scores, expected_batch_size=batch_size, guessing=guessing)
    assert said is not None
    return said
