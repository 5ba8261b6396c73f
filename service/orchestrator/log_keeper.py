"""Reads the logs of drivers from the cluster and keeps them: they outlive their jobs, and Ray."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from service.auth.secrets import run_token
from service.db.session import Database
from service.db.tables import Attempt
from service.logs import repository
from service.logs.redact import redact
from service.logs.text import clean, last_lines
from service.orchestrator.launcher import JobInfo, Launcher, LauncherUnavailableError
from service.orchestrator.log_tail import Said
from service.trouble import Trouble

PERIOD_SECONDS = 1.0
MAX_CHARACTERS = 2**20
"""Kept of one attempt: the end of what it said."""
PIECE_CHARACTERS = 2**16
"""The grain at which old parts are dropped."""
PATIENCE = timedelta(hours=1)
"""For a cluster that does not answer, after the attempt has ended."""
log = logging.getLogger(__name__)


class LogKeeper:
    """Copies what is new of every open log; more than one keeper at a time does no harm.

    Args:
        database: the control plane's database.
        launcher: the cluster.
        secret: the server secret: the run tokens derived from it never stay in a log.
    """

    def __init__(self, database: Database, launcher: Launcher, secret: bytes) -> None:
        self._database = database
        self._launcher = launcher
        self._secret = secret
        self._trouble = Trouble(log)

    async def run(self, stop: asyncio.Event) -> None:
        """Look every second, less often where a look takes long, until told to stop."""
        while not stop.is_set():
            started = time.monotonic()
            try:
                await self.look()
            except LauncherUnavailableError as error:
                log.debug("no logs now: %s", error)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next look tries again
                self._trouble.met("cannot keep logs; trying again", error)
            else:
                self._trouble.is_over()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_after(time.monotonic() - started))

    async def look(self) -> None:
        """Read every open log once.

        Raises:
            LauncherUnavailableError: the cluster does not answer; logs of attempts that ended long ago
                are closed as they are.
        """
        async with self._database.session() as session:
            open_logs = await repository.open_logs(session)
        unread: LauncherUnavailableError | None = None
        try:
            for submission_id in open_logs:
                # The status first: what is read after the end is the whole log.
                job = await self._launcher.status(submission_id)
                try:
                    said = Said("") if job is None else await self._launcher.log(submission_id)
                except LauncherUnavailableError as error:
                    unread = error  # the node of this driver is away: others may answer
                    continue
                async with self._database.session() as session:
                    await self._keep(session, submission_id, job, said)
            if unread is not None:
                raise unread
        except LauncherUnavailableError:
            async with self._database.session() as session:
                await repository.close_older(session, PATIENCE)
            raise

    async def _keep(
        self, session: AsyncSession, submission_id: str, job: JobInfo | None, said: Said
    ) -> None:
        attempt = await session.scalar(
            select(Attempt)
            .where(Attempt.submission_id == submission_id, Attempt.log_closed.is_(False))
            .with_for_update()
        )
        if attempt is None:
            return
        is_over = attempt.state != "live" and (job is None or job.status.is_terminal)
        # A line that is still being written may hide half a secret.
        first, text = said.dropped, said.text
        end = first + (len(text) if is_over else text.rfind("\n") + 1)
        known = [run_token(self._secret, submission_id)]
        for start, piece in pieces(text, max(0, attempt.log_end - first), end - first):
            shown = clean(redact(piece, known=known))
            await repository.append(session, submission_id, first + start, shown)
        if end > attempt.log_end:
            await repository.drop_before(session, submission_id, end - MAX_CHARACTERS)
            attempt.log_end = end
        if is_over:
            attempt.log_closed = True
            attempt.exit_code = None if job is None else job.exit_code
            kept = await repository.chunks(session, submission_id, after=-1)
            attempt.last_lines = last_lines("".join(chunk.text for chunk in kept)) or None


def pause_after(seconds: float) -> float:
    """How long to rest after a look: the cluster gives a log only whole, however long it has become.

    Example:
        >>> pause_after(0.01), pause_after(2.0)
        (1.0, 18.0)
    """
    return max(PERIOD_SECONDS, 9 * seconds)


def pieces(said: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    """What is kept of ``said[start:end]``, in whole lines, with where each piece begins.

    A secret is never cut in two, for what is left of one would not be recognised.
    """
    if end - start > MAX_CHARACTERS:
        start = said.find("\n", end - MAX_CHARACTERS - 1, end) + 1 or end - MAX_CHARACTERS
    while start < end:
        stop = min(start + PIECE_CHARACTERS, end)
        if stop < end:
            stop = said.rfind("\n", start, stop) + 1 or stop
        yield start, said[start:stop]
        start = stop
