"""The control plane's tables. The ledger's live in migrations/sql/ledger.sql: only functions write them.

Every table here is a plain state table, written by the control plane alone. Times are UTC.

Locking order, everywhere: study, run, attempt, trial, and the ledger's head last. A transaction that
charges a segment locks the ledger's head alone.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    MetaData,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tan_core.accounting import SearchAccounting, note_of_search

NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Declarative base with named constraints, so that migrations can name them too."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it from the class
        dict[str, Any]: JSONB(none_as_null=True),
        list[Any]: JSONB(none_as_null=True),
        datetime: DateTime(timezone=True),
        str: Text,
        int: BigInteger,
    }


class Dataset(Base):
    """A registered dataset. Its budget hangs on ``scope_id`` (None: public, no budget)."""

    __tablename__ = "dataset"

    name: Mapped[str] = mapped_column(primary_key=True)
    source: Mapped[str]
    path: Mapped[str | None]
    label: Mapped[str]
    features: Mapped[list[Any] | None]
    content_sha256: Mapped[str] = mapped_column(unique=True)
    """Unique over the service: the same bytes cannot be registered twice for a fresh budget."""
    num_classes: Mapped[int]
    classes: Mapped[list[Any] | None]
    """What they are called, where the registration says so."""
    shape: Mapped[list[Any]]
    num_train: Mapped[int]
    """Units: records, or users."""
    num_train_records: Mapped[int]
    num_validation: Mapped[int]
    num_validation_users: Mapped[int | None]
    """None where a unit is a record, and of users that were registered before they were counted."""
    num_test: Mapped[int]
    split_seed: Mapped[int] = mapped_column(server_default="0")
    unit: Mapped[str]
    """What is protected: ``record``, or the column that says whose a record is."""
    records_per_unit: Mapped[int] = mapped_column(server_default="1")
    """Of a user, in train, at most."""
    group: Mapped[str | None] = mapped_column("group_column")
    """Which group a record is of, for accuracies by group."""
    public: Mapped[bool]
    allowed_modes: Mapped[list[Any]]
    waiver: Mapped[str | None]
    """``owner: reason``; without it ``declared_unaccounted`` is refused."""
    approval: Mapped[str] = mapped_column(server_default="automatic")
    """``required``: a person approves every private run. Of the row it alone may change."""
    scope_id: Mapped[str | None]
    overlap: Mapped[dict[str, Any] | None]
    """Who accepted that it holds records of other datasets, and of which, as datasets.schemas.OverlapView."""
    unread_columns: Mapped[list[Any]] = mapped_column(server_default="[]")
    """Of a table whose features were not named: those that hold no numbers."""
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())

    __table_args__ = (CheckConstraint("approval in ('automatic','required')", name="approval"),)

    @property
    def num_scored(self) -> int:
        """Units of the validation split, of which the score of a charged trial counts those that are told right."""
        return self.num_validation_users or self.num_validation


class DatasetDigests(Base):
    """Which records a dataset holds, by keyed digests."""

    __tablename__ = "dataset_digests"

    dataset: Mapped[str] = mapped_column(ForeignKey("dataset.name"), primary_key=True)
    key_id: Mapped[str]
    """Of the key: digests by another one say nothing of these."""
    digests: Mapped[bytes]


class DatasetFile(Base):
    """The files of a dataset, by content: a part of one dataset is not another dataset."""

    __tablename__ = "dataset_file"

    sha256: Mapped[str] = mapped_column(primary_key=True)
    dataset: Mapped[str] = mapped_column(ForeignKey("dataset.name"), index=True)


class Study(Base):
    """One study. ``state`` is moved by the orchestrator only, along service/studies/lifecycle.py."""

    __tablename__ = "study"

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(server_default="local")
    """Whose it is: nobody else but an admin sees it. Never changes."""
    name: Mapped[str]
    state: Mapped[str] = mapped_column(index=True)
    reason: Mapped[str | None]
    """Why the study is in this state, for anything that is not simply running."""
    spec: Mapped[dict[str, Any]]
    plan: Mapped[dict[str, Any]]
    dataset: Mapped[str] = mapped_column(ForeignKey("dataset.name"), index=True)
    search_dataset: Mapped[str] = mapped_column(ForeignKey("dataset.name"))
    search_accounting: Mapped[str]
    cancel_requested: Mapped[bool] = mapped_column(server_default=text("false"))
    promote_requested: Mapped[bool] = mapped_column(server_default=text("false"))
    priority: Mapped[int] = mapped_column(server_default="0")
    """Of those that wait for a slot, the highest goes first."""
    pause_requested: Mapped[bool] = mapped_column(server_default=text("false"))
    """What users want; ``suspended`` is what is."""
    finish_requested: Mapped[bool] = mapped_column(server_default=text("false"))
    """Of a search: a user wants no more trials than it has."""
    suspended: Mapped[bool] = mapped_column(server_default=text("false"))
    """Begun, but without a driver and without a slot: paused, resting, or waiting for a slot again."""
    resting: Mapped[bool] = mapped_column(server_default=text("false"))
    """Suspended between two attempts, and in no line until the rest is over."""
    promoted_trial: Mapped[int | None]
    prediction: Mapped[dict[str, Any] | None]
    """What the promoted trial should reach, as studies.schemas.Prediction."""
    promotion: Mapped[dict[str, Any] | None]
    """Which trial the search proposes or somebody chose, as studies.schemas.PromotionView."""
    error: Mapped[dict[str, Any] | None]
    reservation_id: Mapped[str | None]
    """The ledger's hold for the private run; None on a public dataset."""
    statement: Mapped[dict[str, Any] | None]
    charged_epsilon: Mapped[float | None]
    """Of a study that ended without a statement: epsilon of the steps it was charged, at its delta."""
    tags: Mapped[list[Any]] = mapped_column(server_default=text("'[]'::jsonb"))
    """Words of the users' own, to find it by."""
    note: Mapped[str | None]
    """What users wrote down about it; None: nothing."""
    archived: Mapped[bool] = mapped_column(server_default=text("false"))
    """Whether lists leave it out unless they are asked for it."""
    version: Mapped[int] = mapped_column(server_default="0")
    """How often it was edited: what If-Match is held against."""
    event_seq: Mapped[int] = mapped_column(server_default="0")
    """Number of the last event: events are numbered under this row's lock."""
    lease_owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    @property
    def search_note(self) -> str:
        """What has to be said of its search wherever its epsilon is."""
        mode = SearchAccounting(self.search_accounting)
        return note_of_search(mode, learnt_from=self.plan.get("learnt_from"))

    @property
    def has_search(self) -> bool:
        """Whether anything is simulated before the private run."""
        return self.search_accounting != SearchAccounting.NO_SEARCH

    __table_args__ = (
        Index("ix_study_tenant", "tenant", "created_at"),
        CheckConstraint(
            "state in ('queued','simulating','awaiting_approval','training','completed','failed',"
            "'cancelled')",
            name="state",
        ),
    )


