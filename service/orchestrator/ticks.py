"""One look at every study that this orchestrator leases, again and again."""

import asyncio
import logging
from collections import defaultdict
from datetime import timedelta

from service.db.migrate import SchemaError, expect_schema
from service.db.session import Database
from service.errors import ServiceError
from service.orchestrator import claims
from service.orchestrator.decide import Heard
from service.orchestrator.hearing import Ear
from service.orchestrator.reconcile import Reconciler
from service.publication.published import Published, RestoredBackupError
from service.studies import line
from service.trouble import Trouble
from tan_core import log_records
from tan_core.errors import TanError

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=15)
"""How long studies wait for a successor after an orchestrator was killed; renewed at every tick."""


class Ticks:
    """Takes one step for each study. Trouble with one holds up no other, and trouble with all ends nothing.

    Args:
        database: the control plane's database.
        reconciler: takes the steps.
        ear: knows since when drivers could be heard.
        published: what left the service.
        owner: name of this orchestrator in leases.
    """

    def __init__(
        self,
        *,
        database: Database,
        reconciler: Reconciler,
        ear: Ear,
        published: Published,
        owner: str,
    ) -> None:
        self._database = database
        self._reconciler = reconciler
        self._ear = ear
        self._published = published
        self._owner = owner
        self._of_database, self._of_claims = Trouble(log), Trouble(log)
        self._of_study: defaultdict[str, Trouble] = defaultdict(lambda: Trouble(log))

    async def take(self, stop: asyncio.Event) -> None:
        """One step for each, until told to stop."""
        if not await self._may_decide():
            return
        try:
            async with self._database.session() as session:
                studies = await claims.claim_open(session, owner=self._owner, lease=LEASE)
            heard = await self._ear.look()
        except Exception as error:  # noqa: BLE001 - whatever it was, the next tick tries again
            self._of_claims.met("cannot claim studies; trying again", error)
            return
        self._of_claims.is_over()
        for study_id in studies:
            if stop.is_set():
                return
            with log_records.bind(study_id=study_id):
                await self.advance(study_id, heard)

    async def advance(self, study_id: str, heard: Heard) -> None:
        """One study's step. Trouble is written on it."""
        try:
            try:
                await self._reconciler.advance(study_id, heard)
            except TanError as error:
                self._of_study[study_id].met(f"study {study_id} cannot go on", error)
                await self._reconciler.fail(study_id, str(error))
            except Exception as error:  # noqa: BLE001 - one study's, whatever it was
                self._of_study[study_id].met(f"study {study_id} does not move; trying again", error)
                told = filter(None, [line.TROUBLED, type(error).__name__, _tellable(error)])
                await self._reconciler.note(study_id, ": ".join(told))
                return
        except Exception as error:  # noqa: BLE001 - whatever it was, the next tick tries again
            self._of_study[study_id].met(f"study {study_id}: trying again at the next tick", error)
            return
        if (trouble := self._of_study.pop(study_id, None)) is not None:
            trouble.is_over()

    async def _may_decide(self) -> bool:
        """Whether the tables are those that this program knows, and the ledger holds all that left.

        On a newer schema it could charge by rules that are no longer true, and on a restored backup what was
        spent already.
        """
        try:
            async with self._database.reading() as session:
                await expect_schema(session)
            await self._published.check(self._database)
        except (SchemaError, RestoredBackupError) as error:
            self._of_database.met(f"nothing is decided: {error}")
            return False
        except Exception as error:  # noqa: BLE001 - whatever it was, the next tick tries again
            self._of_database.met("cannot look at the database; trying again", error)
            return False
        self._of_database.is_over()
        return True


def _tellable(error: Exception) -> str | None:
    """What users are told of it. Statements, addresses and paths are the operator's, in the log."""
    if isinstance(error, ServiceError):
        return str(error)
    return error.strerror if isinstance(error, OSError) else None
