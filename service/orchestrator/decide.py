"""What to do with a run, as a pure function of what is seen. No clock, no database, no network."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from service.orchestrator.launcher import JobInfo, JobStatus

START_GRACE = timedelta(seconds=180)
"""A driver has to import torch and ray, and a busy cluster may queue it, before its first heartbeat."""
STOP_GRACE = timedelta(seconds=90)
"""Ray needs 30 s to kill a job; after this a stopped attempt is given up whatever Ray says."""


class Action(Enum):
    """One step of the reconciler."""

    WAIT = auto()
    START_ATTEMPT = auto()
    SUBMIT = auto()
    STOP = auto()
    LOSE = auto()
    """The attempt is gone without a final report."""
    SUCCEED = auto()
    FAIL = auto()
    CANCEL = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """An attempt as the database knows it."""

    number: int
    state: str
    created_at: datetime
    submitted_at: datetime | None
    heartbeat_at: datetime | None
    stop_requested_at: datetime | None
    retryable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The action, and the reason that users are shown."""

    action: Action
    reason: str | None = None


WAIT = Decision(action=Action.WAIT)


def decide(
    *,
    last: AttemptView | None,
    job: JobInfo | None,
    is_to_end: bool,
    max_attempts: int,
    progress_attempt: int,
    now: datetime,
    listening_since: datetime,
    heartbeat_timeout: timedelta,
) -> Decision:
    """The next step for an active run.

    Args:
        last: the newest attempt, or None before the first.
        job: what the cluster says of it; None if the cluster does not know it.
        is_to_end: whether the study was cancelled, or has used up its compute budget.
        max_attempts: how many attempts in a row may end without progress.
        progress_attempt: the newest attempt that made progress, 0 if none did.
        now: the database's clock.
        listening_since: since when heartbeats could arrive: before, silence says nothing.
        heartbeat_timeout: silence after which a driver counts as dead.
    """
    if last is not None and last.state == "live":
        return _live(last, job, is_to_end, now, listening_since, heartbeat_timeout)
    if last is not None and last.state == "succeeded":
        return Decision(action=Action.SUCCEED)
    if is_to_end:
        return Decision(action=Action.CANCEL)
    if last is None:
        return Decision(action=Action.START_ATTEMPT)
    if not last.retryable:
        return Decision(action=Action.FAIL)
    in_vain = last.number - progress_attempt
    if in_vain >= max_attempts:
        return Decision(action=Action.FAIL, reason=f"gave up after {in_vain} attempts in vain")
    return Decision(action=Action.START_ATTEMPT)


def _live(
    attempt: AttemptView,
    job: JobInfo | None,
    is_to_end: bool,
    now: datetime,
    listening_since: datetime,
    heartbeat_timeout: timedelta,
) -> Decision:
    if job is None:
        if attempt.submitted_at is not None or attempt.heartbeat_at is not None:
            return Decision(action=Action.LOSE, reason="the cluster lost the job")
        if is_to_end:
            return Decision(action=Action.LOSE, reason="ended before it was submitted")
        return Decision(action=Action.SUBMIT)
    if job.status.is_terminal:
        return Decision(action=Action.LOSE, reason=_ending(job))
    if attempt.stop_requested_at is not None:
        if now - attempt.stop_requested_at > STOP_GRACE:
            return Decision(action=Action.LOSE, reason="stopped, but its job would not end")
        # Said again at every tick: the first time may have been lost.
        return Decision(action=Action.STOP)
    if is_to_end:
        return Decision(action=Action.STOP, reason="asked to end")
    heard = attempt.heartbeat_at or attempt.submitted_at or attempt.created_at
    silence = now - max(heard, listening_since)
    limit = heartbeat_timeout if attempt.heartbeat_at else max(START_GRACE, heartbeat_timeout)
    if job.status is JobStatus.RUNNING and silence > limit:
        return Decision(
            action=Action.STOP, reason=f"no heartbeat for {silence.total_seconds():.0f} s"
        )
    return WAIT


def _ending(job: JobInfo) -> str:
    code = "" if job.exit_code is None else f" with exit code {job.exit_code}"
    return f"the driver ended{code} without a final report ({job.status})"