class Trial(Base):
    """One candidate of the search, as wire.TrialRecord. Of a finished one only ``repeats`` may grow."""

    __tablename__ = "trial"

    study_id: Mapped[str] = mapped_column(ForeignKey("study.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str]
    params: Mapped[dict[str, Any]]
    scores: Mapped[list[Any]]
    repeats: Mapped[list[Any]] = mapped_column(server_default=text("'[]'::jsonb"))
    value: Mapped[float | None]
    source: Mapped[str | None]
    reason: Mapped[str | None]
    weights_sha256: Mapped[str | None]
    began_from: Mapped[dict[str, Any] | None]
    attempt: Mapped[int]
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
    finished_at: Mapped[datetime | None]

    __table_args__ = (
        Index("ix_trial_best", "study_id", "value", postgresql_where=text("state = 'completed'")),
        CheckConstraint(
            "state in ('running','completed','pruned','diverged','failed','interrupted')",
            name="state",
        ),
    )


class Run(Base):
    """One phase of a study: its search or its private run. Attempts follow each other under it."""

    __tablename__ = "run"

    id: Mapped[str] = mapped_column(primary_key=True)
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id"), index=True)
    kind: Mapped[str]
    state: Mapped[str]
    """``active`` until it ``succeeded``, ``failed`` or was ``cancelled``."""
    reason: Mapped[str | None]
    assignment: Mapped[dict[str, Any]]
    """The part of the wire Assignment that does not change between attempts."""
    step: Mapped[int] = mapped_column(server_default="0")
    """Last step known from a heartbeat or a checkpoint (private runs)."""
    steps: Mapped[int] = mapped_column(server_default="0")
    steps_per_second: Mapped[float | None]
    features: Mapped[dict[str, Any] | None]
    """How far the features are that are computed before the first trial or step."""
    checkpoint: Mapped[dict[str, Any] | None]
    progress_attempt: Mapped[int] = mapped_column(server_default="0")
    """The newest attempt that finished a trial or wrote a checkpoint: retries are counted from it."""
    result: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    finished_at: Mapped[datetime | None]

    __table_args__ = (
        UniqueConstraint("study_id", "kind"),
        CheckConstraint("kind in ('search','private')", name="kind"),
        CheckConstraint("state in ('active','succeeded','failed','cancelled')", name="state"),
    )


class Attempt(Base):
    """One driver of a run, known to Ray as ``{run_id}-a{number}``. ``fence`` equals ``number``.

    At most one attempt of a run is live: a partial unique index says so.
    """

    __tablename__ = "attempt"

    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str]
    """``live`` until the driver reported (``succeeded``, ``failed``, ``cancelled``) or was ``lost``."""
    reason: Mapped[str | None]
    retryable: Mapped[bool] = mapped_column(server_default=text("true"))
    """As the driver's Finish said: whether another attempt could end differently."""
    submission_id: Mapped[str] = mapped_column(unique=True)
    submitted_at: Mapped[datetime | None]
    heartbeat_at: Mapped[datetime | None]
    stop_requested_at: Mapped[datetime | None]
    pause_requested_at: Mapped[datetime | None]
    """Told to end at its next checkpoint: its end is no failure."""
    ranks: Mapped[int | None]
    """Of a private run, as the driver counted them; None: it did not say."""
    waits_for: Mapped[str | None]
    """Why nothing of it has a place in the cluster yet, as the driver says."""
    waited_seconds: Mapped[float] = mapped_column(server_default="0")
    """For how long that was so, in all: nothing was computed meanwhile."""
    exit_code: Mapped[int | None]
    """Of the driver, as the cluster saw it end."""
    last_lines: Mapped[str | None]
    """The end of what the driver said."""
    log_end: Mapped[int] = mapped_column(server_default="0")
    """Characters of the driver's log that were read so far."""
    log_closed: Mapped[bool] = mapped_column(server_default=text("false"))
    """The driver is gone and its log was read to the end."""
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    finished_at: Mapped[datetime | None]

    __table_args__ = (
        Index("uq_attempt_live", "run_id", unique=True, postgresql_where=text("state = 'live'")),
        Index("ix_attempt_log_open", "submission_id", postgresql_where=text("NOT log_closed")),
        CheckConstraint("state in ('live','succeeded','failed','cancelled','lost')", name="state"),
    )


class LogChunk(Base):
    """A part of what a driver said, secrets removed; the oldest parts of a long log are dropped."""

    __tablename__ = "log_chunk"

    submission_id: Mapped[str] = mapped_column(
        ForeignKey("attempt.submission_id"), primary_key=True
    )
    start: Mapped[int] = mapped_column(primary_key=True)
    """Where it begins in the driver's log, in characters."""
    text: Mapped[str]


class WebhookDelivery(Base):
    """One message to one address, until it is accepted or a day has passed."""

    __tablename__ = "webhook_delivery"

    id: Mapped[str] = mapped_column(primary_key=True)
    """The same at every try, so that receivers can tell a repetition."""
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id"))
    event: Mapped[str]
    """The state that the study has reached."""
    seq: Mapped[int]
    """Of the event that says so: the same state may be reached again."""
    target: Mapped[str]
    """Digest of the address: an address may hold a secret."""
    host: Mapped[str]
    body: Mapped[str]
    state: Mapped[str]
    tries: Mapped[int] = mapped_column(server_default="0")
    answer: Mapped[str | None]
    """Of the last try: a status, or what went wrong."""
    next_try_at: Mapped[datetime] = mapped_column(server_default=func.now())
    created_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)
    finished_at: Mapped[datetime | None]

    __table_args__ = (
        UniqueConstraint("study_id", "event", "target", "seq"),
        Index("ix_webhook_delivery_due", "next_try_at", postgresql_where=text("state = 'pending'")),
        CheckConstraint("state in ('pending','delivered','given_up')", name="state"),
    )


