"""One scrape: read, and write it down."""

import asyncio
import logging

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, generate_latest
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool

from service.context import Context
from service.ledger.prices import Prices, budgets
from service.metrics.counts import count, events_behind
from service.metrics.families import Reading
from service.metrics.latency import make_histogram
from service.publication.published import Published, RestoredBackupError

TIMEOUT_SECONDS = 5.0
_log = logging.getLogger(__name__)


class Metrics:
    """What one application measures of itself, beside what its database says."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.prices = Prices(context.database)
        """Of the pages that show many budgets, too."""
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.latency = make_histogram(self._registry)
        self._database_up = Gauge(
            "tan_database_up", "Whether the database answered this scrape.", registry=self._registry
        )

    async def exposition(self) -> bytes:
        """Every metric in the Prometheus text format, version 0.0.4.

        Without a database it is what this process knows of itself.
        """
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                reading = await self._read()
        except (SQLAlchemyError, TimeoutError, OSError) as error:
            _log.warning("the database does not answer: %r", error)
            self._database_up.set(0)
            return generate_latest(self._registry)
        self._database_up.set(1)
        registry = CollectorRegistry()
        registry.register(reading)
        return generate_latest(self._registry) + generate_latest(registry)

    async def close(self) -> None:
        """Stop what still works in the background."""
        await self.prices.close()

    async def _read(self) -> Reading:
        seen = self._context.hub.seen()
        async with self._context.database.session() as session:
            counts = await count(session)
            behind = await events_behind(session, seen)
            scopes = await budgets(session)
        pool = self._context.database.engine.pool
        assert isinstance(pool, QueuePool)  # noqa: S101 - as Database makes it
        return Reading(
            counts=counts,
            streams=self._context.hub.num_subscribers,
            events_behind=behind,
            budgets=scopes,
            totals=await self.prices.of(scopes),
            is_restored=await self._is_restored(),
            pool=pool,
        )

    async def _is_restored(self) -> bool:
        published = Published(self._context.settings.home_path)
        try:
            await published.check(self._context.database, believe=False)
        except RestoredBackupError:
            return True
        return False
