"""A study as the orchestrator finds it: in one statement, and without a lock.

Most looks find that there is nothing to do. Whoever finds more looks again under the study's lock.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from service.orchestrator.compute import IS_USED_UP
from service.orchestrator.decide import AttemptView
from service.studies.line import NUM_RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one study was a moment ago."""

    state: str
    reason: str | None
    is_to_end: bool
    """It was cancelled, or has used up its compute budget."""
    is_paused: bool
    is_enough: bool
    """A user wants no more of the search under way than it has found."""
    num_running: int
    """Studies that hold a slot."""
    run_id: str | None
    """The run under way; None between two runs."""
    submission_id: str | None
    """Of its live attempt, as ``attempt``."""
    attempt: AttemptView | None
    now: datetime
    """The database's clock."""


async def look(session: AsyncSession, study_id: str, *, owner: str) -> Look | None:
    """One study; None: this orchestrator has no lease of it."""
    row = (await session.execute(_LOOK, {"study": study_id, "owner": owner})).one_or_none()
    if row is None:
        return None
    attempt = None
    if row.number is not None:
        attempt = AttemptView(
            number=row.number,
            state="live",
            created_at=row.created_at,
            submitted_at=row.submitted_at,
            heartbeat_at=row.heartbeat_at,
            stop_requested_at=row.stop_requested_at,
            pause_requested_at=row.pause_requested_at,
            waits_for=row.waits_for,
        )
    return Look(
        state=row.state,
        reason=row.reason,
        is_to_end=row.is_to_end,
        is_paused=row.pause_requested,
        is_enough=row.finish_requested and row.kind == "search",
        num_running=row.num_running,
        run_id=row.run_id,
        submission_id=row.submission_id,
        attempt=attempt,
        now=row.now,
    )


_LOOK = text(f"""
SELECT study.state, study.reason, study.pause_requested, study.finish_requested,
    study.cancel_requested OR {IS_USED_UP} AS is_to_end, {NUM_RUNNING} AS num_running,
    run.id AS run_id, run.kind, live.number, live.submission_id, live.created_at, live.submitted_at,
    live.heartbeat_at, live.stop_requested_at, live.pause_requested_at, live.waits_for,
    clock_timestamp() AS now
FROM study
LEFT JOIN run ON run.study_id = study.id AND run.state = 'active'
LEFT JOIN attempt AS live ON live.run_id = run.id AND live.state = 'live'
WHERE study.id = :study AND study.lease_owner = :owner
""")  # noqa: S608 - our own words
