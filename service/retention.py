"""Old events are forgotten where ``TAN_EVENT_RETENTION_DAYS`` says so: never anything else.

Ledger, audit, statements, studies and trials stay. The events of a study go all together, once it has been
over for long enough, so that a replay is exact or says that it cannot be had: then the stream begins with a
``reset`` event.
"""

import logging
import time
from datetime import timedelta

from sqlalchemy import delete, exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.session import Database
from service.db.tables import Event, Study
from service.studies.lifecycle import TERMINAL

PERIOD_SECONDS = 600.0
"""Between two looks for something old."""
BATCH = 100
"""Studies in one transaction."""
log = logging.getLogger(__name__)


async def forget_old_events(session: AsyncSession, *, days: float, batch: int = BATCH) -> int:
    """How many studies lost their events: at most ``batch``, those that ended first.

    Args:
        session: of one transaction.
        days: how long a study must have been over.
        batch: the most studies to take.
    """
    has_events = exists().where(Event.study_id == Study.id)
    old = (
        await session.scalars(
            select(Study.id)
            .where(
                Study.state.in_([state.value for state in TERMINAL]),
                Study.finished_at < func.now() - timedelta(days=days),
                has_events,
            )
            .order_by(Study.finished_at)
            .limit(batch)
        )
    ).all()
    if old:
        await session.execute(delete(Event).where(Event.study_id.in_(old)))
    return len(old)


class Retention:
    """Forgets old events now and then, for the orchestrator."""

    def __init__(self, database: Database, days: float | None) -> None:
        self._database = database
        self._days = days
        self._not_before = 0.0

    async def sweep(self) -> None:
        """Take one batch, and the next one at the next call while there is more."""
        if self._days is None or time.monotonic() < self._not_before:
            return
        try:
            async with self._database.session() as session:
                taken = await forget_old_events(session, days=self._days)
        except Exception:
            log.exception("old events are kept for now")
            taken = 0
        if taken:
            log.info("events of %d studies that ended %g days ago are forgotten", taken, self._days)
        if taken < BATCH:
            self._not_before = time.monotonic() + PERIOD_SECONDS
