"""Queries over trials."""

from sqlalchemy import func, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Trial
from tan_core.wire import TrialRecord

OPEN_STATES = ("running", "interrupted")
"""A trial in any other state has finished and is never written again."""


async def upsert(
    session: AsyncSession, study_id: str, record: TrialRecord, *, attempt: int
) -> bool:
    """Store the present state of an unfinished trial; False when nothing changed."""
    values = {
        "state": record.state.value,
        "params": record.params,
        "scores": [score.model_dump(mode="json") for score in record.scores],
        "value": record.value,
        "reason": record.reason,
        "attempt": attempt,
    }
    finished_at = func.now() if record.state.is_finished else None
    statement = insert(Trial).values(
        study_id=study_id, number=record.number, finished_at=finished_at, **values
    )
    changed = [getattr(Trial, name).is_distinct_from(value) for name, value in values.items()]
    result = await session.execute(
        statement.on_conflict_do_update(
            index_elements=[Trial.study_id, Trial.number],
            set_={**values, "finished_at": finished_at, "updated_at": func.now()},
            where=Trial.state.in_(OPEN_STATES) & or_(*changed),
        ).returning(Trial.number)
    )
    return result.first() is not None


async def page(
    session: AsyncSession, study_id: str, *, after: int | None, limit: int
) -> list[Trial]:
    """Trials in order of number, after the cursor."""
    query = select(Trial).where(Trial.study_id == study_id).order_by(Trial.number).limit(limit)
    if after is not None:
        query = query.where(Trial.number > after)
    return list((await session.scalars(query)).all())


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
