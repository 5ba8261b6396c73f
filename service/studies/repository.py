"""Queries over studies, their trials, runs and events."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime, FiniteFloat, TypeAdapter
from sqlalchemy import (
    ColumnElement,
    Double,
    Select,
    func,
    literal,
    select,
    tuple_,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from service import paging
from service.db.tables import Event, Run, Study, Trial
from service.paging import Cursor
from service.studies.schemas import Archived, NamePart, StudyListing, StudyOrder
from tan_core.wire import RungScore, TrialRecord, TrialStart, TrialState

_BY_NAME = TypeAdapter(tuple[NamePart, NamePart])
_BY_TIME = TypeAdapter(tuple[AwareDatetime, NamePart])
_BY_NUMBER = TypeAdapter(tuple[FiniteFloat | None, NamePart])
"""Where a page ended: what the list is ordered by, and the id."""

MOST_COUNTED = 1000
"""Studies of a list. To count 20,000 takes 10 ms, as long as a page of them; the first thousand, half of one."""

_BEST = (
    select(func.max(Trial.value))
    .where(Trial.study_id == Study.id, Trial.state == TrialState.COMPLETED)
    .scalar_subquery()
)
_TESTED = (
    select(Run.result["test_accuracy"].astext.cast(Double))
    .where(Run.study_id == Study.id, Run.kind == "private")
    .scalar_subquery()
)
_NUMBERS: dict[str, ColumnElement[float | None]] = {
    "target_epsilon": Study.plan["privacy"]["target_epsilon"].astext.cast(Double),
    "best_accuracy": _BEST,
    "predicted_accuracy": Study.prediction["accuracy"].astext.cast(Double),
    "test_accuracy": _TESTED,
}
"""Of a summary: what a list may be ordered by and some studies do not have."""


async def find(session: AsyncSession, study_id: str, *, lock: bool = False) -> Study | None:
    """The study, with its row locked on request."""
    if "\x00" in study_id:  # PostgreSQL has no such text, so no such study
        return None
    query = select(Study).where(Study.id == study_id)
    if lock:
        query = query.with_for_update().execution_options(populate_existing=True)
    return await session.scalar(query)


async def insert(session: AsyncSession, study: Study) -> None:
    """Store a new study, with what the database fills in."""
    session.add(study)
    await session.flush()
    await session.refresh(study)


async def completed_trials(session: AsyncSession, study_id: str) -> list[int]:
    """Numbers of the trials that may be promoted."""
    query = (
        select(Trial.number)
        .where(Trial.study_id == study_id, Trial.state == "completed")
        .order_by(Trial.number)
    )
    return list((await session.scalars(query)).all())


async def page(
    session: AsyncSession,
    listing: StudyListing,
    *,
    limit: int,
    cursor: Cursor,
    tenant: str | None,
) -> tuple[list[Study], Cursor]:
    """Up to ``limit`` studies of the tenant (None: of all) after the cursor, and the next cursor."""
    key, kind = _key(listing.sort)
    query = _filtered(listing).add_columns(key).limit(limit + 1)
    if tenant is not None:
        query = query.where(Study.tenant == tenant)
    if cursor is not None:
        value, study_id = paging.decode(cursor, kind, listing=listing)
        after = (_last_of_all(listing.sort) if value is None else value, study_id)
        place = tuple_(key, Study.id)
        query = query.where(place < after if listing.sort.is_backwards else place > after)
    order = (key, Study.id)
    query = query.order_by(*(each.desc() for each in order) if listing.sort.is_backwards else order)
    found = [(study, value) for study, value in await session.execute(query)]
    studies = [study for study, _ in found[:limit]]
    if len(found) <= limit:
        return studies, None
    last, value = found[limit - 1]
    return studies, paging.encode((_written(value), last.id), listing=listing)


async def total(session: AsyncSession, listing: StudyListing, *, tenant: str | None) -> int | None:
    """How many studies of the tenant (None: of all) the filters leave; None where that is too much to count.

    Those of a model are not counted: each study's spec would be opened, 45 ms for 20,000.
    """
    if listing.model is not None:
        return None
    query = _filtered(listing).with_only_columns(Study.id).limit(MOST_COUNTED + 1)
    if tenant is not None:
        query = query.where(Study.tenant == tenant)
    count = await session.scalar(select(func.count()).select_from(query.subquery()))
    return count if count is not None and count <= MOST_COUNTED else None


def _key(order: StudyOrder) -> tuple[ColumnElement[Any], TypeAdapter[Any]]:
    """What is ordered by, and what a cursor holds of it. What a study lacks comes last, either way."""
    match order.field:
        case "name":
            return Study.name.expression, _BY_NAME
        case "created_at":
            return Study.created_at.expression, _BY_TIME
        case number:
            last = literal(_last_of_all(order), Double)
            return func.coalesce(_NUMBERS[number], last), _BY_NUMBER


def _last_of_all(order: StudyOrder) -> float:
    return -math.inf if order.is_backwards else math.inf


def _written(value: Any) -> Any:
    """As a cursor has it: JSON knows neither times nor infinities."""
    if isinstance(value, datetime):
        return value.isoformat()
    return None if value in (-math.inf, math.inf) else value


def _filtered(listing: StudyListing) -> Select[Study]:
    query = select(Study)
    if listing.state:
        query = query.where(Study.state.in_([state.value for state in listing.state]))
    if listing.dataset is not None:
        query = query.where(Study.dataset == listing.dataset)
    if listing.model is not None:
        query = query.where(Study.spec["model"]["name"].astext == listing.model)
    if listing.id_begins is not None:
        query = query.where(Study.id.startswith(listing.id_begins, autoescape=True))
    if listing.name is not None:
        query = query.where(Study.name == listing.name)
    if listing.name_contains is not None:
        # Names are ASCII; the letters of every other language would take as long again.
        name = Study.name.collate("C")
        query = query.where(name.icontains(listing.name_contains, autoescape=True))
    if listing.tag:
        query = query.where(type_coerce(Study.tags, JSONB).contains(list(listing.tag)))
    if listing.created_after is not None:
        query = query.where(Study.created_at > listing.created_after)
    if listing.created_before is not None:
        query = query.where(Study.created_at < listing.created_before)
    if listing.archived is not Archived.INCLUDE:
        query = query.where(Study.archived.is_(listing.archived is Archived.ONLY))
    return query


def trial_record(trial: Trial) -> TrialRecord:
    """The row as the wire and the API show it."""
    return TrialRecord(
        number=trial.number,
        state=TrialState(trial.state),
        params=trial.params,
        scores=[RungScore.model_validate(score) for score in trial.scores],
        repeats=[RungScore.model_validate(score) for score in trial.repeats],
        value=trial.value,
        source=trial.source,
        reason=trial.reason,
        weights_sha256=trial.weights_sha256,
        began_from=TrialStart.model_validate(trial.began_from) if trial.began_from else None,
    )


async def run_of(session: AsyncSession, study_id: str, kind: str) -> Run | None:
    """The study's search or private run, if it has begun."""
    return await session.scalar(select(Run).where(Run.study_id == study_id, Run.kind == kind))