class Event(Base):
    """The outbox behind ``GET /studies/{id}/events``: gapless per study, replayed exactly.

    A trigger notifies channel ``tan_event`` with ``study_id`` after each insert.
    """

    __tablename__ = "event"

    study_id: Mapped[str] = mapped_column(ForeignKey("study.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    data: Mapped[dict[str, Any]]
    at: Mapped[datetime] = mapped_column(server_default=func.now())

    __table_args__ = (Index("ix_event_state_at", "at", postgresql_where=text("kind = 'state'")),)


class IdempotencyKey(Base):
    """What a key was first used for; the same key with another request is refused."""

    __tablename__ = "idempotency_key"

    key: Mapped[str] = mapped_column(primary_key=True)
    """``tenant:key``."""
    operation: Mapped[str] = mapped_column(server_default="submit_study")
    request_sha256: Mapped[str]
    """Of the request as it was sent (service/idempotency.py)."""
    study_id: Mapped[str | None] = mapped_column(ForeignKey("study.id"))
    """What the request made or changed: a study or a dataset."""
    dataset: Mapped[str | None] = mapped_column(ForeignKey("dataset.name"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)

    __table_args__ = (CheckConstraint("num_nonnulls(study_id, dataset) = 1", name="subject"),)


class ApiToken(Base):
    """One API token. Only a digest of its secret is kept."""

    __tablename__ = "api_token"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    tenant: Mapped[str]
    scopes: Mapped[list[Any]]
    """Of service.auth.scopes.Scope."""
    secret_sha256: Mapped[str]
    created_by: Mapped[str | None]
    """Who asked for it, as AuditEvent.token_id; None: the service itself, at its first start."""
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    """To the minute."""


class AuditEvent(Base):
    """A change that somebody asked for, granted or refused. Append-only: triggers refuse the rest."""

    __tablename__ = "audit_event"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)
    token_id: Mapped[str | None]
    """None: nobody who could be told."""
    tenant: Mapped[str | None]
    address: Mapped[str | None]
    method: Mapped[str]
    route: Mapped[str]
    """The route's template, such as ``/studies/{study_id}/cancel``."""
    target: Mapped[str | None]
    status: Mapped[int]
    request_id: Mapped[str]

    __table_args__ = (
        Index("ix_audit_event_token_id", "token_id", "id"),
        Index(
            "ix_audit_event_target",
            "target",
            "id",
            postgresql_ops={"target": "text_pattern_ops"},
        ),
        Index("ix_audit_event_action", "method", "route", "id"),
    )


class OrchestratorPulse(Base):
    """The looks of one orchestrator at its studies, for ``/metrics``; service/orchestrator/pulse.py."""

    __tablename__ = "orchestrator_pulse"

    owner: Mapped[str] = mapped_column(primary_key=True)
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    ticked_at: Mapped[datetime] = mapped_column(server_default=func.now())
    ticks: Mapped[int]
    tick_seconds: Mapped[float]
    """Of all ticks together."""
    last_tick_seconds: Mapped[float]
