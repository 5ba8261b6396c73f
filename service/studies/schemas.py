"""What the API says about a study."""

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import BaseModel

from service.studies.lifecycle import StudyState
from tan_core.tan import LawMethod
from tan_core.wire import TrialRecord


class Progress(BaseModel):
    """How far a study is: its trials while it simulates, its steps while it trains."""

    phase: StudyState
    trials_total: int
    trials_finished: int
    trials_running: int
    trials_diverged: int
    trials_pruned: int
    trials_failed: int
    repeats_finished: int
    """Ladders of finalists with fresh seeds that are complete or were given up."""
    best_accuracy: float | None
    """Best validation accuracy of a completed simulation."""
    step: int | None
    """Step of the private run; None before there is one."""
    steps: int | None
    steps_per_second: float | None
    attempt: int | None
    """Number of the newest attempt of the newest run."""


class RunView(BaseModel):
    """The private run."""

    state: Literal["active", "succeeded", "failed", "cancelled"]
    reason: str | None
    step: int
    steps: int
    steps_per_second: float | None
    attempt: int | None
    trial: int | None
    """Number of the promoted trial."""
    test_accuracy: float | None
    num_test: int | None


class LedgerEntryRef(BaseModel):
    """One journal entry: enough to find it again and to see that it was not edited."""

    scope: str
    seq: int
    hash: str


class PrivacyView(BaseModel):
    """What the study promises and what it has spent."""

    epsilon: float
    """Of the private run, never below what was charged. Completed: as stated. Failed or cancelled:
    of the steps that were charged, 0 where none was. Under way: as planned; the target where steps
    are searched; ``epsilon_reserved`` once more steps are charged than were planned."""
    delta: float
    accountant: str
    neighboring_relation: str
    search_accounting: str
    search_note: str
    epsilon_reserved: float | None
    """With every spare step that the ledger holds, the target where steps are searched; None on a
    public dataset."""
    charged_steps: int | None
    reserved_steps: int | None
    ledger_entry: LedgerEntryRef | None


class Prediction(BaseModel):
    """What a trial should reach as the private run, on the test split. Fractions in [0, 1]."""

    accuracy: float
    low: float
    high: float
    level: float
    """Probability that the private run lands in [low, high]."""
    expected_batch_size: float
    """B of the private run, which is predicted for."""
    trial: int
    seeds: int
    """That the prediction rests on."""
    is_fresh: bool
    """Whether those seeds had no part in choosing the trial: else the prediction is too high."""
    method: LawMethod
    slope: float
    """Accuracy per doubling of the batch."""
    caution: str | None
    """Why to trust it less."""


class PredictionView(Prediction):
    """A prediction beside what came of it; None while there is no test accuracy."""

    reached: float | None
    """Test accuracy of the private run."""
    error: float | None
    """``reached`` minus ``accuracy``."""
    inside: bool | None
    """Whether ``reached`` is in [low, high]."""

    @classmethod
    def of(cls, prediction: Prediction, reached: float | None) -> Self:
        """The prediction, measured against a test accuracy."""
        error, inside = None, None
        if reached is not None:
            error = reached - prediction.accuracy
            inside = prediction.low <= reached <= prediction.high
        return cls(**prediction.model_dump(), reached=reached, error=error, inside=inside)


class StandingView(BaseModel):
    """A trial that could be promoted, and its prediction in short."""

    trial: int
    accuracy: float
    low: float
    high: float
    seeds: int
    is_fresh: bool


class PromotionView(BaseModel):
    """Which trial becomes the private run, and why."""

    trial: int
    by: Literal["search", "user"] | None
    """Who decided; None: nobody yet, and ``trial`` is what the search proposes."""
    reason: str
    standings: list[StandingView]
    """The trials that could be promoted, the best prediction first; at most 100."""


class StudyView(BaseModel):
    """A study."""

    id: str
    name: str
    state: StudyState
    reason: str | None
    spec: dict[str, Any]
    plan: dict[str, Any]
    progress: Progress
    best_trial: TrialRecord | None
    """The trial that is promoted or proposed; before that, the completed one of the highest value."""
    prediction: PredictionView | None
    promotion: PromotionView | None
    """None until the search has succeeded."""
    run: RunView | None
    privacy: PrivacyView
    error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class StudySummary(BaseModel):
    """A study in a list."""

    id: str
    name: str
    state: StudyState
    reason: str | None
    dataset: str
    search_accounting: str
    search_note: str
    epsilon: float
    """As ``privacy.epsilon`` of the study."""
    delta: float
    accountant: str
    neighboring_relation: str
    best_accuracy: float | None
    test_accuracy: float | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class StudyPage(BaseModel):
    """Studies, newest first."""

    items: list[StudySummary]
    next_cursor: str | None


class PromoteRequest(BaseModel):
    """Which trial to promote; without it, the one the search chose."""

    trial: int | None = None
