"""One tick for one study: look, decide, act. Every transaction is short; none waits for Ray."""

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.auth.secrets import run_token
from service.db.clock import clock
from service.db.session import Database
from service.db.tables import Attempt, Run, Study
from service.ledger import names
from service.ledger import repository as ledger
from service.ledger.service import Ledger
from service.logs.redact import redact
from service.logs.text import last_words, rays_words
from service.orchestrator import assignments, claims, compute, endings, promote
from service.orchestrator.decide import (
    ENDED_EARLY,
    FIRST_PAUSE,
    OTHER_VERSION,
    PAUSED,
    Action,
    AttemptView,
    Decision,
    Heard,
    decide,
)
from service.orchestrator.launcher import (
    Job,
    JobInfo,
    JobStatus,
    Launcher,
    LauncherUnavailableError,
)
from service.orchestrator.look import Look, look
from service.publication.published import Published
from service.settings import Settings
from service.statements.service import attest_weights, make_statement
from service.studies import line
from service.studies.events import append_event, append_state, set_state
from service.studies.repository import run_of
from service.trials.service import interrupt_running
from tan_core.errors import TanError
from tan_core.wire import clean_reason

log = logging.getLogger(__name__)

MODULES = {"search": "worker.simulate", "private": "worker.train"}
STATEMENT_PAUSE_SECONDS = 30.0
"""Between two tries to make a statement that could not be made."""

