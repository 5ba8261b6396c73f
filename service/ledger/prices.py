"""ε of every ledger scope, priced once for each state of its journal.

Pricing takes a processor for up to seconds, and neither a scrape nor a page of many budgets may: they wait a moment for new
prices. A scrape shows the one before otherwise, with the entry that it belongs to.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.session import Database
from service.ledger.schemas import Totals
from service.ledger.service import Ledger

PATIENCE_SECONDS = 1.0
"""How long a scrape waits for prices."""
PAGE_PATIENCE_SECONDS = 3.0
"""How long a page of many budgets waits for them."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Budget:
    """A scope with its budget, and the number of its journal's last entry."""

    scope_id: str
    epsilon: float
    delta: float
    seq: int


async def budgets(session: AsyncSession, scope_ids: Sequence[str] | None = None) -> list[Budget]:
    """These scopes, or every one."""
    rows = await session.execute(
        text(
            "SELECT scope_id, epsilon, delta, seq FROM ledger_scope JOIN ledger_head USING (scope_id)"
            " WHERE CAST(:only AS text[]) IS NULL OR scope_id = ANY(:only) ORDER BY scope_id"
        ),
        {"only": None if scope_ids is None else list(scope_ids)},
    )
    return [
        Budget(row.scope_id, float.fromhex(row.epsilon), float.fromhex(row.delta), row.seq)
        for row in rows
    ]


class Prices:
    """The newest totals of each scope that were priced, by at most one worker at a time."""

    def __init__(self, database: Database, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._database = database
        self._patience_seconds = patience_seconds
        self._totals: dict[str, Totals] = {}
        self._worker: asyncio.Task[None] | None = None

    async def newest(self, budgets: list[Budget], patience_seconds: float) -> dict[str, Totals]:
        """The totals of the journals' last entries, of those scopes that are priced by then."""
        began = time.monotonic()
        await self.of(budgets, patience_seconds=patience_seconds)
        # The worker may have been busy with what somebody else had asked.
        left = patience_seconds - (time.monotonic() - began)
        known = await self.of(budgets, patience_seconds=max(left, 0.0))
        return {
            each.scope_id: found
            for each in budgets
            if (found := known.get(each.scope_id)) and found.head.seq >= each.seq
        }

    async def of(
        self, budgets: list[Budget], *, patience_seconds: float | None = None
    ) -> Mapping[str, Totals]:
        """The totals by scope: of the journals' last entries, or of earlier ones if that takes long."""
        stale = [budget.scope_id for budget in budgets if not self._is_fresh(budget)]
        if stale and (self._worker is None or self._worker.done()):
            self._worker = asyncio.create_task(self._price(stale), name="metrics-prices")
        if self._worker is not None:
            patience = self._patience_seconds if patience_seconds is None else patience_seconds
            await asyncio.wait({self._worker}, timeout=patience)
        return self._totals

    async def close(self) -> None:
        """Stop pricing."""
        if self._worker is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker

    def _is_fresh(self, budget: Budget) -> bool:
        known = self._totals.get(budget.scope_id)
        return known is not None and known.head.seq == budget.seq

    async def _price(self, scope_ids: list[str]) -> None:
        for scope_id in scope_ids:
            try:
                async with self._database.session() as session:
                    totals = await Ledger().totals(session, scope_id)
            except Exception:
                log.exception("scope %s cannot be priced", scope_id)
            else:
                self._totals[scope_id] = totals
