"""What to do with a run, as a pure function of what is seen. No clock, no database, no network."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from service.orchestrator.launcher import JobInfo, JobStatus
from service.text import counted

START_GRACE = timedelta(seconds=180)
"""A driver has to import torch and ray, and a busy cluster may queue it, before its first heartbeat."""
STOP_GRACE = timedelta(seconds=90)
"""Ray needs 30 s to kill a job; after this a stopped attempt is given up whatever Ray says."""
PAUSE_GRACE = timedelta(minutes=30)
"""For a paused driver to come to its next checkpoint. One that does not is stopped, and what it had
begun runs again."""
FIRST_PAUSE = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(minutes=5)
PAUSE_GROWTH = 4
"""Between two attempts without progress: what made the one before end may need its time to heal."""
KEEPS_SLOT = timedelta(seconds=60)
"""A study that pauses for longer gives its slot away: whoever takes it may hold it for hours."""
OTHER_VERSION = ("this worker speaks version ", "this driver runs Ray ")
"""What the reason of a driver holds that met messages, or a cluster, of another version."""
UNREACHED = "the driver was not heard yet, and the API does not answer at TAN_WORKER_URL from the orchestrator either"
PAUSED = "paused by a user"
PAUSING = "pausing: the driver goes on to its next checkpoint"
ENDED_EARLY = "the search was ended early by a user"
ENDING_EARLY = "ending the search: the trials that run go on to their end"


class Action(Enum):
    """One step of the reconciler."""

    WAIT = auto()
    START_ATTEMPT = auto()
    SUBMIT = auto()
    STOP = auto()
    PAUSE = auto()
    """Write down that the driver is to end at its next checkpoint; its heartbeats tell it."""
    SUSPEND = auto()
    """No driver runs and none is wanted: the slot is free."""
    REST = auto()
    """No driver is wanted for a while: the slot is free, and it is asked for again after that."""
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
    pause_requested_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None
    retryable: bool = True
    waits_for: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Since when this orchestrator has looked, and what could be heard meanwhile."""

    looking_since: datetime
    """The start of the unbroken time of its looks. A clock that jumps breaks it."""
    listening_since: datetime
    """Since when, of that, heartbeats could arrive: before, silence says nothing."""
    is_unreached: bool = False
    """Whether the API never answered where drivers are told to find it."""


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
    is_paused: bool,
    is_enough: bool,
    max_attempts: int,
    tries: int,
    in_vain: int,
    now: datetime,
    heard: Heard,
    heartbeat_timeout: timedelta,
    first_pause: timedelta = FIRST_PAUSE,
) -> Decision:
    """The next step for an active run; docs/orchestration.md has it as a table.

    Args:
        last: the newest attempt, or None before the first.
        job: what the cluster says of it; None if the cluster does not know it.
        is_to_end: whether the study was cancelled, or has used up its compute budget.
        is_paused: whether a user wants the study to rest.
        is_enough: whether a user wants no more of this search than it has found. Its driver ends as one that is paused.
        max_attempts: how many attempts in a row may end without progress.
        tries: how many have by now; those that were told to pause are not among them.
        in_vain: of those, the ones that count. One that met another version does not: that
            heals when an upgrade is complete.
        now: the database's clock.
        heard: since when whoever decides has looked and listened.
        heartbeat_timeout: silence after which a driver counts as dead.
        first_pause: after one attempt without progress; the next ones are longer.
    """
    if last is not None and last.state == "live":
        silence = _silence(last, job, now, heard.listening_since, heartbeat_timeout)
        rests = ENDING_EARLY if is_enough else PAUSING if is_paused else None
        decision = _live(last, job, is_to_end, rests, silence, now, heard)
        is_waiting_in_vain = decision == WAIT and heard.is_unreached and last.heartbeat_at is None
        return Decision(action=Action.WAIT, reason=UNREACHED) if is_waiting_in_vain else decision
    if last is not None and last.state == "succeeded":
        return Decision(action=Action.SUCCEED)
    if is_to_end:
        return Decision(action=Action.CANCEL)
    if is_enough:
        return Decision(action=Action.SUCCEED)
    if last is not None and not last.retryable:
        return Decision(action=Action.FAIL)
    if in_vain >= max_attempts:
        return Decision(
            action=Action.FAIL, reason=f"gave up after {counted(in_vain, 'attempt')} in vain"
        )
    if is_paused:
        return Decision(action=Action.SUSPEND, reason=PAUSED)
    pause = pause_after(tries, first_pause)
    if last is not None and (reason := _resting(last, pause, now)):
        action = Action.REST if pause > KEEPS_SLOT else Action.WAIT
        return Decision(action=action, reason=reason)
    return Decision(action=Action.START_ATTEMPT)