async def results_of(
    session: AsyncSession, study_ids: Sequence[str]
) -> dict[str, tuple[float | None, float | None]]:
    """For a list: best simulated accuracy and test accuracy of each study, in two queries."""
    best = await session.execute(
        select(Trial.study_id, func.max(Trial.value))
        .where(Trial.study_id.in_(study_ids), Trial.state == "completed")
        .group_by(Trial.study_id)
    )
    tested = await session.execute(
        select(Run.study_id, Run.result["test_accuracy"].astext.cast(Double)).where(
            Run.study_id.in_(study_ids), Run.kind == "private", Run.result.is_not(None)
        )
    )
    by_best = dict(best.all())
    by_test = dict(tested.all())
    return {id_: (by_best.get(id_), by_test.get(id_)) for id_ in study_ids}


async def events_after(
    session: AsyncSession, study_id: str, after: int, *, limit: int = 500
) -> list[Event]:
    """The events numbered above ``after``, in order."""
    query = (
        select(Event)
        .where(Event.study_id == study_id, Event.seq > after)
        .order_by(Event.seq)
        .limit(limit)
    )
    return list((await session.scalars(query)).all())


async def last_step_event_at(session: AsyncSession, study_id: str) -> datetime | None:
    """When the newest ``step`` event was written."""
    return await session.scalar(
        select(Event.at)
        .where(Event.study_id == study_id, Event.kind == "step")
        .order_by(Event.seq.desc())
        .limit(1)
    )


def event_data(event: Event) -> dict[str, Any]:
    """The event as subscribers see it; nothing that it tells of takes the place of its own kind."""
    own = {"seq": event.seq, "kind": event.kind, "at": event.at.isoformat()}
    return own | event.data | own
