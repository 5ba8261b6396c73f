"""One tick for one study: look, decide, act. Every transaction is short; none waits for Ray."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.auth.secrets import run_token
from service.db.session import Database
from service.db.tables import Attempt, Run, Study
from service.ledger.service import Ledger
from service.orchestrator import assignments, claims, compute, promote
from service.orchestrator.decide import Action, AttemptView, Decision, decide
from service.orchestrator.launcher import Job, JobInfo, Launcher, LauncherUnavailableError
from service.settings import Settings
from service.statements.service import issue_statement
from service.studies.events import append_event, set_state
from service.trials.service import interrupt_running

log = logging.getLogger(__name__)

MODULES = {"search": "worker.simulate", "private": "worker.train"}


class Reconciler:
    """Moves studies along their states. Holds no state of its own.

    Args:
        settings: limits and addresses.
        database: the control plane's database.
        launcher: the cluster.
        worker_url: how drivers reach the API.
        secret: the server secret that run tokens are derived from.
        owner: name of this orchestrator in leases.
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
    ) -> None:
        self._settings = settings
        self._database = database
        self._launcher = launcher
        self._worker_url = worker_url
        self._secret = secret
        self._owner = owner
        self._ledger = Ledger()

    async def advance(self, study_id: str) -> None:
        """Take the next step for one study that this orchestrator has leased."""
        async with self._database.session() as session:
            study = await claims.locked(session, study_id, owner=self._owner)
            if study is None:
                return
            run = await self._active_run(session, study)
            if run is None:
                await self._advance_without_run(session, study)
                return
            run_id, submission_id = run.id, await self._live_submission(session, run.id)
        job: JobInfo | None = None
        last_words = ""
        if submission_id is not None:
            try:
                job = await self._launcher.status(submission_id)
                if job is not None and job.status.is_terminal:
                    last_words = await self._launcher.last_words(submission_id, lines=3)
            except LauncherUnavailableError as error:
                await self._note(study_id, str(error))
                return
        await self._advance_run(study_id, run_id, job, last_words)

    async def fail(self, study_id: str, reason: str) -> None:
        """End a study that cannot go on; its live driver finds out by its next report."""
        async with self._database.session() as session:
            study = await claims.locked(session, study_id, owner=self._owner)
            if study is not None:
                await self._end(session, study, "failed", reason)

    async def _advance_without_run(self, session: AsyncSession, study: Study) -> None:
        if study.cancel_requested:
            await self._end(session, study, "cancelled", "cancelled by a user")
        elif study.state == "queued":
            if await claims.has_free_slot(session, limit=self._settings.max_running_studies):
                session.add(await assignments.search_run(session, study))
                await set_state(session, study, "simulating")
            elif study.reason is None:
                study.reason = "waiting for a free slot"
        elif study.state == "awaiting_approval" and study.promote_requested:
            await promote.start_private_run(session, study, self._ledger, self._settings)

    async def _advance_run(
        self, study_id: str, run_id: str, job: JobInfo | None, last_words: str
    ) -> None:
        async with self._database.session() as session:
            study = await claims.locked(session, study_id, owner=self._owner)
            run = await session.get(Run, run_id, with_for_update=True)
            if study is None or run is None or run.state != "active":
                return
            attempt = await self._last_attempt(session, run.id)
            now = await _clock(session)
            is_used_up = await compute.is_used_up(session, study)
            decision = decide(
                last=_view(attempt),
                job=job,
                is_to_end=study.cancel_requested or is_used_up,
                max_attempts=self._settings.max_attempts,
                now=now,
                heartbeat_timeout=timedelta(seconds=self._settings.heartbeat_timeout_seconds),
            )
            if decision.action is Action.LOSE and last_words:
                decision = replace(decision, reason=f"{decision.reason}: {last_words}")
            follow_up = await self._act(session, study, run, attempt, decision, now)
        if follow_up is not None:
            try:
                await follow_up()
            except LauncherUnavailableError as error:
                await self._note(study_id, str(error))

    async def _act(
        self,
        session: AsyncSession,
        study: Study,
        run: Run,
        attempt: Attempt | None,
        decision: Decision,
        now: datetime,
    ) -> Callable[[], Awaitable[None]] | None:
        """Write the decision down; what has to be said to Ray comes back, to be said after."""
        match decision.action:
            case Action.WAIT:
                study.reason = None
                return None
            case Action.START_ATTEMPT:
                await self._start_attempt(session, study, run, attempt)
                return None
            case Action.SUBMIT:
                assert attempt is not None  # noqa: S101 - decide() submits live attempts only
                job = self._job(study, run, attempt)
                return lambda: self._submit(job)
            case Action.STOP:
                assert attempt is not None  # noqa: S101
                attempt.stop_requested_at = now
                attempt.reason = decision.reason
                submission_id = attempt.submission_id
                return lambda: self._launcher.stop(submission_id)
            case Action.LOSE:
                assert attempt is not None  # noqa: S101
                await self._lose(session, study, run, attempt, decision, now)
                return None
            case Action.SUCCEED:
                await self._succeed(session, study, run, now)
            case Action.FAIL:
                reason = "; ".join(
                    filter(None, [decision.reason, attempt.reason if attempt else None])
                )
                run.state, run.reason, run.finished_at = "failed", reason, now
                await self._end(session, study, "failed", reason)
            case Action.CANCEL:
                run.state, run.finished_at = "cancelled", now
                if study.cancel_requested:
                    await self._end(session, study, "cancelled", "cancelled by a user")
                else:
                    limit = study.spec["budget"]["gpu_hours"]
                    await self._end(
                        session, study, "failed", f"budget.gpu_hours: {limit:g} are used up"
                    )
        return None

    async def _start_attempt(
        self, session: AsyncSession, study: Study, run: Run, last: Attempt | None
    ) -> None:
        number = last.number + 1 if last else 1
        if run.kind == "private" and study.reservation_id is not None:
            # From here on the ledger refuses every earlier attempt.
            await self._ledger.acquire(session, study.reservation_id, epoch=number)
        if run.kind == "search":
            await interrupt_running(session, study, before_attempt=number, reason="its driver died")
        session.add(
            Attempt(run_id=run.id, number=number, state="live", submission_id=f"{run.id}-a{number}")
        )
        if last is not None:
            study.reason = f"attempt {number}: {last.reason or 'the one before ended early'}"
        await append_event(
            session,
            study,
            "attempt",
            {
                "run": run.id,
                "kind": run.kind,
                "attempt": number,
                "state": "live",
                "reason": last.reason if last else None,
            },
        )

    async def _lose(
        self,
        session: AsyncSession,
        study: Study,
        run: Run,
        attempt: Attempt,
        decision: Decision,
        now: datetime,
    ) -> None:
        attempt.state, attempt.finished_at = "lost", now
        stopped_because = attempt.reason if attempt.stop_requested_at else None
        attempt.reason = stopped_because or decision.reason
        log.warning("attempt lost: %s: %s", attempt.submission_id, attempt.reason)
        await append_event(
            session,
            study,
            "attempt",
            {
                "run": run.id,
                "kind": run.kind,
                "attempt": attempt.number,
                "state": "lost",
                "reason": attempt.reason,
            },
        )

    async def _succeed(self, session: AsyncSession, study: Study, run: Run, now: datetime) -> None:
        run.state, run.finished_at = "succeeded", now
        if run.kind == "private":
            await self._release(session, study, "the private run is complete")
            await issue_statement(session, study, self._settings)
            await set_state(session, study, "completed")
        elif study.spec["promotion"] == "manual" and not study.promote_requested:
            await set_state(session, study, "awaiting_approval", "waiting for tan-cli promote")
        else:
            await promote.start_private_run(session, study, self._ledger, self._settings)

    async def _end(self, session: AsyncSession, study: Study, state: str, reason: str) -> None:
        await self._release(session, study, reason)
        if state == "failed":
            study.error = {"reason": reason}
        await set_state(session, study, state, reason)

    async def _release(self, session: AsyncSession, study: Study, reason: str) -> None:
        """Give back to the budget what never began. Charged steps stay charged."""
        if study.reservation_id is not None:
            await self._ledger.release(
                session, study.reservation_id, actor=f"orchestrator:{self._owner}", reason=reason
            )

    def _job(self, study: Study, run: Run, attempt: Attempt) -> Job:
        return Job(
            submission_id=attempt.submission_id,
            module=MODULES[run.kind],
            environment={
                "TAN_API_URL": self._worker_url,
                "TAN_RUN_ID": run.id,
                "TAN_FENCE": str(attempt.number),
                "TAN_RUN_TOKEN": run_token(self._secret, attempt.submission_id),
            },
            metadata={"study": study.id, "run": run.id, "attempt": str(attempt.number)},
        )

    async def _submit(self, job: Job) -> None:
        await self._launcher.submit(job)
        async with self._database.session() as session:
            attempt = await session.scalar(
                select(Attempt).where(Attempt.submission_id == job.submission_id).with_for_update()
            )
            if attempt is not None and attempt.submitted_at is None:
                attempt.submitted_at = await _clock(session)

    async def _note(self, study_id: str, reason: str) -> None:
        async with self._database.session() as session:
            study = await claims.locked(session, study_id, owner=self._owner)
            if study is not None and study.reason != reason:
                study.reason = reason
                log.warning("%s: %s", study_id, reason)

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

    async def _live_submission(self, session: AsyncSession, run_id: str) -> str | None:
        return await session.scalar(
            select(Attempt.submission_id).where(Attempt.run_id == run_id, Attempt.state == "live")
        )


async def _clock(session: AsyncSession) -> datetime:
    """The database's clock: the only one that all processes share."""
    now = await session.scalar(select(func.clock_timestamp()))
    assert now is not None  # noqa: S101 - a SELECT of a function always answers
    return now


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
        retryable=attempt.retryable,
    )
