"""What the API says about a study."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StringConstraints,
    ValidationError,
    model_validator,
)

from service.datasets.schemas import ApprovalRule
from service.evaluation import EvaluationView
from service.moments import Moment
from service.studies.lifecycle import StudyState
from tan_core.spec.base import Frozen, fault
from tan_core.spec.study import Metric, Name
from tan_core.tan import LawMethod
from tan_core.wire import Exact, TrialRecord

RestoredNote = Annotated[str | None, Field(exclude_if=lambda note: note is None)]
"""What has to be said beside epsilon where the study had reserved when somebody went on with a restored backup."""


class FeaturesProgress(BaseModel):
    """How far the features of a split are, which are computed once and before the first trial or step."""

    done: int
    number: int
    """Of records."""
    seconds_left: float | None


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
    features: FeaturesProgress | None = None
    """While they are computed."""


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
    began_from_trial: int | None = None
    """The trial whose weights it began with, which are paid for or of public data; None: with others."""
    learning_rate: float | None = None
    """Of its schedule: a part of its trial's where it goes on from that."""
    test_accuracy: float | None
    num_test: int | None
    evaluation: EvaluationView | None
    """By class and group; None: not asked for, or not over."""


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
    restored_note: RestoredNote = None
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
    """Whether one of those seeds at least had no part in choosing the trial: else the prediction is too high."""
    method: LawMethod
    slope: float
    """Accuracy per doubling of the batch."""
    caution: str | None
    """Why to trust it less."""
    guessing: float = 0.0
    """Accuracy of it, which the law's curve begins from."""
    ahead: float = 0.0
    """Part of ``accuracy``: what the weights that a run releases are ahead of the mean that simulations are scored by."""
    shift: float = 0.0
    """Part of ``accuracy``: what earlier private runs on the same data ended above their predictions."""
    shift_studies: int = 0
    """That this was learnt from."""


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


class Approval(BaseModel):
    """Who let a private run begin, and with which trial."""

    token_id: str
    """As the audit has it."""
    name: str
    """Of the token."""
    trial: int | None
    """None: the study has no search."""
    at: datetime


class PromotionView(BaseModel):
    """Which trial becomes the private run, and why."""

    trial: int | None
    """None: the study has no search, and its own hyper-parameters are promoted."""
    by: Literal["search", "user"] | None
    """Who decided; None: nobody yet, and ``trial`` is what the search proposes."""
    approved_by: Approval | None = None
    """Whose approval it was, the last one's; None: nobody has approved, or it was before this was kept."""
    reason: str
    standings: list[StandingView]
    """The trials that could be promoted, the best prediction first; at most 100."""


class StudyView(BaseModel):
    """A study."""

    id: str
    tenant: str
    """Whose it is. Nobody else but an admin sees it."""
    name: str
    """Of the study now; ``spec`` keeps the one that it was submitted with."""
    tags: list[str]
    archived: bool
    version: int
    """How often its name, its tags, its note or ``archived`` were edited."""
    note: str | None = None
    """What users wrote down about it, as plain text; None: nothing."""
    state: StudyState
    reason: str | None
    paused: bool
    """Whether a user lets it rest; its driver may still be on its way to the next checkpoint."""
    search_ended_early: bool = False
    """Whether a user wants no more trials than those that had begun; while it is ``simulating``, these go on to their end."""
    priority: int
    queue_position: int | None
    """Its place among those that wait for a slot, from 1; None: it does not wait."""
    spec: dict[str, Any]
    plan: dict[str, Any]
    progress: Progress
    best_trial: TrialRecord | None
    """The trial that is promoted or proposed; before that, the completed one of the highest value."""
    prediction: PredictionView | None
    approval: ApprovalRule | None = None
    """``required``: its private run waits for a person, because it or its dataset's owner says so. None: it does not
    wait any more."""
    promotion: PromotionView | None
    """None until the search has succeeded, or, without one, the private run is to begin."""
    run: RunView | None
    privacy: PrivacyView
    error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class StudySummary(BaseModel):
    """A study in a list."""

    id: str
    tenant: str
    name: str
    tags: list[str]
    archived: bool
    state: StudyState
    reason: str | None
    paused: bool
    priority: int
    queue_position: int | None
    dataset: str
    model: str | None = None
    """Its name. None: of a service from before lists told it."""
    search_accounting: str
    search_note: str
    restored_note: RestoredNote = None
    epsilon: float
    """As ``privacy.epsilon`` of the study."""
    target_epsilon: float | None
    """What was asked for; None where the noise was, and epsilon followed from it."""
    delta: float
    accountant: str
    neighboring_relation: str
    metric: Metric = Metric.ACCURACY
    """What the accuracies are."""
    best_accuracy: float | None
    """Of the completed simulations."""
    predicted_accuracy: float | None
    predicted_low: float | None
    predicted_high: float | None
    test_accuracy: float | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class StudyPage(BaseModel):
    """Studies in the order that was asked for."""

    items: list[StudySummary]
    next_cursor: str | None
    total: int | None = None
    """On all pages, as the filters leave them. None: not counted, being more than 1,000, or more than a page of
    one ``model``; or by a service from before any were."""


