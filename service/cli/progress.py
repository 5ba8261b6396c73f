"""A study's progress as its events tell it. Pure: no terminal, no network."""

from dataclasses import dataclass, field, replace
from typing import Any

from service import text
from service.client import Event

TERMINAL = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, kw_only=True)
class StudyProgress:
    """Where a study stands. Every ``None`` is something the server has not said yet."""

    state: str = "queued"
    reason: str | None = None
    trials_total: int = 0
    trials_finished: int = 0
    trials_running: int = 0
    trials_diverged: int = 0
    trials_pruned: int = 0
    trials_failed: int = 0
    repeats_finished: int = 0
    """Ladders that finalists have climbed again, with fresh seeds."""
    best_accuracy: float | None = None
    step: int | None = None
    steps: int | None = None
    steps_per_second: float | None = None
    attempt: int | None = None
    features: dict[str, Any] | None = None
    """Those that are computed now: ``done`` of ``number`` records, and ``seconds_left``."""
    of_scores: str = field(default_factory=lambda: text.of_scores(None))
    """What has to be said beside the scores of its trials."""
    last_trial: dict[str, Any] | None = field(default=None, compare=False)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in TERMINAL

    @property
    def seconds_left(self) -> float | None:
        """Of the private run, at its present rate."""
        if self.step is None or self.steps is None or not self.steps_per_second:
            return None
        return (self.steps - self.step) / self.steps_per_second


COUNTERS = frozenset(
    name for name in StudyProgress.__dataclass_fields__ if name.startswith(("trials_", "repeats_"))
)
FIGURES = frozenset({"best_accuracy", "step", "steps", "steps_per_second", "attempt", "features"})


def begun(study: dict[str, Any]) -> StudyProgress:
    """Where the events of a study begin: what no event says of it is known."""
    accounting = (study.get("privacy") or {}).get("search_accounting")
    return StudyProgress(of_scores=text.of_scores(accounting, study.get("plan")))


def of_study(study: dict[str, Any]) -> StudyProgress:
    """The progress of a study as ``GET /studies/{id}`` shows it."""
    known = _with_figures(begun(study), study.get("progress") or {})
    if known.features and study.get("paused"):
        known = replace(known, features=known.features | {"seconds_left": None})
    return replace(known, state=study["state"], reason=study.get("reason"))


def advance(progress: StudyProgress, event: Event) -> StudyProgress:
    """The progress after an event; kinds that are not known yet change nothing else."""
    data = event.data
    known = _with_figures(progress, data.get("progress") or {})
    if event.kind == "state":
        return replace(known, state=data["state"], reason=data.get("reason"))
    if event.kind == "trial":
        return replace(known, last_trial=data["trial"])
    if event.kind == "step":
        return _with_figures(known, data)
    return known


def _with_figures(progress: StudyProgress, data: dict[str, Any]) -> StudyProgress:
    figures = {name: data[name] for name in FIGURES if name in data}
    counts = {name: data[name] for name in COUNTERS if data.get(name) is not None}
    known = replace(progress, **figures, **counts)
    return replace(known, state=data["phase"]) if "phase" in data else known
