"""The outbox of a study: numbered events, and the only function that changes a study's state.

Events are numbered under the study's row lock, so a reader that has seen ``seq`` n has seen them all
up to n: ids handed out by a sequence would become visible out of commit order.
"""

from datetime import datetime
from typing import Any, Literal, cast

from sqlalchemy import Table, bindparam, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm.attributes import set_committed_value

from service.db.clock import clock
from service.db.tables import Event, Study
from service.studies.glance import progress_of
from service.studies.lifecycle import StudyState, move

EventKind = Literal["state", "trial", "step", "attempt", "features"]


async def append_event(
    session: AsyncSession, study: Study, kind: EventKind, data: dict[str, Any]
) -> int:
    """The number of the new event. Holds the study's row lock until the transaction ends."""
    await session.flush()
    seq = await session.scalar(_APPEND, {"of_study": study.id, "of_kind": kind, "what": data})
    if seq is None:
        raise LookupError(f"study {study.id!r} is not stored")
    set_committed_value(study, "event_seq", seq)
    return seq


# Of the tables and not of the classes: the session has nothing to remember of it.
_STUDY, _EVENT = cast("Table", Study.__table__), cast("Table", Event.__table__)
_NUMBERED = (
    update(_STUDY)
    .where(_STUDY.c.id == bindparam("of_study"))
    .values(event_seq=_STUDY.c.event_seq + 1)
    .returning(_STUDY.c.id, _STUDY.c.event_seq)
    .cte("numbered")
)
# One statement and not two: reports of trials are most of what the API does.
_APPEND = (
    insert(_EVENT)
    .from_select(
        ["study_id", "seq", "kind", "data", "at"],
        select(
            _NUMBERED.c.id,
            _NUMBERED.c.event_seq,
            bindparam("of_kind", type_=_EVENT.c.kind.type),
            bindparam("what", type_=_EVENT.c.data.type),
            func.clock_timestamp(),
        ),
    )
    .returning(_EVENT.c.seq)
)


async def set_state(
    session: AsyncSession, study: Study, state: StudyState | str, reason: str | None = None
) -> None:
    """Move a study along its lifecycle and say so in a ``state`` event.

    Proposing the state that the study is in already only renews the reason; nothing is written when
    that is the same too, or when the state is final.

    Raises:
        IllegalTransitionError: the lifecycle has no such move.
    """
    # A refresh forgets what has not been written yet.
    await session.flush()
    await session.refresh(study, with_for_update=True)
    current, proposed = StudyState(study.state), StudyState(state)
    if current is proposed:
        if proposed.is_terminal or study.reason == reason:
            return
    else:
        study.state = move(current, proposed)
        _stamp(study, proposed, await clock(session))
    study.reason = reason
    await append_state(session, study)


async def append_state(session: AsyncSession, study: Study, *, is_anew: bool = False) -> int:
    """The ``state`` event of the study as it is now; ``is_anew``: it came to the state that it had once more."""
    progress = await progress_of(session, study)
    return await append_event(
        session,
        study,
        "state",
        {
            "state": study.state,
            "reason": study.reason,
            "paused": study.pause_requested,
            "progress": progress.model_dump(mode="json"),
            **({"anew": True} if is_anew else {}),
        },
    )


_AT_WORK = (StudyState.SIMULATING, StudyState.TRAINING)


def _stamp(study: Study, state: StudyState, now: datetime) -> None:
    if state in _AT_WORK and study.started_at is None:
        study.started_at = now
    if state.is_terminal:
        study.finished_at = now