FollowUp = Callable[[], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class Scene:
    """A study with its active run and that run's newest attempt, locked; and what Ray says."""

    session: AsyncSession
    study: Study
    run: Run
    attempt: Attempt | None
    job: JobInfo | None
    last_words: str | None
    """The error that the driver's log ends with, where it has ended, behind what Ray says of one that it ended."""
    now: datetime


class Reconciler:
    """Moves studies along their states; what it remembers is only when not to try again yet.

    Args:
        settings: limits and addresses.
        database: the control plane's database.
        launcher: the cluster.
        worker_url: how drivers reach the API.
        secret: the server secret that run tokens are derived from.
        owner: name of this orchestrator in leases.
        lease: how long a study is held between two looks at it.
        first_pause: between two attempts, where the first made no progress; later ones are longer.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        database: Database,
        launcher: Launcher,
        worker_url: str,
        secret: bytes,
        owner: str,
        lease: timedelta,
        first_pause: timedelta = FIRST_PAUSE,
    ) -> None:
        self._settings = settings
        self._database = database
        self._launcher = launcher
        self._worker_url = worker_url
        self._secret = secret
        self._owner = owner
        self._lease = lease
        self._ledger = Ledger()
        self._published = Published(settings.home_path)
        self._statement_not_before: dict[str, float] = {}
        self._decide = partial(
            decide,
            max_attempts=settings.max_attempts,
            heartbeat_timeout=timedelta(seconds=settings.heartbeat_timeout_seconds),
            first_pause=first_pause,
        )

    async def advance(self, study_id: str, heard: Heard) -> None:
        """Take the next step for one study that this orchestrator has leased.

        Args:
            study_id: the study.
            heard: since when this orchestrator has looked, and heartbeats of drivers could arrive.
        """
        decided = partial(self._decide, heard=heard)
        async with self._database.reading() as session:
            seen = await look(session, study_id, owner=self._owner)
        if seen is None or self._waits_on(seen):
            return
        if seen.run_id is None:
            if seen.state == "training":
                await self._complete(study_id)
            else:
                await self._between_runs(study_id, seen.state)
            return
        try:
            job, last_words = await self._look_at(seen.submission_id, is_to_end=seen.is_to_end)
            if _is_calm(seen, job, decided):
                return
            follow_up = await self._advance_run(study_id, seen.run_id, job, last_words, decided)
            if follow_up is not None:
                await follow_up()
        except LauncherUnavailableError as error:
            await self.note(study_id, str(error))

    async def fail(self, study_id: str, reason: str) -> None:
        """End a study that cannot go on, and the job that may still run for it."""
        async with self._database.session() as session:
            study = await self._locked(session, study_id)
            if study is None:
                return
            run = await self._active_run(session, study)
            submission_id = await self._live_submission(session, run.id) if run else None
            if run is not None:
                now = await clock(session)
                run.state, run.reason, run.finished_at = "failed", clean_reason(reason), now
                attempt = await self._last_attempt(session, run.id)
                if attempt is not None and attempt.state == "live":
                    attempt.state, attempt.finished_at = "lost", now
                    await self._interrupt(session, study, run, attempt)
            await self._end(session, study, "failed", reason)
        if submission_id is not None:
            await self._launcher.stop(submission_id)

    async def note(self, study_id: str, reason: str) -> None:
        """Say on the study why it does not move."""
        async with self._database.session() as session:
            study = await self._locked(session, study_id)
            reason = clean_reason(reason)
            if study is not None and study.reason != reason:
                study.reason = reason
                log.warning("%s: %s", study_id, reason)

    def _waits_on(self, seen: Look) -> bool:
        """Whether the study was told that it waits for a slot, and none is free: most that wait, most times."""
        return (
            (seen.reason or "").startswith(line.WAITING)
            and seen.attempt is None
            and seen.num_running >= self._settings.max_running_studies
            and not (seen.is_to_end or seen.is_paused or seen.is_enough)
        )

    # Studies between runs

    async def _between_runs(self, study_id: str, state: str) -> None:
        async with self._database.session() as session:
            study = await self._locked(session, study_id)
            if study is None or study.state != state:
                return
            if await self._active_run(session, study) is None:
                await self._advance_without_run(session, study)

    async def _advance_without_run(self, session: AsyncSession, study: Study) -> None:
        is_given = study.state == "queued" and not study.has_search
        is_to_search = study.has_search and await run_of(session, study.id, "search") is None
        if study.cancel_requested:
            await self._end(session, study, "cancelled", "cancelled by a user")
        elif study.state == "awaiting_approval" and not study.promote_requested:
            return
        elif study.pause_requested:
            study.reason = PAUSED
        elif is_given and (needed := await promote.approval_needed(session, study)):
            await promote.await_approval(session, study, self._ledger, needed)  # it takes no slot
        elif is_to_search and (needed := await promote.approval_of_search(session, study)):
            await set_state(session, study, "awaiting_approval", needed)
        elif not await self._has_slot(session, study):
            return
        elif is_to_search:
            study.promote_requested = (
                False  # what was approved is the search: the private run asks for itself
            )
            storage_path = str(self._settings.storage_path)
            session.add(await assignments.search_run(session, study, storage_path=storage_path))
            await set_state(session, study, "simulating")
        else:
            await promote.start_private_run(session, study, self._ledger, self._settings)

    async def _has_slot(self, session: AsyncSession, study: Study) -> bool:
        """Whether the study may go on now; if not, it says why."""
        limits = line.Limits(
            studies=self._settings.max_running_studies,
            studies_per_tenant=self._settings.max_running_studies_per_tenant,
        )
        study.reason = await line.why_not_yet(session, study, limits)
        return study.reason is None

    async def _complete(self, study_id: str) -> None:
        """State what the finished private run cost; outside of any lock, for pricing takes time."""
        if time.monotonic() < self._statement_not_before.get(study_id, 0.0):
            return
        await self._leave(study_id)
        try:
            statement = await make_statement(self._database, study_id, self._settings)
        except TanError as error:
            # The weights are there and the charge is in the ledger: only the words are missing.
            self._statement_not_before[study_id] = time.monotonic() + STATEMENT_PAUSE_SECONDS
            log.exception("study %s: no statement yet", study_id)
            await self._without_statement(study_id, error)
            return
        async with self._database.session() as session:
            study = await self._locked(session, study_id)
            if study is not None and study.state == "training":
                study.statement = statement
                steps = statement["steps"]
                is_short = steps["released"] < steps["planned"]
                reason = f"{steps['released']} of {steps['planned']} steps: crashes used up the spare ones"
                await set_state(session, study, "completed", reason if is_short else None)

    async def _without_statement(self, study_id: str, error: TanError) -> None:
        """Say why there is none yet. Who cancels the study does not wait for one."""
        async with self._database.session() as session:
            study = await self._locked(session, study_id)
            if study is not None and study.cancel_requested:
                reason = f"cancelled by a user; trained, but without a statement: {error}"
                await self._end(session, study, "cancelled", reason)
                return
        await self.note(study_id, f"trained, but the statement cannot be made yet: {error}")

    # Studies with a run

    async def _look_at(
        self, submission_id: str | None, *, is_to_end: bool
    ) -> tuple[JobInfo | None, str | None]:
        """What the cluster says of the live attempt, and the driver's last words if it ended.

        Raises:
            LauncherUnavailableError: it does not answer, and is waited for. A study that is to end does not.
        """
        if submission_id is None:
            return None, None
        try:
            job = await self._launcher.status(submission_id)
        except LauncherUnavailableError as error:
            if is_to_end:
                return JobInfo(JobStatus.UNKNOWN, None, str(error)), None
            raise
        if job is None or not job.status.is_terminal:
            return job, None
        known = [run_token(self._secret, submission_id)]
        words: list[str | None] = []
        if job.message and job.exit_code is None:  # with one Ray says what the log says
            # Cut after secrets are out: a half of one would not be known.
            words.append(rays_words(redact(job.message, known=known)))
        with contextlib.suppress(LauncherUnavailableError):  # it lay on the node that died
            words.append(last_words((await self._launcher.log(submission_id)).text))
        return job, redact(": ".join(filter(None, words)), known=known) or None

    async def _advance_run(
        self,
        study_id: str,
        run_id: str,
        job: JobInfo | None,
        last_words: str | None,
        decided: Callable[..., Decision],
    ) -> FollowUp | None:
        async with self._database.session() as session:
            study = await self._locked(session, study_id)
            run = await session.get(Run, run_id, with_for_update=True)
            if study is None or run is None or run.state != "active":
                return None
            attempt = await self._last_attempt(session, run.id)
            now = await clock(session)
            is_known = job is not None and job.status is not JobStatus.UNKNOWN
            if is_known and attempt is not None and attempt.submitted_at is None:
                attempt.submitted_at = now
            is_used_up = await compute.is_used_up(session, study)
            tries, in_vain = await self._without_progress(session, run)
            decision = decided(
                last=_view(attempt),
                job=job,
                is_to_end=study.cancel_requested or is_used_up,
                is_paused=study.pause_requested,
                is_enough=_is_enough(study, run),
                tries=tries,
                in_vain=in_vain,
                now=now,
            )
            scene = Scene(
                session=session,
                study=study,
                run=run,
                attempt=attempt,
                job=job,
                last_words=last_words,
                now=now,
            )
            return await self._act(scene, decision)

    async def _act(self, scene: Scene, decision: Decision) -> FollowUp | None:
        """Write the decision down; what has to be said to Ray comes back, to be said after."""
        study, run, attempt = scene.study, scene.run, scene.attempt
        match decision.action:
            case Action.WAIT:
                if study.reason != decision.reason:
                    study.reason = decision.reason
                    await append_state(scene.session, study)  # pages and terminals show it
            case Action.START_ATTEMPT:
                study.resting = False
                if not study.suspended or await self._has_slot(scene.session, study):
                    await self._start_attempt(scene)
            case Action.PAUSE if attempt is not None:
                attempt.pause_requested_at = scene.now
                attempt.reason = ENDED_EARLY if _is_enough(study, run) else PAUSED
                study.reason = decision.reason
            case Action.SUSPEND | Action.REST:
                study.reason, study.resting = decision.reason, decision.action is Action.REST
                if not study.suspended:
                    study.suspended = True
                    await append_state(scene.session, study)
            case Action.SUBMIT if attempt is not None:
                job = self._job(study, run, attempt)
                is_marked = run.kind == "private" or _is_charged(run)
                return lambda: self._submit(job, study.id if is_marked else None)
            case Action.STOP if attempt is not None:
                if attempt.stop_requested_at is None:
                    attempt.stop_requested_at, attempt.reason = scene.now, decision.reason
                return self._stopping(attempt.submission_id)
            case Action.LOSE if attempt is not None:
                await self._lose(scene, attempt, decision)
                is_over = scene.job is None or scene.job.status.is_terminal
                return None if is_over else self._stopping(attempt.submission_id)
            case Action.SUCCEED:
                await self._succeed(scene)
            case Action.FAIL:
                reason = "; ".join(
                    filter(None, [decision.reason, attempt.reason if attempt else None])
                )
                run.state, run.reason, run.finished_at = "failed", reason, scene.now
                await self._end(scene.session, study, "failed", reason)
            case Action.CANCEL:
                run.state, run.finished_at = "cancelled", scene.now
                if study.cancel_requested:
                    await self._end(scene.session, study, "cancelled", "cancelled by a user")
                else:
                    limit = study.spec["budget"]["gpu_hours"]
                    reason = f"budget.gpu_hours: {limit:g} are used up"
                    await self._end(scene.session, study, "failed", reason)
            case _:
                raise AssertionError(f"{decision.action} without an attempt")
        return None

    async def _start_attempt(self, scene: Scene) -> None:
        session, study, run, last = scene.session, scene.study, scene.run, scene.attempt
        number = last.number + 1 if last else 1
        study.suspended = False
        if run.kind == "private" and study.reservation_id is not None:
            # From here on the ledger refuses every earlier attempt.
            await self._ledger.acquire(session, study.reservation_id, epoch=number)
        if run.kind == "search":
            for held in names.of_search(study.id) if _is_charged(run) else ():
                await self._ledger.acquire(session, held, epoch=number)
            await interrupt_running(session, study, before_attempt=number, reason="its driver died")
        reason = None
        if last is not None and last.pause_requested_at is None:
            reason = f"attempt {number}: {last.reason or 'the one before ended early'}"
        study.reason = clean_reason(reason) if reason else None
        fresh = Attempt(
            run_id=run.id, number=number, state="live", submission_id=f"{run.id}-a{number}"
        )
        session.add(fresh)
        run.features = None  # it may find them all
        await self._announce(scene, fresh, last.reason if last else None)

    async def _lose(self, scene: Scene, attempt: Attempt, decision: Decision) -> None:
        if attempt.stop_requested_at and attempt.reason:
            reason = attempt.reason  # what the driver said after that is how it was stopped
        else:
            reason = ": ".join(filter(None, [decision.reason, scene.last_words])) or "lost"
        attempt.state, attempt.finished_at = "lost", scene.now
        attempt.reason = clean_reason(reason)
        log.warning("attempt lost: %s: %s", attempt.submission_id, attempt.reason)
        await self._interrupt(scene.session, scene.study, scene.run, attempt)
        await self._announce(scene, attempt, attempt.reason)

    async def _interrupt(
        self, session: AsyncSession, study: Study, run: Run, lost: Attempt
    ) -> None:
        """No trial runs without its driver, and there may be no next one that would say so."""
        if run.kind == "search":
            reason = ENDED_EARLY if _is_enough(study, run) else "its driver died"
            await interrupt_running(session, study, before_attempt=lost.number + 1, reason=reason)

    async def _announce(self, scene: Scene, attempt: Attempt, reason: str | None) -> None:
        await append_event(
            scene.session,
            scene.study,
            "attempt",
            {
                "run": scene.run.id,
                "run_kind": scene.run.kind,
                "attempt": attempt.number,
                "state": attempt.state,
                "reason": reason,
            },
        )

    async def _succeed(self, scene: Scene) -> None:
        session, study, run = scene.session, scene.study, scene.run
        run.state, run.finished_at = "succeeded", scene.now
        if run.kind == "private":
            # Stated at the next tick, out of this transaction.
            await self._release(session, study, "the private run is complete")
            await attest_weights(session, study)
            return
        for held in names.of_search(study.id) if _is_charged(run) else ():
            await self._ledger.release(
                session, held, actor=self._actor, reason="the search is complete"
            )
        if _is_enough(study, run) and scene.attempt is not None:
            # Its driver may have died before they ended.
            await interrupt_running(
                session, study, before_attempt=scene.attempt.number + 1, reason=ENDED_EARLY
            )
        if needed := await promote.approval_needed(session, study):
            await promote.await_approval(session, study, self._ledger, needed)
        else:
            await promote.start_private_run(session, study, self._ledger, self._settings)

    async def _end(self, session: AsyncSession, study: Study, state: str, reason: str) -> None:
        await endings.end(
            session, study, state, clean_reason(reason), ledger=self._ledger, actor=self._actor
        )

    async def _release(self, session: AsyncSession, study: Study, reason: str) -> None:
        """Give back to the budget what never began. Charged steps stay charged."""
        if study.reservation_id is not None:
            await self._ledger.release(
                session, study.reservation_id, actor=self._actor, reason=reason
            )

    # What is said to Ray

    def _job(self, study: Study, run: Run, attempt: Attempt) -> Job:
        return Job(
            submission_id=attempt.submission_id,
            module=MODULES[run.kind],
            environment={
                "TAN_API_URL": self._worker_url,
                "TAN_RUN_ID": run.id,
                "TAN_FENCE": str(attempt.number),
                "TAN_RUN_TOKEN": run_token(self._secret, attempt.submission_id),
                **self._settings.for_drivers,
            },
            metadata={"study": study.id, "run": run.id, "attempt": str(attempt.number)},
        )

    async def _submit(self, job: Job, marked: str | None) -> None:
        """Start it; where its steps are charged (``marked``: the study) with a mark of the ledger first."""
        if marked is not None:
            await self._leave(marked)
        await self._launcher.submit(job)
        async with self._database.session() as session:
            attempt = await session.scalar(
                select(Attempt).where(Attempt.submission_id == job.submission_id).with_for_update()
            )
            if attempt is not None and attempt.submitted_at is None:
                attempt.submitted_at = await clock(session)

    def _stopping(self, submission_id: str) -> FollowUp:
        return lambda: self._launcher.stop(submission_id)

    # What is known outside the database

    async def _leave(self, study_id: str) -> None:
        """Mark the ledger that a study is charged to: an older backup is found by it.

        After the commit of what it marks, and repeatable: whatever dies in between marks it again.
        """
        async with self._database.session() as session:
            study = await session.get_one(Study, study_id)
            if study.reservation_id is not None:
                held = await ledger.reservation(session, study.reservation_id)
                await self._published.leave_head(session, held.scope_id)

    # Rows

    @property
    def _actor(self) -> str:
        return f"orchestrator:{self._owner}"

    async def _locked(self, session: AsyncSession, study_id: str) -> Study | None:
        return await claims.locked(session, study_id, owner=self._owner, lease=self._lease)

    async def _active_run(self, session: AsyncSession, study: Study) -> Run | None:
        return await session.scalar(
            select(Run).where(Run.study_id == study.id, Run.state == "active")
        )

    async def _last_attempt(self, session: AsyncSession, run_id: str) -> Attempt | None:
        return await session.scalar(
            select(Attempt)
            .where(Attempt.run_id == run_id)
            .order_by(Attempt.number.desc())
            .limit(1)
            .with_for_update()
        )

    async def _without_progress(self, session: AsyncSession, run: Run) -> tuple[int, int]:
        """Attempts since the last progress that nobody had told to end; and those that count of them."""
        reason = func.coalesce(Attempt.reason, "")
        is_version = or_(*(reason.contains(words) for words in OTHER_VERSION))
        counted = select(func.count(), func.count().filter(~is_version)).where(
            Attempt.run_id == run.id,
            Attempt.number > run.progress_attempt,
            Attempt.state != "live",
            Attempt.pause_requested_at.is_(None),
        )
        tries, in_vain = (await session.execute(counted)).one()
        return tries, in_vain

    async def _live_submission(self, session: AsyncSession, run_id: str) -> str | None:
        return await session.scalar(
            select(Attempt.submission_id).where(Attempt.run_id == run_id, Attempt.state == "live")
        )


def _is_calm(seen: Look, job: JobInfo | None, decided: Callable[..., Decision]) -> bool:
    """Whether the driver works, as it should, and all of that is written down already."""
    if seen.attempt is None or seen.attempt.submitted_at is None:
        return False
    decision = decided(
        last=seen.attempt,
        job=job,
        is_to_end=seen.is_to_end,
        is_paused=seen.is_paused,
        is_enough=seen.is_enough,
        tries=0,  # these count when an attempt has ended
        in_vain=0,
        now=seen.now,
    )
    return decision.action is Action.WAIT and decision.reason == seen.reason


def _is_enough(study: Study, run: Run) -> bool:
    """Whether a user wants no more of this run, a search, than it has found."""
    return study.finish_requested and run.kind == "search"


def _is_charged(run: Run) -> bool:
    """Whether the trials of a search are charged, as its own assignment says."""
    return run.assignment.get("charged") is not None


def _view(attempt: Attempt | None) -> AttemptView | None:
    if attempt is None:
        return None
    return AttemptView(
        number=attempt.number,
        state=attempt.state,
        created_at=attempt.created_at,
        submitted_at=attempt.submitted_at,
        heartbeat_at=attempt.heartbeat_at,
        stop_requested_at=attempt.stop_requested_at,
        pause_requested_at=attempt.pause_requested_at,
        finished_at=attempt.finished_at,
        reason=attempt.reason,
        retryable=attempt.retryable,
        waits_for=attempt.waits_for,
    )
