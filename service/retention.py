"""What is old and of no more use is forgotten, in small batches: idempotency keys, deliveries of webhooks and, where
``TAN_EVENT_RETENTION_DAYS`` says so, events. Never anything else: ledger, audit, statements, studies and trials stay.

What goes must not change what is done next:

- The events of a study go all together, once it has been over for long enough, so that a replay is exact or
  says that it cannot be had: then the stream begins with a ``reset`` event.
- A delivery says that its message was sent. It goes with all the others of its study, likewise: by then no event of
  it is young enough to ask for one (service/webhooks/outbox.py).
- A key goes by its own age. Sent again later, its request is a new one: a study could be submitted twice.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from sqlalchemy import ColumnElement, delete, exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.session import Database
from service.db.tables import Event, IdempotencyKey, Study, WebhookDelivery
from service.settings import Settings
from service.studies.lifecycle import TERMINAL

PERIOD_SECONDS = 600.0
"""Between two looks for something old."""
BATCH = 100
"""Studies in one transaction."""
BATCH_KEYS = 1000
log = logging.getLogger(__name__)


async def forget_old_events(session: AsyncSession, *, days: float, batch: int = BATCH) -> int:
    """How many studies lost their events: at most ``batch``, those that ended first.

    Args:
        session: of one transaction.
        days: how long a study must have been over.
        batch: the most studies to take.
    """
    has_events = exists().where(Event.study_id == Study.id)
    old = await _over(session, has_events, days=days, batch=batch)
    await session.execute(delete(Event).where(Event.study_id.in_(old)))
    return len(old)


async def forget_old_deliveries(session: AsyncSession, *, days: float, batch: int = BATCH) -> int:
    """How many studies lost their deliveries, likewise; not while one is still to be sent."""
    of_study = WebhookDelivery.study_id == Study.id
    has_any, is_unsent = exists().where(of_study), WebhookDelivery.state == "pending"
    is_told = has_any & ~exists().where(of_study, is_unsent)
    old = await _over(session, is_told, days=days, batch=batch)
    await session.execute(delete(WebhookDelivery).where(WebhookDelivery.study_id.in_(old)))
    return len(old)


async def forget_old_keys(session: AsyncSession, *, days: float, batch: int = BATCH_KEYS) -> int:
    """How many idempotency keys were forgotten: at most ``batch``, the oldest."""
    old = (
        select(IdempotencyKey.key)
        .where(IdempotencyKey.created_at < func.now() - timedelta(days=days))
        .order_by(IdempotencyKey.created_at)
        .limit(batch)
    )
    keys = (await session.scalars(old)).all()
    await session.execute(delete(IdempotencyKey).where(IdempotencyKey.key.in_(keys)))
    return len(keys)


async def _over(
    session: AsyncSession, which: ColumnElement[bool], *, days: float, batch: int
) -> list[str]:
    """Studies that have been over for so long."""
    ended = Study.state.in_([state.value for state in TERMINAL])
    long_ago = Study.finished_at < func.now() - timedelta(days=days)
    found = select(Study.id).where(ended, long_ago, which).order_by(Study.finished_at).limit(batch)
    return list(await session.scalars(found))


class _Forgetting:
    """Of one kind of rows, a batch now and then."""

    def __init__(
        self, what: str, forget: Callable[[AsyncSession], Awaitable[int]], *, batch: int
    ) -> None:
        self._what = what
        self._forget = forget
        self._batch = batch
        self._not_before = 0.0

    async def sweep(self, database: Database) -> None:
        if time.monotonic() < self._not_before:
            return
        try:
            async with database.session() as session:
                taken = await self._forget(session)
        except Exception:
            log.exception("%s are kept for now", self._what)
            taken = 0
        if taken:
            log.info("forgotten: %s, %d", self._what, taken)
        if taken < self._batch:
            self._not_before = time.monotonic() + PERIOD_SECONDS


class Retention:
    """Forgets what is old now and then, for the orchestrator."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._kinds = [
            _Forgetting(
                "idempotency keys",
                partial(forget_old_keys, days=settings.idempotency_retention_days),
                batch=BATCH_KEYS,
            ),
            _Forgetting(
                "deliveries of ended studies",
                partial(forget_old_deliveries, days=settings.webhook_retention_days),
                batch=BATCH,
            ),
        ]
        if settings.event_retention_days is not None:
            forget = partial(forget_old_events, days=settings.event_retention_days)
            self._kinds.append(_Forgetting("events of ended studies", forget, batch=BATCH))

    async def sweep(self) -> None:
        """Take one batch of each, and the next one at the next call while there is more."""
        for kind in self._kinds:
            await kind.sweep(self._database)
