"""What a study processes, how long that takes where a rate was measured, and whether a limit holds it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from tan_core import _validate
from tan_core.planner.finals import MAX_REPEATS
from tan_core.planner.heats import costs_between_cuts, takes_heat
from tan_core.planner.plan import PlannedCost
from tan_core.planner.rungs import batch_ladder, confirmation_batch, expected_trials, held_trials

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRate:
    """How fast one device was seen to work: a GPU where there are any, else a core.

    Args:
        examples_per_second: > 0, forward and backward, each of the K views counted.
        source: where this was measured, in words.
        most_devices: that there were for one run, which asked for more; None: as many as it asked for.
    """

    examples_per_second: float
    source: str
    most_devices: int | None = None

    def __post_init__(self) -> None:
        _validate.positive(examples_per_second=self.examples_per_second)
        if self.most_devices is not None:
            _validate.positive_integer(most_devices=self.most_devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Of the private run and of simulations: small batches are slower than large ones."""

    private_run: MeasuredRate
    search: MeasuredRate

    @classmethod
    def of(cls, private_run: MeasuredRate | None, search: MeasuredRate | None) -> Self | None:
        """What was measured; one rate stands in for the other where only one is known."""
        known = private_run or search
        if known is None:
            return None
        return cls(private_run=private_run or known, search=search or known)

    @property
    def source(self) -> str:
        """Both sources in words."""
        return "; ".join(dict.fromkeys((self.private_run.source, self.search.source)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What decides, beside (B, S), how many examples a study processes.

    Args:
        trials: of the search; 0: there is none.
        rungs: simulated batch sizes, smallest first, or ``"auto"``.
        views: K, augmented views of each example.
        search_num_examples: examples that the simulations read.
        workers: ranks of the private run.
        budget: what the search may process, in private runs; None: it has no finals.
        is_charged: whether every trial is charged: all are planned at one batch, at the private one until
            a smaller one is chosen.
        heats: whether the first part of a rung stands for the one below it, where it costs as much.
    """

    trials: int
    rungs: Literal["auto"] | Sequence[int]
    views: int
    search_num_examples: int
    workers: int
    budget: float | None
    is_charged: bool = False
    heats: bool = False

    def rungs_of(self, batch: float) -> list[int]:
        """Simulated batch sizes, smallest first; none without a search."""
        cuts = self._cuts(batch)
        return cuts[1:] if self.has_heat(batch) else cuts

    def has_heat(self, batch: float) -> bool:
        """Whether the first rung begins with a heat: then two batch sizes have to be left for a prediction."""
        cuts = self._cuts(batch)
        if not self.heats or not takes_heat(cuts):
            return False
        return len(cuts) > 2 or self.confirmation_of(batch) is not None

    def _cuts(self, batch: float) -> list[int]:
        """The rungs; where there is a heat, before them the batch whose whole simulation costs as much as it does."""
        if not self.trials:
            return []
        if self.rungs == "auto" and self.is_charged:
            return [max(1, round(batch))]
        if self.rungs == "auto":
            return batch_ladder(
                batch, trials=self.trials, search_num_examples=self.search_num_examples
            )
        return list(self.rungs)

    def confirmation_of(self, batch: float) -> int | None:
        """What finalists are simulated at above the rungs, where the planner chooses these and the budget holds it."""
        if not self.trials or self.rungs != "auto" or self.budget is None:
            return None
        return confirmation_batch(
            batch,
            self._cuts(batch),
            trials=self.trials,
            budget=self.budget,
            search_num_examples=self.search_num_examples,
        )

    def trials_of(self, batch: float) -> list[float]:
        """Trials that are expected to begin each rung."""
        reached = self._reached(batch)
        return [reached[0], *reached[2:]] if self.has_heat(batch) else reached

    def trials_after_heat(self, batch: float) -> float | None:
        """Trials that are expected to go on after the heat; None where there is none."""
        return self._reached(batch)[1] if self.has_heat(batch) else None

    def _reached(self, batch: float) -> list[float]:
        """Trials that are expected to begin what ends at each cut."""
        if not self.trials:
            return []
        cuts, confirmation = self._cuts(batch), self.confirmation_of(batch)
        if confirmation is None or self.budget is None:
            return expected_trials(self.trials, cuts)
        return held_trials(
            self.trials, cuts, self.budget * batch - confirmation, costs=self._costs(batch)
        )

    def _costs(self, batch: float) -> list[float]:
        """Examples per step of a trial from cut to cut."""
        cuts = self._cuts(batch)
        return costs_between_cuts(cuts) if self.has_heat(batch) else [*cuts]

    def private_run_examples(self, batch: float, steps: int) -> int:
        """Of the private run."""
        return round(batch * steps * self.views)

    def search_examples(self, batch: float, steps: int) -> int:
        """Of all trials, as many at each rung as ASHA is expected to leave and the budget holds."""
        parts = zip(self._costs(batch), self._reached(batch), strict=True)
        return math.ceil(sum(cost * num for cost, num in parts) * steps * self.views)

    def max_examples(self, batch: float, steps: int) -> int:
        """What the whole search may process before it stops repeating finalists."""
        return math.ceil((self.budget or 0.0) * self.private_run_examples(batch, steps))

    def finals_examples(self, batch: float, steps: int) -> int:
        """Of the finals, at most: what the trials leave of the budget, and one repetition in any case."""
        if not self.trials or self.budget is None:
            return 0
        one = (self.confirmation_of(batch) or sum(self.rungs_of(batch))) * steps * self.views
        left = self.max_examples(batch, steps) - self.search_examples(batch, steps)
        return min(MAX_REPEATS * one, max(one, left))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeLimit:
    """``budget.gpu_hours``: hours of one device, over the search and all ranks of the private run.

    It is counted as the service counts it while the study runs: a trial keeps what it has of a
    device, a private run as many as it has ranks.
    """

    gpu_hours: float
    workload: Workload
    rates: Rates

    def hours(self, batch: float, steps: int) -> float:
        """Device hours of a shape: its private run, its trials and its finals."""
        private_run = self.workload.private_run_examples(batch, steps)
        search = self.workload.search_examples(batch, steps)
        search += self.workload.finals_examples(batch, steps)
        seconds = (
            private_run / self.rates.private_run.examples_per_second
            + search / self.rates.search.examples_per_second
        )
        return seconds / _SECONDS_PER_HOUR

    def holds(self, batch: float, steps: int) -> bool:
        """Whether the shape stays inside."""
        return self.hours(batch, steps) <= self.gpu_hours


def planned_cost(
    workload: Workload,
    *,
    batch: float,
    steps: int,
    rates: Rates | None,
    memory_bytes: int | None,
) -> PlannedCost:
    """The cost section of a plan; seconds only where rates are known."""
    private_run = workload.private_run_examples(batch, steps)
    search = workload.search_examples(batch, steps)
    finals = workload.finals_examples(batch, steps)
    full = workload.trials * private_run
    cost = PlannedCost(
        private_run_examples=private_run,
        search_examples=search,
        finals_examples=finals,
        full_search_examples=full,
        saving=round(full / search, 4) if search else 1.0,
        memory_bytes=memory_bytes,
    )
    if rates is None:
        return cost
    one, other = rates.private_run.examples_per_second, rates.search.examples_per_second
    devices = min(workload.workers, rates.private_run.most_devices or workload.workers)
    return cost.model_copy(
        update={
            "examples_per_second": one,
            "search_examples_per_second": other,
            "rate_source": rates.source,
            "private_run_seconds": _tidy(private_run / (one * devices)),
            "search_seconds": _tidy((search + finals) / other),
        }
    )


def _tidy(seconds: float) -> float:
    """A tenth of a second, upwards: an estimate needs no more."""
    return math.ceil(10 * seconds) / 10
