"""Queries over trials."""

import math
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from sqlalchemy import ColumnElement, Double, func, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from service import paging
from service.db.tables import Trial
from service.paging import Cursor
from service.trials.schemas import TrialListing, TrialOrder
from tan_core.wire import TrialRecord

_Number = Annotated[int, Field(ge=0, le=2**53)]
_BY_NUMBER = TypeAdapter(_Number)
_BY_VALUE = TypeAdapter(tuple[Annotated[float, Field(allow_inf_nan=False)] | None, _Number])
"""Where a page ended: the value, where the list is ordered by it, and the number."""


async def store(
    session: AsyncSession,
    study_id: str,
    record: TrialRecord,
    *,
    attempt: int,
    known: Trial | None,
) -> None:
    """Write the trial as it is now: a new row, or every field of the one that is known.

    The study's row must be locked: of two reports of a new trial the second would fail.
    """
    trial = known
    if trial is None:
        trial = Trial(study_id=study_id, number=record.number)
        session.add(trial)
    if record.state.is_finished and trial.finished_at is None:
        trial.finished_at = func.now()
    trial.state = record.state.value
    trial.params = dict(record.params)
    trial.scores = [score.model_dump(mode="json") for score in record.scores]
    trial.repeats = [score.model_dump(mode="json") for score in record.repeats]
    trial.value, trial.source, trial.reason = record.value, record.source, record.reason
    trial.attempt, trial.updated_at = attempt, func.now()
    await session.flush()


async def page(
    session: AsyncSession, study_id: str, listing: TrialListing, *, limit: int, cursor: Cursor
) -> tuple[list[Trial], Cursor]:
    """Up to ``limit`` trials of the study after the cursor, and the cursor of those that follow."""
    query = select(Trial).where(Trial.study_id == study_id).limit(limit + 1)
    if listing.state:
        query = query.where(Trial.state.in_([state.value for state in listing.state]))
    is_by_value = listing.sort in (TrialOrder.VALUE, TrialOrder.BEST)
    worst = -math.inf if listing.sort.is_backwards else math.inf
    value = func.coalesce(Trial.value, literal(worst, Double))
    order: tuple[ColumnElement[Any], ...] = (
        (value, Trial.number.expression) if is_by_value else (Trial.number.expression,)
    )
    if cursor is not None:
        if is_by_value:
            best, number = paging.decode(cursor, _BY_VALUE, listing=listing)
            after = (worst if best is None else best, number)
        else:
            after = (paging.decode(cursor, _BY_NUMBER, listing=listing),)
        place = tuple_(*order)
        query = query.where(place < after if listing.sort.is_backwards else place > after)
    query = query.order_by(*(each.desc() for each in order) if listing.sort.is_backwards else order)
    found = list((await session.scalars(query)).all())
    if len(found) <= limit:
        return found, None
    last = found[limit - 1]
    ended = (last.value, last.number) if is_by_value else last.number
    return found[:limit], paging.encode(ended, listing=listing)


async def every(session: AsyncSession, study_id: str) -> list[Trial]:
    """All trials of a study, in order of number."""
    query = select(Trial).where(Trial.study_id == study_id).order_by(Trial.number)
    return list((await session.scalars(query)).all())


async def find(session: AsyncSession, study_id: str, number: int) -> Trial | None:
    """One trial."""
    return await session.get(Trial, (study_id, number))


async def running_before(session: AsyncSession, study_id: str, attempt: int) -> list[Trial]:
    """Trials that an earlier attempt was running, locked."""
    query = (
        select(Trial)
        .where(Trial.study_id == study_id, Trial.state == "running", Trial.attempt < attempt)
        .order_by(Trial.number)
        .with_for_update()
    )
    return list((await session.scalars(query)).all())
