"""From the search to the private run: choose, hold the budget for what will really run, hand over."""

import json

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Dataset, Study, Trial
from service.ledger import repository
from service.ledger.service import BudgetExceededError, Ledger
from service.orchestrator import assignments, endings
from service.orchestrator.proposal import propose, settle, take_given
from service.settings import Settings
from service.studies.events import append_state, set_state
from service.studies.lifecycle import AWAITS_PROMOTE, StudyState
from service.studies.repository import completed_trials
from tan_core.accounting import SearchAccounting
from tan_core.errors import ParameterError
from tan_core.mechanism import Mechanism
from tan_core.planner import Plan, Target, candidate, reserved_mechanism
from tan_core.spec import StudySpec, TrainSpec, field_problems
from tan_core.wire import clean_reason


async def approval_needed(session: AsyncSession, study: Study) -> str | None:
    """Whom the private run of a study whose search has ended waits for, and why; None: it begins."""
    if study.promote_requested:
        return None
    if (await session.get_one(Dataset, study.dataset)).approval == "required":
        return f"{AWAITS_PROMOTE}, as dataset {study.dataset} requires"
    return AWAITS_PROMOTE if study.spec["promotion"] == "manual" else None


async def approval_of_search(session: AsyncSession, study: Study) -> str | None:
    """Whom a search waits for whose trials are private runs themselves, and why; None: it begins."""
    if study.promote_requested or not SearchAccounting(study.search_accounting).is_charged:
        return None
    if (await session.get_one(Dataset, study.dataset)).approval != "required":
        return None
    return (
        f"{AWAITS_PROMOTE}, as dataset {study.dataset} requires: each trial of the search is a private run, "
        "charged to its budget"
    )


async def await_approval(session: AsyncSession, study: Study, ledger: Ledger, needed: str) -> None:
    """Let a person decide on what the search proposes, or on what was given with the study.

    ``needed`` is what :func:`approval_needed` said.
    """
    if study.has_search:
        proposed = await propose(session, study)
        if proposed is None:
            await _fail(session, study, ledger, await _nothing_to_promote(session, study))
            return
        proposal = proposed.reason
    else:
        proposal = take_given(study, by=None)
    reason = clean_reason(f"{needed}: {proposal}")
    await set_state(session, study, "awaiting_approval", reason)


async def start_private_run(
    session: AsyncSession, study: Study, ledger: Ledger, settings: Settings
) -> None:
    """Promote a trial in one transaction: its number, its reservation, its run, the new state.

    A study without a search trains with its own hyper-parameters.
    """
    if not study.has_search:
        if await _hand_over(session, study, ledger, settings, trial=None):
            await set_state(session, study, "training", take_given(study, by="user"))
        return
    proposed = await propose(session, study)
    if proposed is None:
        await _fail(session, study, ledger, await _nothing_to_promote(session, study))
        return
    number = proposed.winner.trial if study.promoted_trial is None else study.promoted_trial
    promoted = await session.get_one(Trial, (study.id, number))
    if await _hand_over(session, study, ledger, settings, trial=promoted):
        study.promoted_trial = number
        is_missed = bool(study.plan.get("goes_on")) and promoted.weights_sha256 is None
        reason = settle(study, proposed, trial=number, are_weights_missed=is_missed)
        await set_state(session, study, "training", reason)


async def _hand_over(
    session: AsyncSession,
    study: Study,
    ledger: Ledger,
    settings: Settings,
    *,
    trial: Trial | None,
) -> bool:
    """Hold the budget for what will really run, and make its run; False: it does not hold, and the study waits."""
    spec = StudySpec.model_validate(study.spec)
    params, name = ({}, "given") if trial is None else (trial.params, f"t{trial.number}")
    if strange := params.keys() - spec.search.space.keys():
        raise ParameterError(
            f"a trial was reported with {min(strange)[:100]!r}, which is not in search.space"
        )
    try:
        chosen = candidate(
            trainer=spec.train.trainer(),
            model=spec.model,
            reference=Plan.model_validate(study.plan).private_run(),
            params=params,
            target=Target.of(spec),
        )
    except ValidationError as error:  # of no kind that ends a study: it would be tried for ever
        faults = "; ".join(f"{p.path}: {p.message}" for p in field_problems(error, TrainSpec))
        raise ParameterError(f"a trial was reported that cannot be trained: {faults}") from error
    needed = reserved_mechanism(chosen.private_run.mechanism)
    if study.reservation_id is not None and needed != await _held(session, study.reservation_id):
        try:
            # A point of its own: a refusal must leave nothing half done.
            async with session.begin_nested():
                study.reservation_id = await ledger.swap(
                    session,
                    study.reservation_id,
                    new_reservation_id=f"{study.id}-{name}",
                    study_id=study.id,
                    mechanism=needed,
                    actor="orchestrator",
                )
        except BudgetExceededError as error:
            await _let_wait(session, study, error)
            return False
    session.add(
        await assignments.private_run(
            session,
            study,
            chosen,
            storage_path=str(settings.storage_path),
            trial=trial,
        )
    )
    return True


async def _let_wait(session: AsyncSession, study: Study, error: BudgetExceededError) -> None:
    """Keep what the search found and what is reserved, and let people decide once more."""
    study.promote_requested, study.promoted_trial = False, None
    study.promotion = {**(study.promotion or {}), "approved_by": None}
    room = (
        "raise it (tan-cli ledger cap)" if error.is_of_cap else "wait for others to give steps back"
    )
    reason = (
        f"over budget at promotion: {error}. The search and what is reserved are kept: {room}, then tan-cli "
        "promote, or promote another trial (--trial)"
    )
    if study.state == StudyState.AWAITING_APPROVAL:  # whoever approved it is to hear of it
        study.reason = clean_reason(reason)
        await append_state(session, study, is_anew=True)
        return
    await set_state(session, study, "awaiting_approval", clean_reason(reason))


async def _held(session: AsyncSession, reservation_id: str) -> Mechanism:
    """The mechanism that the ledger holds for the study."""
    reservation = await repository.reservation(session, reservation_id)
    return Mechanism.from_json(json.loads(reservation.event)).with_steps(reservation.reserved_steps)


async def _nothing_to_promote(session: AsyncSession, study: Study) -> str:
    if await completed_trials(session, study.id):
        return (
            "every completed trial was given up under a fresh seed, so there is nothing to promote"
        )
    return "no trial completed, so there is nothing to promote"


async def _fail(session: AsyncSession, study: Study, ledger: Ledger, reason: str) -> None:
    await endings.end(session, study, "failed", reason, ledger=ledger, actor="orchestrator")
