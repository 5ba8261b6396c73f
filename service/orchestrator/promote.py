"""From the search to the private run: choose, hold the budget for what will really run, hand over."""

import json

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study, Trial
from service.ledger import repository
from service.ledger.service import BudgetExceededError, Ledger
from service.orchestrator import assignments, endings
from service.settings import Settings
from service.studies.events import set_state
from tan_core.mechanism import Mechanism
from tan_core.planner import Plan, Target, candidate, choose_winner, reserved_mechanism
from tan_core.spec import StudySpec
from tan_core.wire import TrialRecord


async def start_private_run(
    session: AsyncSession, study: Study, ledger: Ledger, settings: Settings
) -> None:
    """Promote the winner in one transaction: its number, its reservation, its run, the new state."""
    winner = await _winner(session, study)
    if winner is None:
        await _fail(session, study, ledger, "no trial completed, so there is nothing to promote")
        return
    spec = StudySpec.model_validate(study.spec)
    chosen = candidate(
        trainer=spec.train.trainer(),
        model=spec.model,
        reference=Plan.model_validate(study.plan).private_run(),
        params=winner.params,
        target=Target.of(spec),
    )
    needed = reserved_mechanism(chosen.private_run.mechanism)
    if study.reservation_id is not None and needed != await _held(session, study.reservation_id):
        try:
            # A point of its own: a refusal must leave nothing half done.
            async with session.begin_nested():
                study.reservation_id = await ledger.swap(
                    session,
                    study.reservation_id,
                    new_reservation_id=f"{study.id}-t{winner.number}",
                    study_id=study.id,
                    mechanism=needed,
                    actor="orchestrator",
                )
        except BudgetExceededError as error:
            await _fail(session, study, ledger, f"over budget at promotion: {error}")
            return
    study.promoted_trial = winner.number
    session.add(
        await assignments.private_run(
            session, study, chosen, storage_path=str(settings.storage_path)
        )
    )
    await set_state(session, study, "training")


async def _held(session: AsyncSession, reservation_id: str) -> Mechanism:
    """The mechanism that the ledger holds for the study."""
    reservation = await repository.reservation(session, reservation_id)
    return Mechanism.from_json(json.loads(reservation.event)).with_steps(reservation.reserved_steps)


async def _winner(session: AsyncSession, study: Study) -> TrialRecord | None:
    rows = await session.scalars(
        select(Trial).where(Trial.study_id == study.id).order_by(Trial.number)
    )
    trials = [
        TrialRecord.model_validate(
            {field: getattr(row, field) for field in TrialRecord.model_fields}
        )
        for row in rows
    ]
    if study.promoted_trial is not None:
        return next((trial for trial in trials if trial.number == study.promoted_trial), None)
    return choose_winner(trials)


async def _fail(session: AsyncSession, study: Study, ledger: Ledger, reason: str) -> None:
    await endings.end(session, study, "failed", reason, ledger=ledger, actor="orchestrator")
