"""What a privacy statement is made of. Plain values: no database, no network."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from service.datasets.schemas import OverlapView
from service.ledger.schemas import Beside, Head
from tan_core.mechanism import Mechanism
from tan_core.spec import StudySpec
from tan_core.spec.train import Precision
from tan_core.wire import PrivateResult, TrialWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The newest entry about the run's reservation, and the budget it counts against."""

    scope: str
    reservation: str
    seq: int
    hash: str
    budget_epsilon: float
    budget_delta: float
    head: Head
    """The last entry of all when the statement is made: what is said below holds up to it."""
    charged_epsilon: float
    """Of all that was charged on this budget by then, at the budget's delta."""
    accountant: str
    """Whose epsilon that is."""
    beside: Beside
    """What is in none of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The mechanism and how many of its steps were charged."""

    mechanism: Mechanism
    charged_steps: int
    reserved_steps: int | None
    """None on a public dataset: nothing was reserved."""
    search: tuple[Mechanism, ...] = ()
    """What the search was charged beside it, its trials and then their scores; none where it was not charged."""
    search_reservations: tuple[str, ...] = ()
    """Of the ledger, for each of these."""
    entry: LedgerEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that a statement says, before it is priced."""

    study_id: str
    study_name: str
    spec: StudySpec
    dataset_name: str
    dataset_sha256: str
    search_dataset: str
    overlaps: Mapping[str, OverlapView]
    """Of the data trained on and of those searched on, where they share records with others."""
    unit: str
    """``record``, or the column that says whose a record is."""
    records_per_unit: int
    is_public: bool
    num_examples: int
    planned_steps: int
    has_stated_columns: bool = False
    """Whether ranges or choices of columns were stated when the dataset was registered."""
    has_found_columns: bool = False
    """Whether it is a table whose columns were taken for what is in them: all that hold numbers."""
    has_unnamed_classes: bool = False
    """Whether classes are numbers or folders, which nobody listed when the dataset was registered."""
    has_encoded_images: bool = False
    """Whether records are image files, each of which says whether it is grey."""
    learnt_from: str | None = None
    """As in the plan: the trial of a search that was not accounted whose parameters the study has."""
    precision: Precision
    """Of the passes through the model, as the private run executed them."""
    waiver: str | None
    begun_from: TrialWeights | None = None
    """What the private run began with, where that was a trial's."""
    own_model: str | None = None
    """What is known of the checkpoint that the study begins from, where this service trained it on private data."""
    result: PrivateResult
    charge: Charge
    issued_at: datetime
    versions: Mapping[str, str]
    code_commit: str | None = None
    """Of the code that executed the private run; None: it did not know."""
    container_image: str | None = None
    """That it was executed in, as the deployment names it; None: it does not."""
