"""``GET /studies/{id}/events``: exact replay, then live, until the study has come to its end."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from service.auth.scopes import LOCAL, Principal
from service.context import Context
from service.db.session import AWAY, Database
from service.db.tables import Study
from service.studies import repository
from service.studies.lifecycle import StudyState

POLL_SECONDS = 5.0
"""Backstop for a notification that got lost with its connection."""
KEEPALIVE_SECONDS = 15.0
_BATCH = 500
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Batch:
    chunks: list[tuple[int, bytes]]
    """Events, by their numbers, as they are sent."""
    is_last: bool
    """The study is final and these are its last events, or nobody may read on."""


_NOTHING = _Batch(chunks=[], is_last=False)


async def stream(
    context: Context, study_id: str, after: int, *, reader: Principal = LOCAL
) -> AsyncIterator[bytes]:
    """Every event numbered above ``after``, each once and in order, as it is committed.

    It ends with the token of its reader. Where some of them have been forgotten (service/retention.py), a ``reset`` event stands for those:
    what was built from earlier events is to be read anew. So does one where ``after`` is beyond the last, as after a restore.
    """
    async with context.hub.subscribe(study_id) as wake:
        last_sent = time.monotonic()
        wake.seen = after
        while not context.hub.is_closed:
            wake.clear()
            try:
                batch = await _fetch(context, study_id, after, reader)
            except AWAY:  # all who were broken off would come again at once, and make it worse
                batch = _NOTHING
            for seq, chunk in batch.chunks:
                yield chunk
                after = wake.seen = seq
                last_sent = time.monotonic()
            if batch.is_last:
                return
            if len(batch.chunks) >= _BATCH:
                continue
            if time.monotonic() - last_sent >= KEEPALIVE_SECONDS:
                yield KEEPALIVE_COMMENT
                last_sent = time.monotonic()
            await _wait(wake)


async def is_over(
    context: Context, study_id: str, after: int, *, reader: Principal = LOCAL
) -> bool:
    """Whether the study is final and nothing is numbered above ``after``."""
    batch = await _fetch(context, study_id, after, reader)
    return batch.is_last and not batch.chunks


async def _fetch(context: Context, study_id: str, after: int, reader: Principal) -> _Batch:
    batch = await context.hub.reads.get(
        (study_id, after), lambda: _read(context.database, study_id, after)
    )
    # After the events: none that came after the token was revoked is told.
    if not await context.authenticator.still_knows(reader):
        return _Batch(chunks=[], is_last=True)
    return batch


async def _read(database: Database, study_id: str, after: int) -> _Batch:
    """For all who are at this place."""
    try:
        async with database.session() as session:
            # The state first: when it is final, the event that says so is visible to the next query.
            study = await repository.find(session, study_id)
            is_final = study is None or StudyState(study.state).is_terminal
            found = await repository.events_after(session, study_id, after, limit=_BATCH)
    except AWAY as error:
        _log.warning("events of study %s cannot be read now: %s", study_id, error)
        raise
    events = [repository.event_data(event) for event in found]
    if study is not None:
        first = found[0].seq if found else study.event_seq + 1
        # Numbers have no gaps: what is missing was there. And what is not there yet was, in a database of before a restore.
        if first > after + 1 or after > study.event_seq:
            events.insert(0, _reset(study, seq=first - 1))
    return _Batch(
        chunks=[(event["seq"], _encode(event)) for event in events],
        is_last=is_final and len(events) < _BATCH,
    )


def _reset(study: Study, *, seq: int) -> dict[str, Any]:
    """In the place of forgotten events, or of those that a restored database has not, with the number of the last one."""
    at = study.finished_at or study.created_at
    return {
        "seq": seq,
        "kind": "reset",
        "at": at.isoformat(),
        "state": study.state,
        "reason": study.reason,
    }


async def _wait(wake: asyncio.Event) -> None:
    """For what happened, or until all look at the same moment, and so share what they read."""
    try:
        await asyncio.wait_for(wake.wait(), POLL_SECONDS - time.monotonic() % POLL_SECONDS)
    except TimeoutError:
        return


def _encode(event: dict[str, Any]) -> bytes:
    data = json.dumps(event, separators=(",", ":"), allow_nan=False)
    return format_sse_event(data_str=data, event=event["kind"], id=str(event["seq"]))
