"""What a dataset's owner states when registering it, and what the API says about it."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    StrictBool,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from service.ledger.schemas import AdmissionRule, names_who_and_why
from tan_core.accounting import MIN_DELTA
from tan_core.data.users import MAX_RECORDS_PER_UNIT
from tan_core.mechanism import NeighboringRelation
from tan_core.spec import SearchAccounting
from tan_core.spec.base import Frozen, fault
from tan_core.spec.columns import Column, Feature
from tan_core.spec.study import Name
from tan_core.wire import RECORD

ALLOWED_MODES = (
    SearchAccounting.PUBLIC_PROXY,
    SearchAccounting.ACCOUNTED,
    SearchAccounting.DECLARED_UNACCOUNTED,
)
"""The ``search.accounting`` modes that a dataset may allow."""
SUPPORTED_MODES = (*ALLOWED_MODES, SearchAccounting.NO_SEARCH)
"""Those that a study can be run under today. Without a search nothing has to be allowed: the run is charged."""


def _supported(value: object) -> object:
    """A mode that studies can be run under: what a dataset allows is said once, for ever."""
    if value == SearchAccounting.NO_SEARCH:
        raise PydanticCustomError(
            "dataset",
            "needs no permission: a study without a search may be trained on every dataset; leave it out",
        )
    if value not in ALLOWED_MODES:
        raise PydanticCustomError(
            "dataset",
            "no study can be run under it, and what a dataset allows cannot be changed later; "
            "accepted today: {accepted}",
            {"accepted": f"{', '.join(ALLOWED_MODES[:-1])} and {ALLOWED_MODES[-1]}"},
        )
    return value


NOT_CHARGED_HERE = (
    "a search on public data is free, so nothing can be charged; accepted: public_proxy"
)
"""Why no search on public data can be ``accounted``."""


AllowedMode = Annotated[
    SearchAccounting,
    BeforeValidator(_supported),
    WithJsonSchema({"type": "string", "enum": [*map(str, ALLOWED_MODES)]}),
]
Text = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")]
ClassName = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00]+$")]
Source = Literal["digits", "parquet", "image_folder", "npz", "table"]
ApprovalRule = Literal["automatic", "required"]
"""``required``: no private run on the data begins before a person approves it, whatever its study says."""


MAX_CHARACTERS_OF_CLASSES = 100_000
"""Whoever lists the datasets gets them all."""

NOTHING_TO_APPROVE = (
    "a public dataset has no budget that an approval could guard; accepted: automatic, and promotion: "
    "manual in a study"
)


class DatasetRegistration(Frozen):
    """A dataset as its owner registers it. A private one states its whole budget, once."""

    name: Name
    path: Text | None = None
    """Folder or file on storage that every node sees; none for ``digits``."""
    source: Source | None = None
    """Found out from the path when left out."""
    label: Column = "label"
    features: Annotated[list[Feature], Field(min_length=1, max_length=100_000)] | None = None
    """Columns of a table that are read, by name or with what is publicly known of them: a range, ``low`` and ``high``, which
    becomes -1 to 1, or ``choices``, each a column of 0 and 1. None: those of numbers, as they are."""
    num_classes: Annotated[int, Field(ge=2, le=100_000)] | None = None
    """State it where the number of classes is not public; otherwise it is read off the labels."""
    classes: Annotated[list[ClassName], Field(min_length=2, max_length=1000)] | None = None
    """What they are called, in the order of their numbers from 0. Labels that are text need it, and are compared with
    these letter by letter. The names are public: they stand in the journal and beside the weights."""
    unit: Column = RECORD
    """What one guarantee is for: a record; or a user, by the column that says whose a record is."""
    records_per_unit: Annotated[int, Field(ge=1, le=MAX_RECORDS_PER_UNIT)] | None = None
    """Training records of a user that are read, at most. Of a user with more some are chosen, by a rule
    that looks at nobody else's; default: 16. For a record it is 1."""
    group: Column | None = None
    """The column that says which group a record is of, for the accuracy of each group."""
    epsilon: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Total over every study that ever reads the dataset."""
    delta: Annotated[float, Field(ge=MIN_DELTA, lt=1)] | None = None
    """Below the least that can be priced, no study could ever be planned."""
    neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
    admission: AdmissionRule = AdmissionRule.PLD
    """What decides whether the budget holds one more study; ``renyi_filter`` also holds where plans
    depend on earlier private results."""
    public: StrictBool = False
    allow: list[AllowedMode] | None = None
    """Modes of ``search.accounting``; default: public_proxy, accounted where the data are private, and what a waiver
    allows. ``no_search`` needs none."""
    waiver: Annotated[str, StringConstraints(max_length=2000)] | None = None
    """``owner: reason``: who accepts that a search on this data is not accounted, and why. It cannot be
    given later."""
    accept_overlap: Annotated[str, StringConstraints(max_length=2000)] | None = None
    """``owner: reason``: who accepts that the data hold records of other registered datasets, and why.
    It stands in the ledger and in statements."""
    approval: ApprovalRule = "automatic"
    """Whether a person has to approve every private run. It may be changed later."""
    split_seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        faults = [
            *self._budget_faults(),
            *self._admission_faults(),
            *self._naming_faults(),
            *self._class_faults(),
            *self._waiver_faults(),
            *self._charged_faults(),
        ]
        if self.unit == RECORD and self.records_per_unit not in (None, 1):
            faults.append(
                _fault(
                    "records_per_unit",
                    self.records_per_unit,
                    "a unit of one record has 1; name the column of users as the unit",
                )
            )
        if faults:
            raise ValidationError.from_exception_data(type(self).__name__, faults)
        return self

    def _budget_faults(self) -> list[InitErrorDetails]:
        stated = {"epsilon": self.epsilon, "delta": self.delta}
        if self.public:
            faults = [
                _fault(name, value, "a public dataset has no budget; leave it out")
                for name, value in stated.items()
                if value is not None
            ]
            if self.approval == "required":
                faults.append(_fault("approval", self.approval, NOTHING_TO_APPROVE))
            return faults
        return [
            _fault(
                name, None, f"a private dataset needs its total {name}; public data: public: true"
            )
            for name, value in stated.items()
            if value is None
        ]

    def _admission_faults(self) -> list[InitErrorDetails]:
        """A rule is for ever, and the same bytes are registered once: one that admits nothing is refused."""
        filtered = self.admission is AdmissionRule.RENYI_FILTER and not self.public
        if filtered and self.neighboring_relation is NeighboringRelation.REPLACE_ONE:
            return [
                _fault(
                    "admission",
                    self.admission.value,
                    "a Rényi filter would admit no study: no Rényi bound is known for sampled batches under "
                    "neighboring_relation replace_one; accepted there: pld",
                )
            ]
        return []

    def _naming_faults(self) -> list[InitErrorDetails]:
        """Whoever answers for an exception says who it is and why."""
        stated = {"waiver": self.waiver, "accept_overlap": self.accept_overlap}
        return [
            _fault(name, value, 'expected "owner: reason", both stated in printable text')
            for name, value in stated.items()
            if value is not None and not names_who_and_why(value)
        ]

    def _class_faults(self) -> list[InitErrorDetails]:
        """What else there is to say of their names is told by whoever looks at the data (``tan_core.data``)."""
        names = self.classes or []
        if sum(map(len, names)) <= MAX_CHARACTERS_OF_CLASSES:
            return []
        accepted = f"accepted: {MAX_CHARACTERS_OF_CLASSES:,} characters of all names together"
        return [_fault("classes", f"{len(names):,} names", accepted)]

    def _waiver_faults(self) -> list[InitErrorDetails]:
        allows = self.allow is not None and SearchAccounting.DECLARED_UNACCOUNTED in self.allow
        if allows and self.waiver is None:
            return [
                _fault(
                    "waiver",
                    None,
                    'allowing declared_unaccounted needs a waiver "owner: reason": '
                    "who accepts that the search is not accounted, and why",
                )
            ]
        return []

    def _charged_faults(self) -> list[InitErrorDetails]:
        if self.allow is None or SearchAccounting.ACCOUNTED not in self.allow:
            return []
        if not self.public:
            return []
        return [_fault("allow", SearchAccounting.ACCOUNTED.value, NOT_CHARGED_HERE)]

    def allowed_modes(self) -> list[SearchAccounting]:
        """What was allowed, or the default."""
        if self.allow is not None:
            return list(dict.fromkeys(self.allow))
        return [
            SearchAccounting.PUBLIC_PROXY,
            *([] if self.public else [SearchAccounting.ACCOUNTED]),
            *([SearchAccounting.DECLARED_UNACCOUNTED] if self.waiver else []),
        ]


class BudgetView(Frozen):
    """The total budget of a private dataset."""

    epsilon: float
    delta: float


class SharedRecords(Frozen):
    """How many of a dataset's records another one holds too."""

    dataset: str
    """The other one."""
    public: bool
    """Whether the other one is."""
    shared: int
    of: int
    """Distinct records of the dataset; above a million a sample of them."""


