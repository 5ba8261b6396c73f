"""What the ledger tells: entries, reservations, accounts and the verdict on a chain."""

import json
import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from service.ledger import names
from tan_core.accounting.events import repeated
from tan_core.choice import Choice
from tan_core.mechanism import MAX_STEPS, Accountant, Mechanism, NeighboringRelation
from tan_core.spec.base import Frozen, fault
from tan_core.wire import clean_reason

LOCAL_TENANT = "local"
"""Whose studies those of a service without tenants are."""
ALL_TENANTS = "*"
"""In the place of a tenant: a cap on all of them together."""


class AdmissionRule(Choice):
    """What decides whether a scope's budget holds one more mechanism."""

    PLD = "pld"
    """Privacy loss distributions of all that is committed: for plans fixed independently of earlier
    private outputs."""
    RENYI_FILTER = "renyi_filter"
    """Rényi divergences at one order, summed in the database: plans may depend on earlier outputs."""


EXPORT_SCHEMA = "tan-search/ledger/1"
"""Of a whole ledger as it is exported."""


_WhereKnown = Field(exclude_if=lambda value: value is None)
"""Left out where there is nothing to say, as services of before leave it out."""


class View(BaseModel):
    """A frozen answer of the ledger."""

    model_config = ConfigDict(frozen=True)


class Scope(View):
    """A protected population and its whole budget."""

    scope_id: str
    name: str
    unit: str
    neighboring_relation: NeighboringRelation
    epsilon: float
    delta: float
    admission: AdmissionRule = AdmissionRule.PLD
    filter_order: float | None = None
    """The Rényi order of the filter, fixed when the scope opened; None under ``pld``."""


class Cap(View):
    """A tenant's limit within a scope, at the scope's delta."""

    tenant: str
    """``*``: all of them together."""
    epsilon: float
    """0: nothing more is admitted."""
    seq: int
    """The entry that set it."""


class CapUsed(Cap):
    """A cap beside what counts to it."""

    committed_epsilon: Annotated[float | None, _WhereKnown] = None
    """Of all that its tenant has committed: it stays, also where it is above the cap. None: a service of before, which did
    not say."""


class CapSet(CapUsed):
    """A cap as it was set, beside what it meets."""

    warnings: list[str] = []


class Head(View):
    """The last entry of a scope: publish it, and a rewritten history will not match."""

    seq: int
    hash: str


class Entry(View):
    """One row of the journal."""

    seq: int
    kind: Literal["open", "reserve", "acquire", "begin", "end", "release", "attest", "cap"]
    reservation_id: str | None
    body: str
    """The exact JSON text that the hash covers."""
    prev_hash: str
    hash: str


class Reservation(View):
    """Steps of one mechanism held for one study, or charged for a release outside of the service."""

    reservation_id: str
    scope_id: str
    study_id: str
    """Of an outside release its own ``reservation_id``, which is no study's."""
    tenant: str = LOCAL_TENANT
    seq: int
    """The entry that made it."""
    event: str
    """``Mechanism.to_json`` of the whole reservation, as text."""
    divergences: list[float | None] | None = None
    """Of one step at ``renyi.ORDERS``, as the database computed them; None where no bound is known."""
    search_accounting: Annotated[str | None, _WhereKnown] = None
    """How the study's search touches the private data; None: the entry is of before that was said."""
    baseline: Annotated[bool | None, _WhereKnown] = None
    """Whether the study also trains a model on the data without privacy; None: the entry is of before that
    was said."""
    reason: Annotated[str | None, _WhereKnown] = None
    """Why an outside release was charged, as its journal attests; None: it is of a study."""
    reserved_steps: int
    charged_steps: int
    released_steps: int
    epoch: int
    """Of the worker that may charge to it; 0 before the first one."""
    segments: int
    open_segment: int | None
    ended_segment: int
    checkpoint_step: int
    checkpoint_sha256: str | None
    state: Literal["open", "closed"]

    @property
    def is_outside(self) -> bool:
        """Whether it is of a release outside of the service, and of no study."""
        return names.is_outside(self.reservation_id)

    @property
    def committed_steps(self) -> int:
        """Steps that count against the budget: all but the released ones."""
        return self.reserved_steps - self.released_steps

    @property
    def committed(self) -> Mechanism | None:
        """What counts against the budget: charged and still held; None when all was released."""
        return self._mechanism(self.committed_steps)

    @property
    def charged(self) -> Mechanism | None:
        """What has begun, re-executed steps included; None before the first segment."""
        return self._mechanism(self.charged_steps)

    @property
    def whole(self) -> Mechanism:
        """All that was reserved."""
        return Mechanism.from_json(json.loads(self.event))

    def _mechanism(self, steps: int) -> Mechanism | None:
        return self.whole.with_steps(steps) if steps else None