def pause_after(tries: int, first: timedelta = FIRST_PAUSE) -> timedelta:
    """From the end of so many attempts in a row without progress to the next one.

    Example:
        >>> [pause_after(tries).total_seconds() for tries in range(6)]
        [0.0, 5.0, 20.0, 80.0, 300.0, 300.0]
    """
    if tries == 0:
        return timedelta(0)
    return min(LONGEST_PAUSE, first * PAUSE_GROWTH ** min(tries - 1, 10))


def _live(
    attempt: AttemptView,
    job: JobInfo | None,
    is_to_end: bool,
    rests: str | None,
    silence: timedelta | None,
    now: datetime,
    heard: Heard,
) -> Decision:
    if job is None:
        if attempt.submitted_at is not None or attempt.heartbeat_at is not None:
            return Decision(action=Action.LOSE, reason="the cluster lost the job")
        if is_to_end:
            return Decision(action=Action.LOSE, reason="ended before it was submitted")
        if attempt.pause_requested_at is not None:
            return Decision(action=Action.LOSE, reason="paused before it was submitted")
        return (
            Decision(action=Action.PAUSE, reason=rests) if rests else Decision(action=Action.SUBMIT)
        )
    if job.status.is_terminal:
        return Decision(action=Action.LOSE, reason=_ending(job))
    if attempt.stop_requested_at is not None:
        # Ray was told by then, or nobody could tell it: neither needs the API.
        if _lasted(attempt.stop_requested_at, now, heard.looking_since) > STOP_GRACE:
            return Decision(action=Action.LOSE, reason="stopped, but its job would not end")
        # Said again at every tick: the first time may have been lost.
        return Decision(action=Action.STOP)
    if is_to_end:
        return Decision(action=Action.STOP, reason="asked to end")
    if silence is not None:
        return Decision(
            action=Action.STOP,
            reason=f"the driver sent no heartbeat for {silence.total_seconds():.0f} s",
        )
    return _pausing(attempt, rests, now, heard.listening_since)


def _pausing(
    attempt: AttemptView, rests: str | None, now: datetime, listening_since: datetime
) -> Decision:
    """Of a driver that lives. Once it was told, a resume waits until it has ended."""
    if attempt.pause_requested_at is None:
        if rests:
            return Decision(action=Action.PAUSE, reason=rests)
        return Decision(action=Action.WAIT, reason=attempt.waits_for)
    is_overdue = _lasted(attempt.pause_requested_at, now, listening_since) > PAUSE_GRACE
    if is_overdue and rests != ENDING_EARLY:  # whose trials nobody would begin again
        return Decision(action=Action.STOP, reason="paused, but it came to no checkpoint")
    return Decision(action=Action.WAIT, reason=rests or PAUSING)


def _silence(
    attempt: AttemptView,
    job: JobInfo | None,
    now: datetime,
    listening_since: datetime,
    heartbeat_timeout: timedelta,
) -> timedelta | None:
    """How long a driver that should be heard was not, where that is too long."""
    if job is None or job.status is not JobStatus.RUNNING:
        return None
    heard = attempt.heartbeat_at or attempt.submitted_at or attempt.created_at
    silence = _lasted(heard, now, listening_since)
    limit = heartbeat_timeout if attempt.heartbeat_at else max(START_GRACE, heartbeat_timeout)
    return silence if silence > limit else None


def _lasted(since: datetime, now: datetime, watched_since: datetime) -> timedelta:
    """How long ago a moment is, of the time in which somebody looked, or could be heard.

    That time begins anew where the clock jumps. A moment that is to come was before one that put it back.
    """
    return now - (watched_since if since > now else max(since, watched_since))


def _resting(last: AttemptView, pause: timedelta, now: datetime) -> str | None:
    """Why the next attempt does not begin yet; None: it may. Who was told to pause is owed no rest."""
    if last.finished_at is None or last.pause_requested_at is not None:
        return None
    # An end that is to come was before the clock was put back.
    if not timedelta(0) <= now - last.finished_at < pause:
        return None
    why = last.reason or "the one before ended early"
    return f"attempt {last.number + 1} begins {pause.total_seconds():g} s after the last one: {why}"


def _ending(job: JobInfo) -> str:
    code = "" if job.exit_code is None else f" with exit code {job.exit_code}"
    return f"the driver ended{code} without a final report ({job.status})"
