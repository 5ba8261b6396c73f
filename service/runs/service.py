"""What a driver may ask and report. Every call is fenced, and harmless when it is sent twice.

Locks are taken in the order study, run, attempt, trial. The ledger's are taken before all of these, so
a segment's charge and the bookkeeping around it are two transactions, the charge first.
"""

import hmac
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncSession

from service.auth.secrets import run_token
from service.context import Context
from service.db.clock import clock
from service.db.tables import Attempt, Run, Study
from service.errors import ConflictError, InvalidInputError, StaleFenceError, UnauthorizedError
from service.ledger import repository as ledger
from service.ledger.names import of_scores, of_trials
from service.ledger.searched import differs
from service.ledger.service import Ledger, missing_reservation
from service.publication.published import Published
from service.runs import repository
from service.studies import repository as studies
from service.studies.events import append_event
from service.studies.glance import progress_of
from service.trials import repository as trials
from service.trials import service as trial_service
from tan_core.mechanism import Mechanism
from tan_core.wire import (
    Assignment,
    FeaturesMade,
    Finish,
    Heartbeat,
    HeartbeatReply,
    SegmentEnd,
    SegmentGrant,
    SegmentRequest,
    TrialReport,
)

STEP_EVENT_INTERVAL = timedelta(seconds=1)
_FENCE = re.compile("[1-9][0-9]{0,19}")
_ASSIGNMENT: TypeAdapter[Assignment] = TypeAdapter(Assignment)


@dataclass(frozen=True)
class Driver:
    """Who is calling: one attempt of one run, whose token has been checked."""

    run_id: str
    fence: int


@dataclass(frozen=True)
class Scene:
    """The rows that a report is about, locked in the house's order."""

    study: Study
    run: Run
    attempt: Attempt


def authenticate(context: Context, run_id: str, fence: object, authorization: str | None) -> Driver:
    """The driver whose token this is; a token is good for one attempt of one run.

    Args:
        context: the process's shared parts.
        run_id: as the address says.
        fence: as the query or the report says, whatever it is.
        authorization: the header.

    Raises:
        UnauthorizedError: it is of another attempt, or of none.
    """
    number = str(fence) if isinstance(fence, int | str) and _FENCE.fullmatch(str(fence)) else "0"
    expected = run_token(context.secret, f"{run_id}-a{number}")
    given = (authorization or "").removeprefix("Bearer ")
    is_right = hmac.compare_digest(given.encode(), expected.encode())
    if number == "0" or not is_right:
        raise UnauthorizedError("this is not the token of that attempt of that run")
    return Driver(run_id, int(number))


async def assignment(context: Context, driver: Driver) -> Assignment:
    """What the driver is to do, with everything known from earlier attempts."""
    async with _scene(context, driver) as (session, scene):
        run, study = scene.run, scene.study
        await repository.beat(session, run.id, driver.fence)
        live: dict[str, Any] = {
            "run_id": run.id,
            "attempt": scene.attempt.number,
            "fence": driver.fence,
        }
        if run.kind == "search":
            await trial_service.interrupt_running(
                session, study, before_attempt=driver.fence, reason="its driver died"
            )
            known = await trials.every(session, study.id)
            live["trials"] = [studies.trial_record(trial).model_dump() for trial in known]
        else:
            live["checkpoint"] = run.checkpoint
        return _ASSIGNMENT.validate_python({**run.assignment, **live})


async def heartbeat(context: Context, driver: Driver, report: Heartbeat) -> HeartbeatReply:
    """Note that the driver lives and how far it is; say whether it is still wanted."""
    async with context.database.reading() as session:
        wanted = await repository.heard(session, driver.run_id, report)
        if wanted is None:
            attempt = await repository.attempt(session, driver.run_id, driver.fence)
            raise _stale(driver, attempt and attempt.state)
    if wanted.kind == "private" and report.step is not None:
        async with _scene(context, driver) as (session, scene):
            await _note_step(session, scene, report.step, report.steps_per_second)
    if report.features is not None:
        async with _scene(context, driver) as (session, scene):
            await _note_features(session, scene, report.features)
    if wanted.cancel:
        return HeartbeatReply(desired="cancel")
    return HeartbeatReply(desired="pause" if wanted.pause else "run")


async def report_trial(context: Context, driver: Driver, number: int, report: TrialReport) -> None:
    """Store the present state of a trial. Seen without a lock, and stored if nothing has changed since."""
    if report.trial.number != number:
        raise InvalidInputError.at(
            "trial.number", f"the address says trial {number}", report.trial.number
        )
    async with context.database.reading() as session:
        while True:  # until nobody else writes in between
            seen = await trials.see(session, driver.run_id, driver.fence, number)
            if seen is None or seen.attempt_state != "live":
                raise _stale(driver, seen and seen.attempt_state)
            _expect_kind(driver.run_id, seen.kind, "search")
            news = trial_service.news(seen.known, report.trial)
            if news is None:
                await repository.beat(session, driver.run_id, driver.fence)
                return
            trial_service.check_charged(news, untold_scores=seen.untold_scores)
            if await trials.store(session, seen, news):
                return


