"""Attempts of a study, and their logs as streams of text."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator

from service.auth.scopes import Principal
from service.context import Context
from service.db.session import AWAY, Database
from service.db.tables import Attempt, LogChunk, Run
from service.errors import NotFoundError
from service.logs import repository
from service.logs.schemas import AttemptView, RunKind
from service.studies.service import expect

POLL_SECONDS = 1.0
_log = logging.getLogger(__name__)


async def attempts(context: Context, study_id: str) -> list[AttemptView]:
    """Every attempt of the study, the oldest first."""
    await expect(context, study_id)
    async with context.database.session() as session:
        found = await repository.attempts(session, study_id)
    return [_view(run, attempt) for run, attempt in found]


async def find(context: Context, study_id: str, *, run: RunKind | None, attempt: int | None) -> str:
    """The submission id of the attempt that is asked for; of those left open, the newest.

    Raises:
        NotFoundError: the study has no such attempt; the message names those that it has.
    """
    await expect(context, study_id)
    async with context.database.session() as session:
        known = await repository.attempts(session, study_id)
    fitting = [
        each.submission_id
        for its_run, each in known
        if run in (None, its_run.kind) and attempt in (None, each.number)
    ]
    if not fitting:
        those = ", ".join(f"{its_run.kind} {each.number}" for its_run, each in known[-20:])
        raise NotFoundError(
            f"study {study_id!r} has no such attempt; it has: {those or 'none yet'}"
        )
    return fitting[-1]


async def read(
    context: Context, submission_id: str, *, follow: bool, reader: Principal
) -> AsyncGenerator[bytes]:
    """The log as it is; with ``follow`` also what is added, until the attempt has ended.

    It ends with the token of its reader. A database that is away meanwhile is waited for: those who were broken off
    would all come again at once.
    """
    seen = -1
    while True:
        try:
            chunks, is_closed = await _after(context, submission_id, seen, reader)
        except AWAY as error:
            if not follow:
                raise
            _log.warning("the log of %s cannot be read now: %s", submission_id, error)
            chunks, is_closed = [], False
        if chunks and seen == -1 and chunks[0].start > 0:
            yield f"[{chunks[0].start:,} characters before this were dropped]\n".encode()
        for chunk in chunks:
            yield chunk.text.encode()
            seen = chunk.start
        if is_closed or not follow or context.hub.is_closed:
            return
        # All look at the same moment, and so share what they read.
        await asyncio.sleep(POLL_SECONDS - time.monotonic() % POLL_SECONDS)


async def _after(
    context: Context, submission_id: str, seen: int, reader: Principal
) -> tuple[list[LogChunk], bool]:
    found = await context.hub.reads.get(
        (submission_id, seen), lambda: _read(context.database, submission_id, seen)
    )
    # After the log: nothing that was written after the token was revoked is told.
    if not await context.authenticator.still_knows(reader):
        return [], True
    return found


async def _read(database: Database, submission_id: str, seen: int) -> tuple[list[LogChunk], bool]:
    """For all who are at this place."""
    async with database.session() as session:
        # The attempt first: once its log is closed, its last part is visible to the next query.
        attempt = await repository.attempt(session, submission_id)
        chunks = await repository.chunks(session, submission_id, after=seen)
    return list(chunks), attempt is None or attempt.log_closed


def _view(run: Run, attempt: Attempt) -> AttemptView:
    return AttemptView.model_validate(
        {
            "run": run.kind,
            "attempt": attempt.number,
            "state": attempt.state,
            "reason": attempt.reason,
            "paused": attempt.pause_requested_at is not None,
            "ranks": attempt.ranks,
            "exit_code": attempt.exit_code,
            "last_lines": attempt.last_lines,
            "created_at": attempt.created_at,
            "submitted_at": attempt.submitted_at,
            "heartbeat_at": attempt.heartbeat_at,
            "finished_at": attempt.finished_at,
        }
    )
