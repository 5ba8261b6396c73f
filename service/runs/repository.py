"""Queries over runs and their attempts."""

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Attempt, Run


async def find(session: AsyncSession, run_id: str, *, lock: bool = False) -> Run | None:
    """The run, with its row locked on request."""
    query = select(Run).where(Run.id == run_id)
    if lock:
        query = query.with_for_update().execution_options(populate_existing=True)
    return await session.scalar(query)


async def attempt(
    session: AsyncSession, run_id: str, number: int, *, lock: bool = False
) -> Attempt | None:
    """One attempt of a run."""
    query = select(Attempt).where(Attempt.run_id == run_id, Attempt.number == number)
    if lock:
        query = query.with_for_update().execution_options(populate_existing=True)
    return await session.scalar(query)


async def beat(session: AsyncSession, run_id: str, number: int) -> None:
    """Note that the driver of this attempt lives."""
    await session.execute(
        update(Attempt)
        .where(Attempt.run_id == run_id, Attempt.number == number, Attempt.state == "live")
        .values(heartbeat_at=func.clock_timestamp())
    )
