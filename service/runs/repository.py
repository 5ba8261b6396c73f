"""Queries over runs and their attempts."""

from dataclasses import dataclass

from sqlalchemy import BigInteger, Double, Text, bindparam, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Attempt, Run, Study
from tan_core.wire import Heartbeat


async def attempt(session: AsyncSession, run_id: str, number: int) -> Attempt | None:
    """One attempt of a run."""
    return await session.get(Attempt, (run_id, number))


async def scene(
    session: AsyncSession, run_id: str, number: int, *, lock: bool
) -> tuple[Study, Run, Attempt] | None:
    """An attempt with its run and study; on request their rows are locked, in this order."""
    query = _LOCKED_SCENE if lock else _SCENE
    row = (await session.execute(query, {"of_run": run_id, "of_number": number})).one_or_none()
    return None if row is None else (row[0], row[1], row[2])


_SCENE = (
    select(Study, Run, Attempt)
    .join_from(Study, Run, Run.study_id == Study.id)
    .join(Attempt, Attempt.run_id == Run.id)
    .where(Run.id == bindparam("of_run"), Attempt.number == bindparam("of_number"))
)
_LOCKED_SCENE = _SCENE.with_for_update(of=[Study, Run, Attempt]).execution_options(
    populate_existing=True
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a driver that lives is to do."""

    kind: str
    cancel: bool
    pause: bool


async def beat(session: AsyncSession, run_id: str, number: int) -> None:
    """Note that the driver of this attempt lives."""
    await session.execute(_BEAT, {"of_run": run_id, "of_number": number})


_BEAT = (
    update(Attempt)
    .where(
        Attempt.run_id == bindparam("of_run"),
        Attempt.number == bindparam("of_number"),
        Attempt.state == "live",
    )
    .values(heartbeat_at=func.clock_timestamp())
    .execution_options(synchronize_session=False)
)


async def heard(session: AsyncSession, run_id: str, report: Heartbeat) -> Wanted | None:
    """Note that the driver lives, with how many ranks and what it waits for, and read what is wanted of it; None: its
    attempt is not the live one.

    In one statement and without the study's lock: of all that drivers say this is said most.
    """
    said = {
        "of_run": run_id,
        "of_number": report.fence,
        "of_ranks": report.ranks,
        "of_places": report.waits_for,
        "of_wait": report.waited_seconds,
    }
    row = (await session.execute(_HEARD, said)).one_or_none()
    return None if row is None else Wanted(*row)


_HEARD = (
    _BEAT.values(
        ranks=func.coalesce(bindparam("of_ranks", type_=BigInteger), Attempt.ranks),
        waits_for=bindparam("of_places", type_=Text),
        # Rank 0 sends heartbeats of its own, and knows nothing of what was before it.
        waited_seconds=func.greatest(bindparam("of_wait", type_=Double), Attempt.waited_seconds),
    )
    .where(Run.id == Attempt.run_id, Study.id == Run.study_id)
    .returning(
        Run.kind,
        or_(Study.cancel_requested, Attempt.stop_requested_at.is_not(None)),
        Attempt.pause_requested_at.is_not(None),
    )
)
