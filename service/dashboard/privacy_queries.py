"""What the pages of datasets ask of the tables, that no view of the API holds. Read only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Double, and_, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from service.dashboard.charts.bought import Reached
from service.dashboard.queries import note_of
from service.db.tables import Run, Study
from service.ledger import names, repository
from service.ledger.schemas import Entry, Reservation


@dataclass(frozen=True)
class Stated(Reached):
    """A study with a signed statement."""

    learnt_from: str | None
    charged_epsilon: float | None
    """All that was charged on the dataset by then; None: a statement of before it said so."""
    finished_at: datetime | None

    @property
    def search_note(self) -> str:
        """What has to be said beside its epsilon."""
        return note_of(self.search_accounting, self.learnt_from)


async def statements_of(
    session: AsyncSession, dataset: str, *, tenant: str | None, limit: int
) -> list[Stated]:
    """The newest studies of a dataset whose statement is there; of one tenant, or (None) of all."""
    privacy = Study.statement["privacy"]
    query = (
        select(
            Study.name,
            Study.spec["model"]["name"].astext,
            Study.spec["search"]["metric"].astext,
            privacy["epsilon"].astext.cast(Double),
            privacy["accountant"].astext,
            Study.plan["privacy"]["delta"].as_float(),
            Study.search_accounting,
            Run.result["test_accuracy"].astext.cast(Double),
            Study.id,
            Study.statement["search"]["learnt_from"].astext,
            Study.statement["ledger"]["charged_epsilon"].astext.cast(Double),
            Study.finished_at,
        )
        .outerjoin(Run, and_(Run.study_id == Study.id, Run.kind == "private"))
        .where(Study.dataset == dataset, Study.statement.is_not(None))
        .order_by(Study.finished_at.desc(), Study.id.desc())
        .limit(limit)
    )
    if tenant is not None:
        query = query.where(Study.tenant == tenant)
    return [Stated(*row) for row in await session.execute(query)]


@dataclass(frozen=True)
class SearchHeld:
    """What is held for a search that is charged, beside what is held for the run."""

    trials: Reservation
    scores: Reservation


async def search_held(session: AsyncSession, study_id: str) -> SearchHeld | None:
    """The reservations of a study's search; None where nothing of it is charged."""
    held = {each.reservation_id: each for each in await repository.of_study(session, study_id)}
    trials, scores = (held.get(each) for each in names.of_search(study_id))
    return None if trials is None or scores is None else SearchHeld(trials, scores)


@dataclass(frozen=True)
class Slice:
    """Which entries of a journal."""

    kinds: Sequence[str]
    study: str | None = None
    """None: of whatever study, or of none."""
    before: int | None = None
    """Only entries of a lower number; None: the newest."""

    def where(self) -> str:
        """The condition, in SQL."""
        study = (
            " AND reservation_id IN (SELECT reservation_id FROM ledger_reservation"
            " WHERE scope_id = :scope AND study_id = :study)"
        )
        before = " AND seq < :before"
        return (
            "scope_id = :scope AND kind = ANY(:kinds)"
            f"{'' if self.study is None else study}{'' if self.before is None else before}"
        )

    def values(self, scope_id: str) -> dict[str, Any]:
        """What it names."""
        given = {"scope": scope_id, "study": self.study, "before": self.before}
        return {"kinds": list(self.kinds)} | {
            name: value for name, value in given.items() if value is not None
        }


async def journal(
    session: AsyncSession, scope_id: str, which: Slice, *, limit: int | None
) -> list[Entry]:
    """The entries, newest first."""
    query = text(
        "SELECT seq, kind, reservation_id, body, encode(prev_hash, 'hex') AS prev_hash,"  # noqa: S608 - our own words
        f" encode(hash, 'hex') AS hash FROM ledger_entry WHERE {which.where()}"
        " ORDER BY seq DESC LIMIT :limit"
    )
    rows = await session.execute(query, {**which.values(scope_id), "limit": limit})
    return [Entry.model_validate(dict(row)) for row in rows.mappings()]


async def num_entries(session: AsyncSession, scope_id: str, which: Slice) -> int:
    """How many there are."""
    query = text(f"SELECT count(*) FROM ledger_entry WHERE {which.where()}")  # noqa: S608 - our own words
    return await session.scalar(query, which.values(scope_id)) or 0