async def begin_segment(context: Context, driver: Driver, ask: SegmentRequest) -> SegmentGrant:
    """Charge the next steps, or a whole trial. The answer leaves only after the charge is committed."""
    async with _scene(context, driver, lock=False) as (session, scene):
        study, assignment = scene.study, scene.run.assignment
        charged = assignment.get("charged")
        if charged is None:
            _expect_kind(driver.run_id, scene.run.kind, "private")
        if study.cancel_requested:
            raise ConflictError("the study is being cancelled: no further steps are charged")
        reservation_id = study.reservation_id
        if reservation_id is None and (fault := await missing_reservation(session, study)):
            raise ConflictError(f"{fault}: no steps are granted")
        of = assignment if charged is None else charged
        mechanism = Mechanism.from_json(of["mechanism"]["event"])
    _check_start(ask, mechanism.steps)
    if charged is not None:
        return await _begin_trial(context, driver, ask, study.id, charged)
    wanted = min(ask.num_steps, mechanism.steps - ask.start_step)
    if reservation_id is None:  # public data: nothing to charge
        return SegmentGrant(segment=ask.start_step, num_steps=wanted)
    async with context.database.session() as session:
        segment, granted = await Ledger().begin_segment(
            session,
            reservation_id,
            epoch=driver.fence,
            start_step=ask.start_step,
            num_steps=wanted,
            request_id=ask.request_id,
        )
        held = await ledger.reservation(session, reservation_id)
    # What runs from here on is in no backup of before, be it of a moment ago.
    await _leave(context, held.scope_id)
    return SegmentGrant(segment=segment, num_steps=granted)


async def _leave(context: Context, scope_id: str) -> None:
    """Mark what is charged by now: no older ledger is served from here on."""
    async with context.database.session() as session:
        await Published(context.settings.home_path).leave_head(session, scope_id)


async def _begin_trial(
    context: Context, driver: Driver, ask: SegmentRequest, study_id: str, charged: dict[str, Any]
) -> SegmentGrant:
    """Charge all steps of a trial and its score in one transaction; 0 steps where nothing is left for one more.

    Its score is shown as soon as it is told, so no older ledger is served from here on.
    """
    steps = Mechanism.from_json(charged["mechanism"]["event"]).steps
    if (ask.start_step, ask.num_steps) != (0, steps):
        raise InvalidInputError.at(
            "num_steps", f"a trial is charged whole: {steps} steps from step 0", ask.num_steps
        )
    async with context.database.session() as session:
        trials = await ledger.reservation(session, of_trials(study_id))
        scores = await ledger.reservation(session, of_scores(study_id))
        if (fault := differs(charged, trials=trials, scores=scores)) is not None:
            raise ConflictError(f"{fault}: no steps are granted")
        # As many scores are held as trials: where there is one, there is a trial.
        for reservation_id, wanted in ((of_scores(study_id), 1), (of_trials(study_id), steps)):
            segment, granted = await Ledger().begin_segment(
                session,
                reservation_id,
                epoch=driver.fence,
                start_step=0,
                num_steps=wanted,
                request_id=ask.request_id,
            )
            if granted < wanted:
                return SegmentGrant(segment=segment, num_steps=0)
    await _leave(context, trials.scope_id)
    return SegmentGrant(segment=segment, num_steps=granted)


async def end_segment(context: Context, driver: Driver, segment: int, end: SegmentEnd) -> None:
    """Close a segment: its checkpoint is where the next attempt goes on. The next one may have begun."""
    async with _scene(context, driver, lock=False) as (_, scene):
        _expect_kind(driver.run_id, scene.run.kind, "private")
        reservation_id = scene.study.reservation_id
        _check_checkpoint(scene.run, end)
    if reservation_id is not None:
        async with context.database.session() as session:
            await Ledger().end_segment(
                session,
                reservation_id,
                epoch=driver.fence,
                segment=segment,
                checkpoint_step=end.checkpoint.step,
                checkpoint_sha256=end.checkpoint.sha256,
            )
    async with _scene(context, driver) as (session, scene):
        known = scene.run.checkpoint
        if known is None or known["step"] <= end.checkpoint.step:
            scene.run.checkpoint = end.checkpoint.model_dump(mode="json")
            scene.run.progress_attempt = driver.fence
        await repository.beat(session, driver.run_id, driver.fence)
        await _note_step(session, scene, end.checkpoint.step, None)


