"""Queries over attempts and what their drivers said."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Attempt, LogChunk, Run

MAX_OPEN = 200


async def open_logs(session: AsyncSession) -> Sequence[str]:
    """Submission ids of attempts whose log is not read to its end, the oldest first."""
    query = (
        select(Attempt.submission_id)
        .where(Attempt.log_closed.is_(False))
        .order_by(Attempt.created_at)
        .limit(MAX_OPEN)
    )
    return (await session.scalars(query)).all()


async def close_older(session: AsyncSession, age: timedelta) -> None:
    """Ask no longer for logs of attempts that ended so long ago."""
    await session.execute(
        update(Attempt)
        .where(Attempt.log_closed.is_(False), Attempt.finished_at < func.now() - age)
        .values(log_closed=True)
    )


async def append(session: AsyncSession, submission_id: str, start: int, text: str) -> None:
    """Store the part of a log that begins at ``start``, once."""
    await session.execute(
        insert(LogChunk)
        .values(submission_id=submission_id, start=start, text=text)
        .on_conflict_do_nothing()
    )


async def drop_before(session: AsyncSession, submission_id: str, start: int) -> None:
    """Forget the parts that begin before ``start``."""
    await session.execute(
        delete(LogChunk).where(LogChunk.submission_id == submission_id, LogChunk.start < start)
    )


async def chunks(session: AsyncSession, submission_id: str, *, after: int) -> Sequence[LogChunk]:
    """The parts that begin after ``after``, in order."""
    query = (
        select(LogChunk)
        .where(LogChunk.submission_id == submission_id, LogChunk.start > after)
        .order_by(LogChunk.start)
    )
    return (await session.scalars(query)).all()


async def attempts(session: AsyncSession, study_id: str) -> list[tuple[Run, Attempt]]:
    """Every attempt of a study with its run, the oldest first."""
    query = (
        select(Run, Attempt)
        .join(Attempt, Attempt.run_id == Run.id)
        .where(Run.study_id == study_id)
        .order_by(Run.created_at, Run.id, Attempt.number)
    )
    return [(run, attempt) for run, attempt in await session.execute(query)]


async def attempt(session: AsyncSession, submission_id: str) -> Attempt | None:
    """One attempt, as it is now."""
    query = select(Attempt).where(Attempt.submission_id == submission_id)
    return await session.scalar(query)
