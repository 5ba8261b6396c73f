"""Queries over trials."""

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Trial
from tan_core.wire import TrialRecord


async def store(session: AsyncSession, study_id: str, record: TrialRecord, *, attempt: int) -> None:
    """Write the trial as it is now: a new row, or every field of the one there is.

    The study's row must be locked: of two reports of a new trial the second would fail.
    """
    trial = await find(session, study_id, record.number)
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
