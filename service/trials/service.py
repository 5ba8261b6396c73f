"""Reports of trials become rows and events."""

from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study, Trial
from service.errors import InvalidInputError
from service.studies.events import append_event
from service.studies.glance import progress_of
from service.studies.repository import trial_record
from service.trials import repository
from service.trials.merge import merged
from service.trials.schemas import TrialView
from tan_core.wire import TrialRecord


def news(known: TrialRecord | None, report: TrialRecord) -> TrialRecord | None:
    """The trial after a report of it, as :func:`merged` has it; None where that says nothing new."""
    if known is None:
        return report
    record = merged(known, report)
    return None if record == known else record


def check_charged(record: TrialRecord, *, untold_scores: int | None) -> None:
    """Take no score of a search that is charged which nobody paid for: a driver that did not ask, or twice with one request.

    Args:
        record: the trial as it is reported.
        untold_scores: of those that were charged, how many no other trial has told; None: this search is not charged.

    Raises:
        InvalidInputError: all that were charged are those of other trials.
    """
    scores = [*record.scores, *record.repeats]
    is_told = record.value is not None or any(score.accuracy is not None for score in scores)
    if untold_scores is not None and untold_scores < 1 and is_told:
        raise InvalidInputError.at(
            "trial.scores",
            "not charged: other trials have told as many scores as were; each trial asks for the charge before it runs",
            [score.accuracy for score in scores],
        )


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
    # Fields as they are: to write long curves down and to read them again takes longer than all else.
    return TrialView(
        **dict(trial_record(trial)),
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
