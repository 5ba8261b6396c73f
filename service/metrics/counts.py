"""What the database says of studies, runs, drivers and orchestrators, in a few short queries."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Double, SQLColumnExpression, extract, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Attempt, OrchestratorPulse, Run, Study
from service.studies.lifecycle import StudyState


@dataclass(frozen=True, slots=True)
class Pulse:
    """The looks of one orchestrator at its studies."""

    owner: str
    age: float
    """Since the last one."""
    ticks: int
    seconds: float
    """Of all of them together."""
    last_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """One look at the database. Ages and durations are in seconds."""

    studies: Mapping[str, int]
    """By state; every state is there."""
    oldest_queued_age: float
    """Of the study that has been queued longest; 0 when none is."""
    runs: Mapping[tuple[str, str], int]
    """By kind and state."""
    attempts: Mapping[tuple[str, str], int]
    """By kind of their run, and state."""
    oldest_heartbeat_age: float
    """Of the live attempt that was heard of last the longest ago; 0 when none is live."""
    without_place: Mapping[str, int]
    """Live attempts for which Ray has no place, by kind of their run; every kind is there."""
    pulses: tuple[Pulse, ...]


async def count(session: AsyncSession) -> Counts:
    """How things stand."""
    by_state = dict.fromkeys((state.value for state in StudyState), 0)
    studies = await session.execute(select(Study.state, func.count()).group_by(Study.state))
    by_state.update({row[0]: row[1] for row in studies})
    runs = await session.execute(
        select(Run.kind, Run.state, func.count()).group_by(Run.kind, Run.state)
    )
    attempts = await session.execute(
        select(Run.kind, Attempt.state, func.count())
        .join(Run, Run.id == Attempt.run_id)
        .group_by(Run.kind, Attempt.state)
    )
    queued = await session.scalar(
        select(func.max(_age(Study.created_at))).where(Study.state == StudyState.QUEUED.value)
    )
    heard_at = func.coalesce(Attempt.heartbeat_at, Attempt.submitted_at, Attempt.created_at)
    silent = await session.scalar(select(func.max(_age(heard_at))).where(Attempt.state == "live"))
    waiting = await session.execute(
        select(Run.kind, func.count())
        .join(Attempt, Attempt.run_id == Run.id)
        .where(Attempt.state == "live", Attempt.waits_for.is_not(None))
        .group_by(Run.kind)
    )
    pulses = await session.execute(
        select(
            OrchestratorPulse.owner,
            _age(OrchestratorPulse.ticked_at),
            OrchestratorPulse.ticks,
            OrchestratorPulse.tick_seconds,
            OrchestratorPulse.last_tick_seconds,
        ).order_by(OrchestratorPulse.owner)
    )
    return Counts(
        studies=by_state,
        oldest_queued_age=queued or 0.0,
        runs={(row[0], row[1]): row[2] for row in runs},
        attempts={(row[0], row[1]): row[2] for row in attempts},
        oldest_heartbeat_age=silent or 0.0,
        without_place={"search": 0, "private": 0} | {row[0]: row[1] for row in waiting},
        pulses=tuple(Pulse(*row) for row in pulses),
    )


async def events_behind(session: AsyncSession, seen: Mapping[str, int]) -> int:
    """The most events that any stream has still to send. ``seen`` is what each study's have sent."""
    if not seen:
        return 0
    stored = await session.execute(
        select(Study.id, Study.event_seq).where(Study.id.in_(list(seen)))
    )
    return max((row.event_seq - seen[row.id] for row in stored), default=0)


def _age(moment: SQLColumnExpression[datetime | None]) -> SQLColumnExpression[float]:
    """Seconds since then by the database's clock, which all processes share; never below 0."""
    seconds = extract("epoch", func.clock_timestamp() - moment)
    return func.greatest(0.0, seconds.cast(Double))
