"""Reports of trials become rows and events."""

from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study, Trial
from service.studies.events import append_event
from service.studies.glance import progress_of
from service.studies.repository import trial_record
from service.trials import repository
from service.trials.merge import merged
from service.trials.schemas import TrialView
from tan_core.wire import TrialRecord


async def report(session: AsyncSession, study: Study, record: TrialRecord, *, attempt: int) -> None:
    """Store a report as :func:`merged` has it; one that says nothing new changes nothing.

    The study's row must be locked.
    """
    known = await repository.find(session, study.id, record.number)
    if known is not None:
        before = trial_record(known)
        record = merged(before, record)
        if record == before:
            return
    await repository.store(session, study.id, record, attempt=attempt, known=known)
    await _announce(session, study, record)


async def interrupt_running(
    session: AsyncSession, study: Study, *, before_attempt: int, reason: str
) -> None:
    """Trials whose driver is gone: their parameters run again under the next one."""
    for trial in await repository.running_before(session, study.id, before_attempt):
        trial.state, trial.reason = "interrupted", reason
        await session.flush()
        await _announce(session, study, trial_record(trial))


def view(trial: Trial) -> TrialView:
    """The row as the API shows it."""
    return TrialView(
        **trial_record(trial).model_dump(),
        attempt=trial.attempt,
        started_at=trial.started_at,
        updated_at=trial.updated_at,
        finished_at=trial.finished_at,
    )


async def _announce(session: AsyncSession, study: Study, record: TrialRecord) -> None:
    progress = await progress_of(session, study)
    await append_event(
        session,
        study,
        "trial",
        {"trial": record.model_dump(mode="json"), "progress": progress.model_dump(mode="json")},
    )