async def finish(context: Context, driver: Driver, report: Finish) -> None:
    """The final report of an attempt; the orchestrator takes it from there."""
    async with _scene(context, driver, finished_as=report.outcome) as (session, scene):
        attempt, run = scene.attempt, scene.run
        if attempt.state == report.outcome:
            return
        await _check_result(session, scene, report)
        attempt.state = report.outcome
        # A driver that was told to end says no more than that; why it was told stands there already.
        attempt.reason = report.reason or attempt.reason
        attempt.retryable = report.retryable
        attempt.finished_at = await clock(session)
        if report.result is not None:
            run.result = report.result.model_dump(mode="json")
            run.step = max(run.step, report.result.steps)
        if run.kind == "search":
            await trial_service.interrupt_running(
                session,
                scene.study,
                before_attempt=attempt.number + 1,
                reason="its driver ended",
            )
        await append_event(
            session,
            scene.study,
            "attempt",
            {
                "run": run.id,
                "run_kind": run.kind,
                "attempt": attempt.number,
                "state": attempt.state,
                "reason": attempt.reason,
            },
        )


@asynccontextmanager
async def _scene(
    context: Context, driver: Driver, *, lock: bool = True, finished_as: str | None = None
) -> AsyncGenerator[tuple[AsyncSession, Scene]]:
    """A transaction with the caller's rows, if its attempt is the live one (or ended as it says)."""
    async with context.database.session() as session:
        found = await repository.scene(session, driver.run_id, driver.fence, lock=lock)
        if found is None or found[2].state not in ("live", finished_as):
            raise _stale(driver, found and found[2].state)
        study, run, attempt = found
        yield session, Scene(study, run, attempt)


def _stale(driver: Driver, state: str | None) -> StaleFenceError:
    if state is None:
        return StaleFenceError(f"run {driver.run_id!r} has no attempt {driver.fence}: stop")
    return StaleFenceError(
        f"attempt {driver.fence} of run {driver.run_id!r} is {state}, no longer "
        "live: stop and write nothing"
    )


async def _note_step(
    session: AsyncSession, scene: Scene, step: int, steps_per_second: float | None
) -> None:
    """Raise the run's step, and tell subscribers at most once a second."""
    run = scene.run
    run.step = max(run.step, min(step, run.steps or step))
    if steps_per_second is not None:
        run.steps_per_second = steps_per_second
    await session.flush()
    last = await studies.last_step_event_at(session, scene.study.id)
    # An event of the future was written before the clock was put back.
    if last is not None and timedelta(0) <= await clock(session) - last < STEP_EVENT_INTERVAL:
        return
    progress = await progress_of(session, scene.study)
    await append_event(
        session,
        scene.study,
        "step",
        {
            "step": run.step,
            "steps": run.steps,
            "steps_per_second": run.steps_per_second,
            "progress": progress.model_dump(mode="json"),
        },
    )


async def _note_features(session: AsyncSession, scene: Scene, made: FeaturesMade) -> None:
    """Tell subscribers, as often as a driver says so, if it says something new."""
    run, found = scene.run, made.model_dump()
    if run.features == found:
        return
    run.features = found
    await session.flush()
    progress = await progress_of(session, scene.study)
    await append_event(
        session, scene.study, "features", {"progress": progress.model_dump(mode="json")}
    )


def _expect_kind(run_id: str, kind: str, expected: str) -> None:
    if kind != expected:
        raise ConflictError(f"run {run_id!r} is a {kind} run; this is for a {expected} run")


def _check_start(ask: SegmentRequest, steps: int) -> None:
    if ask.start_step >= steps:
        raise InvalidInputError.at(
            "start_step", f"the run has {steps} steps: nothing starts there", ask.start_step
        )


async def _check_result(session: AsyncSession, scene: Scene, report: Finish) -> None:
    """A private run that succeeded has a result, of steps that were charged. Nothing else has one.

    What is refused here could not be stated later, and its study would wait for a statement for ever.
    """
    run, result = scene.run, report.result
    is_due = run.kind == "private" and report.outcome == "succeeded"
    if (result is not None) is not is_due:
        told = "a private run that succeeded has a result, and nothing else has one"
        raise InvalidInputError.at("result", told)
    if result is None:
        return
    charged = run.steps
    if scene.study.reservation_id is not None:
        charged = (await ledger.reservation(session, scene.study.reservation_id)).charged_steps
    most = min(run.steps, charged)
    if not 1 <= result.steps <= most:
        told = f"must be in [1, {most}]: of {run.steps} steps {charged} were charged"
        raise InvalidInputError.at("result.steps", told, result.steps)


def _check_checkpoint(run: Run, end: SegmentEnd) -> None:
    """A checkpoint is of a step of the run."""
    if not 0 < end.checkpoint.step <= run.steps:
        raise InvalidInputError.at(
            "checkpoint.step", f"must be in [1, {run.steps}]", end.checkpoint.step
        )
