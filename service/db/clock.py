"""The one clock that leases, heartbeats and lifetimes are read from."""

from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession


async def clock(session: AsyncSession) -> datetime:
    """The database's clock, now, in UTC: the only one that all processes share."""
    return (await session.execute(select(func.clock_timestamp()))).scalar_one().astimezone(UTC)