class StudyOrder(StrEnum):
    """What studies are listed by; a minus puts the last first. Ties are in the order of the id.

    A study that has no such number yet comes last, whichever way they are ordered.
    """

    OLDEST = "created_at"
    NEWEST = "-created_at"
    NAME = "name"
    NAME_BACKWARDS = "-name"
    LEAST_EPSILON = "target_epsilon"
    MOST_EPSILON = "-target_epsilon"
    WORST_TRIAL = "best_accuracy"
    BEST_TRIAL = "-best_accuracy"
    LEAST_PREDICTED = "predicted_accuracy"
    MOST_PREDICTED = "-predicted_accuracy"
    LEAST_REACHED = "test_accuracy"
    MOST_REACHED = "-test_accuracy"

    @property
    def field(self) -> str:
        """Of a summary: what it is listed by."""
        return self.value.removeprefix("-")

    @property
    def is_backwards(self) -> bool:
        """Whether the last come first."""
        return self.value.startswith("-")

    @property
    def turned(self) -> "StudyOrder":
        """The same, the other way round."""
        return StudyOrder(self.field if self.is_backwards else f"-{self.field}")


class Archived(StrEnum):
    """What a list does with studies that were archived."""

    EXCLUDE = "exclude"
    INCLUDE = "include"
    ONLY = "only"


Tag = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:/-]+$", max_length=50)]
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:/-]+$", max_length=200)]
NamePart = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$", max_length=100)]


def _once_each(tags: list[str]) -> list[str]:
    """A tag is there or not: said twice, it is there, at its first place."""
    return list(dict.fromkeys(tags))


Note = Annotated[Exact, StringConstraints(max_length=4000)]
Tags = Annotated[list[Tag], Field(max_length=20), AfterValidator(_once_each)]


class StudyListing(BaseModel):
    """Which studies, in which order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: list[StudyState] = Field(default=[], description="One of these")
    dataset: NamePart | None = Field(default=None, description="Of the private run")
    model: ModelName | None = Field(default=None, description="The whole name of the model")
    id_begins: NamePart | None = Field(default=None, description="The beginning of the id")
    name: NamePart | None = Field(default=None, description="The whole name")
    name_contains: NamePart | None = Field(default=None, description="In any case of letters")
    tag: Tags = Field(default=[], description="All of these")
    created_after: Moment | None = Field(default=None, description="With its UTC offset")
    created_before: Moment | None = Field(default=None, description="With its UTC offset")
    archived: Archived = Archived.EXCLUDE
    sort: StudyOrder = StudyOrder.NEWEST


class StudyQuery(StudyListing):
    """One page of a list of studies."""

    limit: int = Field(default=50, ge=1, le=200)
    cursor: str | None = Field(
        default=None, max_length=1000, description="next_cursor of the page before this one"
    )

    def listing(self) -> StudyListing:
        """The list that this is a page of."""
        return StudyListing(**{name: getattr(self, name) for name in StudyListing.model_fields})


class PromoteRequest(Frozen):
    """Which trial to promote; without it, the one the search chose."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"trial": 7}]})

    trial: int | None = None


class StudyEdit(Frozen):
    """What of a study may be edited; what is left out stays as it is."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "digits-eps3-wide", "tags": ["paper", "fig:2"]}]}
    )

    name: Name | None = None
    tags: Tags | None = None
    """All of them: these take the place of those that it had. One that is repeated counts once."""
    note: Note | None = None
    """Plain text in the place of the note that there was; empty: none."""
    archived: StrictBool | None = None
    """Lists leave an archived study out unless they are asked for it. Only a final one can be."""

    @model_validator(mode="before")
    @classmethod
    def _says_what(cls, value: Any) -> Any:
        if isinstance(value, dict):
            empty = [
                fault("study", (str(name),), None, "null is no value; leave it out")
                for name, each in value.items()
                if each is None
            ]
            if empty:
                raise ValidationError.from_exception_data(cls.__name__, empty)
            if not value:
                raise ValueError("nothing to change: give name, tags, note or archived")
        return value
