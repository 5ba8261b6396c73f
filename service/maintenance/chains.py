"""Every ledger chain of a database, verified."""

import asyncio

from sqlalchemy import text

from service.db.session import Database
from service.ledger.schemas import ChainReport
from service.ledger.service import Ledger
from service.maintenance.errors import MaintenanceError
from service.maintenance.target import Target


def verify_chains(target: Target) -> list[ChainReport]:
    """The verdict on every scope's journal."""
    return asyncio.run(_verify(target.owner_url))


def expect_valid(reports: list[ChainReport], otherwise: str) -> None:
    """Nothing, where every chain is whole.

    Raises:
        MaintenanceError: one is not; the message names its first bad entry and says ``otherwise``.
    """
    for report in reports:
        if not report.is_valid:
            where = "" if report.first_bad_seq is None else f" at entry {report.first_bad_seq}"
            raise MaintenanceError(
                f"the ledger of {report.scope_id} does not verify{where}: {report.fault}; {otherwise}"
            )


async def _verify(url: str) -> list[ChainReport]:
    database = Database(url, pool_size=1)
    try:
        async with database.session() as session:
            scopes = await session.scalars(text("SELECT scope_id FROM ledger_scope ORDER BY 1"))
            return [await Ledger().verify_chain(session, scope) for scope in scopes.all()]
    finally:
        await database.close()