class Segment(View):
    """Steps that were charged together, as whoever asks for them again is answered."""

    reservation_id: str
    segment: int
    epoch: int
    request_id: str
    start_step: int
    num_steps: int
    checkpoint_step: int | None
    checkpoint_sha256: str | None
    ended: bool


class Commitment(View):
    """What every reservation of one mechanism comes to together."""

    event: str
    """``Mechanism.to_json`` without ``steps``, as text."""
    committed_steps: int
    charged_steps: int

    def of(self, steps: int) -> list[Mechanism]:
        """So many steps of it: together they may be more than one mechanism holds."""
        return repeated(Mechanism.from_json({**json.loads(self.event), "steps": 1}), steps)


class Totals(View):
    """Where a scope's budget stands; every epsilon is at the scope's delta."""

    head: Head
    accountant: str
    committed_epsilon: float
    charged_epsilon: float


class Admission(View):
    """A reservation that the budget holds."""

    scope_id: str
    reservation_id: str
    seq: int
    """Its journal entry."""
    hash: str


class Evaluation(View):
    """What an accountant made of the journal up to an entry."""

    seq: int
    reservation_id: str | None = None
    """Whose charges were priced; None: all of the scope's."""
    accountant: str
    version: str
    epsilon: float
    delta: float
    at: datetime


class EvaluationList(View):
    """Every evaluation of a scope, in the order of their making."""

    items: list[Evaluation]


class Repriced(View):
    """What an accountant of today says beside what was said before."""

    reservation_id: str | None
    """Whose charges; None: all of the scope's."""
    study_id: str | None
    reason: Annotated[str | None, _WhereKnown] = None
    """Why an outside release was charged; None: they are of a study, or of all."""
    seq: int
    accountant: str
    version: str
    delta: float
    epsilon: float
    before: float | None
    """By the newest earlier evaluation of the same charges by this accountant; None: the first one."""
    version_before: str | None


class Repricing(View):
    """The past by the accountants of today. What is new was appended to the evaluations."""

    scope_id: str
    head: Head
    items: list[Repriced]


class Beside(View):
    """What has to be said beside every epsilon of a scope: what is in none of its figures."""

    unaccounted_searches: Annotated[int | None, _WhereKnown] = None
    """Studies whose search on the private data is in no figure here, those that were cancelled or failed
    included: by the journal, and for entries of before it said so by the studies themselves. None: a
    service of before, which did not count them."""
    search_note: Annotated[str | None, _WhereKnown] = None
    """What has to be said beside every epsilon where there are any."""
    unaccounted_baselines: Annotated[int | None, _WhereKnown] = None
    """Studies that train a model on the private data without privacy, to compare with, counted alike."""
    baseline_note: Annotated[str | None, _WhereKnown] = None
    """What has to be said beside every epsilon where there are any."""
    restored_backups: Annotated[int | None, _WhereKnown] = None
    """How often somebody went on with a database that was restored from an older backup."""
    restored_note: Annotated[str | None, _WhereKnown] = None
    """What has to be said beside every epsilon where anybody did: steps that ran may be in none."""


class BurndownPoint(View):
    """Where the budget stood after an entry; every epsilon is at the scope's delta."""

    seq: int
    at: datetime
    committed_epsilon: float
    charged_epsilon: float
    by_study: dict[str, float]
    """Epsilon of what each study, or outside release, was charged, by itself: they compose to less than their sum."""


