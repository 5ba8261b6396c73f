"""What a study has shown so far, for its plots: accuracies of trials and of rungs, rates of steps."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from service import text
from service.cli.progress import StudyProgress

Json = dict[str, Any]


@dataclass(frozen=True)
class Rung:
    """The simulations at one batch size."""

    expected_batch_size: float
    accuracies: list[float]
    heat_steps: int | None = None
    """Those of their first part alone, in steps; None: whole ones."""

    @property
    def name(self) -> str:
        """The batch, and how much of it where that is a part."""
        batch = f"B = {text.number(self.expected_batch_size)}"
        return batch if self.heat_steps is None else f"{batch}, first {self.heat_steps:,} steps"

    @property
    def best(self) -> float:
        """The highest accuracy."""
        return max(self.accuracies)

    @property
    def middle(self) -> float:
        """The median accuracy."""
        return median(self.accuracies)


@dataclass
class Story:
    """Grows with the study; what may be said of its scores is said beside them."""

    of_scores: str = field(default_factory=lambda: text.of_scores(None))
    trials: dict[int, Json] = field(default_factory=dict[int, Json])
    best_so_far: list[float] = field(default_factory=list[float])
    """After each trial that climbed every rung, in the order of their ends: accuracies at other batches do not compare."""
    rates: list[float] = field(default_factory=list[float])
    """Steps per second of the private run, whenever it told."""
    _step: int | None = None

    @classmethod
    def of_study(cls, study: Json, trials: Iterable[Json]) -> "Story":
        """The story that a study's trials tell which have ended."""
        story = cls(of_scores=text.of_scores(study["privacy"]["search_accounting"], study["plan"]))
        for trial in sorted(trials, key=lambda trial: str(trial.get("finished_at") or "~")):
            story.hear(trial)
        return story

    def observe(self, progress: StudyProgress) -> None:
        """Take note of what is new."""
        self.of_scores = progress.of_scores
        if progress.last_trial is not None:
            self.hear(progress.last_trial)
        if progress.step != self._step and progress.steps_per_second:
            self._step = progress.step
            self.rates.append(progress.steps_per_second)

    def hear(self, trial: Json) -> None:
        """Take note of a trial as it is now."""
        before = self.trials.get(trial["number"], {})
        self.trials[trial["number"]] = trial
        value = trial.get("value")
        is_news = before.get("state") != "completed"
        if trial["state"] == "completed" and is_news and value is not None:
            self.best_so_far.append(
                max(value, *self.best_so_far[-1:]) if self.best_so_far else value
            )

    @property
    def rungs(self) -> list[Rung]:
        """Those that a trial has reached with an accuracy, the smallest batch first, and heats before all."""
        found: dict[float, list[float]] = {}
        heats: list[Rung] = []
        for trial in self.trials.values():
            for score in trial.get("scores", []):
                if score["accuracy"] is None:
                    continue
                batch = score["expected_batch_size"]
                if score.get("heat"):
                    heats = heats or [Rung(batch, [], score["steps"])]
                    heats[0].accuracies.append(score["accuracy"])
                else:
                    found.setdefault(batch, []).append(score["accuracy"])
        return [*heats, *(Rung(batch, found[batch]) for batch in sorted(found))]
