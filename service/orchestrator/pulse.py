"""What an orchestrator tells of itself: through the database, where every API replica finds it.

And by a file, whose age tells whoever keeps this process running that it goes round.
"""

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from sqlalchemy import delete, func
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import SQLAlchemyError

from service.db.session import Database
from service.db.tables import OrchestratorPulse
from service.trouble import Trouble

PERIOD_SECONDS = 2.0
"""Between two writes: the age of a pulse may be this much larger than that of the last tick."""
FORGOTTEN_AFTER = timedelta(hours=1)
"""An orchestrator that ended is shown this long."""
log = logging.getLogger(__name__)


class Pulse:
    """Counts and times the ticks of one orchestrator, and writes them down now and then.

    Args:
        database: the control plane's database.
        owner: name of this orchestrator.
        file: touched at every beat, with a database or without one.
    """

    def __init__(self, database: Database, owner: str, file: Path | None = None) -> None:
        self._database = database
        self._owner = owner
        self._file = file
        self._ticks = 0
        self._seconds = 0.0
        self._last_seconds = 0.0
        self._not_before = 0.0
        self._trouble = Trouble(log)

    @contextmanager
    def timed(self) -> Generator[None]:
        """Around one tick."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._last_seconds = time.monotonic() - start
            self._ticks += 1
            self._seconds += self._last_seconds

    async def beat(self) -> None:
        """Write the pulse, unless that was done a moment ago. Without a database it is left out."""
        now = time.monotonic()
        if now < self._not_before:
            return
        self._not_before = now + PERIOD_SECONDS
        self._touch()
        told = {
            "ticks": self._ticks,
            "tick_seconds": self._seconds,
            "last_tick_seconds": self._last_seconds,
            "ticked_at": func.clock_timestamp(),
        }
        row = insert(OrchestratorPulse).values(owner=self._owner, **told)
        old = OrchestratorPulse.ticked_at < func.now() - FORGOTTEN_AFTER
        try:
            async with self._database.session() as session:
                await session.execute(
                    row.on_conflict_do_update(index_elements=["owner"], set_=told)
                )
                await session.execute(delete(OrchestratorPulse).where(old))
        except (SQLAlchemyError, OSError) as error:
            self._trouble.met("the pulse is not written", error)
        else:
            self._trouble.is_over()

    def _touch(self) -> None:
        try:
            if self._file is not None:
                self._file.touch()
        except OSError as error:
            log.warning("TAN_PULSE_FILE is not touched: %s", error)