class OverlapView(Frozen):
    """Records that a dataset shares with others, and who accepted it."""

    accepted: str
    """``owner: reason``."""
    others: list[SharedRecords]
    """As they were registered by then."""


class DatasetView(Frozen):
    """A registered dataset."""

    name: str
    source: Source
    path: str | None
    label: str
    features: list[Feature] | None
    content_sha256: str
    num_classes: int
    classes: list[str] | None = Field(default=None, exclude_if=lambda names: names is None)
    """What they are called, where the registration says so."""
    shape: list[int]
    num_train: int
    """Units, what is sampled: records, or the users whose records they are."""
    num_train_records: int
    num_validation: int
    """Records."""
    num_validation_users: int | None = Field(default=None, exclude_if=lambda users: users is None)
    """Whose they are, where the unit is a user; left out where it is a record."""
    num_test: int
    """Records."""
    split_seed: int
    unit: str
    """``record``, or the column that says whose a record is: then one guarantee is for one user."""
    records_per_unit: int
    """Training records of a user that are read, at most."""
    group: str | None
    public: bool
    allowed_modes: list[SearchAccounting]
    waiver: str | None
    overlap: OverlapView | None = None
    """None: it shares no records with datasets that were registered before it."""
    warnings: list[str] = Field(default_factory=list[str], exclude_if=lambda told: not told)
    """What whoever registers it may overlook; left out where there is nothing. What records say is told once, to them alone."""
    neighboring_relation: NeighboringRelation | None
    """None for a public dataset: nothing is protected."""
    admission: AdmissionRule | None = None
    """The budget's rule; None for a public dataset."""
    approval: ApprovalRule | None = None
    """Whether every private run waits for a person; None: a service of before, which did not know of it."""
    budget: BudgetView | None
    created_at: datetime


class ApprovalRequest(Frozen):
    """Whether every private run on the dataset waits for a person, as it is asked for."""

    approval: ApprovalRule


class DatasetList(Frozen):
    """Every registered dataset, by name."""

    items: list[DatasetView]


def _fault(field: str, value: object, message: str) -> InitErrorDetails:
    return fault("dataset", (field,), value, message)