class Burndown(Beside):
    """How a budget was used up: at most so many points, the newest entry among them."""

    scope_id: str
    budget_epsilon: float
    delta: float
    accountant: str
    """``rdp``: bounds that are quickly had, above what ``/ledger`` says by PLD. ``pld``: they are its own figures, from the
    entry on that holds what has no such bound."""
    head: Head
    points: list[BurndownPoint]


class CapRequest(Frozen):
    """A tenant's limit, as it is asked for."""

    epsilon: Annotated[float, Field(ge=0, le=1000)]
    """0 freezes: nothing more is admitted."""


class CapList(View):
    """The limits of tenants within a dataset's budget, by tenant."""

    items: list[Cap]


_STATEMENTS = ("epsilon", "delta", "rho")


class OutsideReleaseRequest(Frozen):
    """A mechanism that somebody is going to run on the data outside of the service, once.

    ``noise_multiplier`` is the standard deviation of the Gaussian noise over the most (L2 norm) that one protected unit adds to
    what is released; ``steps`` is how often it runs, and ``sampling_rate`` the probability with which a unit is in each step.

    It is what runs, not what was computed of it: no ε, (ε, δ) or ρ is taken, because what meets such a bound may compose
    to more than a Gaussian mechanism that meets it.
    """

    noise_multiplier: Annotated[float, Field(ge=1e-3, le=10_000)]
    """Standard deviation of the Gaussian noise on each coordinate, over the most that one protected unit can add to what
    is released (its L2 norm): of a histogram over users with up to 16 records each, 16, or what contributions are cut to."""
    steps: Annotated[int, Field(ge=1, le=MAX_STEPS)] = 1
    """How often it runs: of DP-SGD its steps."""
    sampling_rate: Annotated[float, Field(ge=1e-12, le=1)] = 1.0
    """Of each unit in each step; 1: all of them, as in a histogram or a sum. The least is one of more units than there are:
    what is rarer by far is no float in a divergence."""
    sampling: Literal["poisson", "unamplified"] = "poisson"
    """``poisson``: each unit by itself, with that probability. ``unamplified``: any other order, shuffled epochs too."""
    reason: Annotated[
        str,
        Field(
            min_length=1,
            max_length=500,
            examples=["histogram of ages for the yearly report"],
            json_schema_extra={
                "pattern": r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$"
            },
        ),
    ]
    """What is released and what for. It stays in the ledger for ever, and whoever may see the dataset reads it."""
    tenant: Annotated[str | None, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")] = None
    """Whose caps it counts to; default: the caller's."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_statements(cls, data: Any) -> Any:
        given = [name for name in _STATEMENTS if isinstance(data, dict) and name in data]
        if given:
            message = (
                "a statement cannot be charged, only the mechanism behind it: give noise_multiplier, steps and sampling_rate; "
                "what meets a bound in epsilon, delta or rho may compose to more than a Gaussian mechanism that meets the same bound"
            )
            raise ValidationError.from_exception_data(
                cls.__name__, [fault("statement", (name,), data[name], message) for name in given]
            )
        return data

    @field_validator("reason")
    @classmethod
    def _is_a_line(cls, reason: str) -> str:
        if not reason.strip() or not reason.isprintable():
            raise ValueError("expected one line of printable text: what is released, and what for")
        return reason


class OutsideRelease(View):
    """A release outside of the service as it was charged; every epsilon is at the scope's delta."""

    id: Annotated[str | None, Field(examples=["outside-0123456789abcdef01234567"])]
    """Its reservation's; None: of a dry run, which charges nothing."""
    scope_id: str
    tenant: str
    reason: str
    mechanism: dict[str, Any]
    """``Mechanism.to_json``."""
    epsilon: float
    """Of itself."""
    epsilon_before: float
    """Of all that was committed before."""
    epsilon_after: float
    """Of the same with this release."""
    remaining_epsilon: float
    """The budget's epsilon above that."""
    delta: float
    accountant: str
    entry: Head | None
    """Its newest in the journal, whose hash covers all that the journal says of it; None: of a dry run."""
    warnings: list[str] = []


class LimitFit(View):
    """How a study stands to one limit; every epsilon is at the scope's delta."""

    tenant: str | None
    """Whose cap it is, ``*`` of all tenants together; None: it is the whole budget."""
    epsilon: float
    """Of the limit."""
    committed_epsilon: float
    """Of what is charged and reserved now, and counts to it."""
    composed_epsilon: float
    """Of the same with the study: what must not be above ``epsilon``."""
    fits: bool


class BudgetFit(View):
    """Whether a budget would admit a study now, by what admission itself compares. Nothing was reserved.

    Another study may be admitted, or give back what it had reserved, before this one is submitted.
    """

    dataset: str
    scope_id: str
    delta: float
    accountant: str
    entry: Head
    """The newest of the ledger then."""
    fits: bool | None
    """Within all limits; None: that was not computed, and ``note`` says why."""
    study_epsilon: float | None = None
    """Of all that the study would reserve, by itself."""
    limits: list[LimitFit] = []
    """The whole budget, then the caps that count for whoever asks."""
    refusal: str | None = None
    """How it would be refused; None: it would not be."""
    missing_epsilon: float | None = None
    """By how much the limit that refuses it is exceeded."""
    fitting_epsilon: float | None = None
    """About the largest target epsilon that would still fit, at as many steps: an estimate, rounded down, and no promise. None
    where it fits, where nothing does, or where no target is stated."""
    fitting_steps: int | None = None
    """The same in steps, of a study whose noise is fixed."""
    note: str | None = None


class RepricingRequest(View):
    """Whose figures are asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accountants: Annotated[list[Accountant], Field(min_length=1, max_length=3)] | None = None
    """None: pld, and rdp for whatever it has a price for."""


def names_who_and_why(text: str) -> bool:
    """Whether it is a ``who: reason``, both stated, and nothing that a terminal would obey: it is shown beside the guarantee."""
    who, colon, reason = text.partition(":")
    is_shown = clean_reason(text) == text and re.search(f"[{_REORDERS}]", text) is None
    return is_shown and bool(colon and who.strip() and reason.strip())


_REORDERS = r"\u202a-\u202e\u2066-\u2069"
"""In a pattern: what has the letters after it shown in another order, so that another text is read."""
_CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f" + _REORDERS
"""In a pattern: control characters other than a tab and the end of a line."""


class RestoredBackupRequest(View):
    """Who goes on with a restored ledger, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: Annotated[
        str,
        Field(
            min_length=1,
            max_length=2000,
            examples=["dpo: the disk died"],
            json_schema_extra={
                "pattern": rf"^[^:{_CONTROL}]*[^:\s{_CONTROL}][^:{_CONTROL}]*:[^{_CONTROL}]*[^\s{_CONTROL}][^{_CONTROL}]*$"
            },
        ),
    ]
    """``who: reason``; it stays in the ledger for ever."""

    @field_validator("reason")
    @classmethod
    def _says_who(cls, reason: str) -> str:
        if not names_who_and_why(reason):
            raise ValueError('expected "who: reason", both stated in printable text')
        return reason


class Account(Beside):
    """A scope's budget and where it went; every epsilon is at the scope's delta."""

    scope: Scope
    accountant: str
    committed_epsilon: float
    """Of everything that may still run or has run: what admission compares to the budget."""
    charged_epsilon: float
    """Of the steps that have begun."""
    remaining_epsilon: float
    """The budget's epsilon above what is committed."""
    head: Head
    caps: list[CapUsed] = []
    reservations: list[Reservation]
    entries: list[Entry]
    """The newest ones, oldest first."""


class ChainReport(View):
    """The verdict on a scope's journal."""

    scope_id: str
    is_valid: bool
    num_entries: int
    head: Head
    first_bad_seq: int | None = None
    """The first entry that does not verify; None also where only the state tables differ."""
    fault: str | None = None
