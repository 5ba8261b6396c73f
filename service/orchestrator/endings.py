"""How a study ends that has no statement: the budget is given back, and what was spent is written."""

import asyncio
import json
import logging

from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study
from service.ledger import repository
from service.ledger.service import Ledger, merge
from service.studies import epsilon
from service.studies.events import set_state
from service.studies.repository import run_of
from service.trials import repository as trials
from tan_core.accounting import SearchAccounting, price
from tan_core.errors import AccountantError
from tan_core.mechanism import Accountant, Mechanism
from tan_core.wire import TrialState

log = logging.getLogger(__name__)

_EPOCH = 1
"""Of a private run that has no attempt: the first there is."""


async def end(
    session: AsyncSession,
    study: Study,
    state: str,
    reason: str,
    *,
    ledger: Ledger,
    actor: str,
) -> None:
    """Move the study to ``failed`` or ``cancelled``. Charged steps stay charged, the rest is released."""
    if study.reservation_id is not None:
        owed = await _owed(session, study) if state == "failed" else None
        # Priced before the release holds the scope, and again if a segment began meanwhile.
        charged = await _charged(session, study.id)
        if owed is not None:
            charged = merge([*charged, owed])
        spent = await _epsilon(study, charged)
        if owed is not None:
            await _charge(session, study, owed, ledger=ledger)
            reason += f"; the {owed.steps} steps of the private run are charged, though none is taken: the search's own outputs decided it"
        # Everybody reads the ledger, for ever. What a driver died of may quote its data.
        told = f"the study ended: {state}"
        await release(session, study, ledger=ledger, actor=actor, reason=told)
        if (last := await _charged(session, study.id)) != charged:
            spent = await _epsilon(study, last)
        study.charged_epsilon = spent
    if state == "failed":
        study.error = {"reason": reason}
    await set_state(session, study, state, reason)


async def release(
    session: AsyncSession, study: Study, *, ledger: Ledger, actor: str, reason: str
) -> None:
    """Give back to the budget what never began of all that is held for the study. Charged steps stay charged."""
    for held in await repository.of_study(session, study.id):
        if held.state == "open":
            await ledger.release(session, held.reservation_id, actor=actor, reason=reason)


async def _owed(session: AsyncSession, study: Study) -> Mechanism | None:
    """The private run of a charged search that is over, where nothing but what its trials have put out keeps it from being run.

    Trials whose noisy weights are no numbers any more ended by what they have put out themselves. Where no other is left
    the study is stopped by its own outputs, as a private run that ends so, and composition holds for the whole plan alone.
    Crashes are taken not to depend on the records.
    """
    if not SearchAccounting(study.search_accounting).is_charged or study.reservation_id is None:
        return None
    if await run_of(session, study.id, "private") is not None:
        return None
    found = [trial.state for trial in await trials.every(session, study.id)]
    ended = [state for state in found if TrialState(state).is_finished]
    is_over = len(ended) >= study.spec["search"]["trials"]
    if not is_over or TrialState.COMPLETED in ended or TrialState.DIVERGED not in ended:
        return None
    held = await repository.reservation(session, study.reservation_id)
    if held.state != "open":
        return None
    return Mechanism.from_json(json.loads(held.event)).with_steps(study.plan["reference"]["steps"])


async def _charge(session: AsyncSession, study: Study, owed: Mechanism, *, ledger: Ledger) -> None:
    """Charge a private run that never began, once however often it is asked for."""
    assert study.reservation_id is not None  # noqa: S101 - what is owed is held
    await ledger.acquire(session, study.reservation_id, epoch=_EPOCH)
    await ledger.begin_segment(
        session,
        study.reservation_id,
        epoch=_EPOCH,
        start_step=0,
        num_steps=owed.steps,
        request_id=f"{study.id}-owed",
    )


async def _charged(session: AsyncSession, study_id: str) -> tuple[Mechanism, ...]:
    """What the study was charged: for its private run, and for its search where that is charged."""
    held = await repository.of_study(session, study_id)
    return merge(each.charged for each in held if each.charged is not None)


async def _epsilon(study: Study, charged: tuple[Mechanism, ...]) -> float:
    """What the charged steps cost; of all that was held where no accountant says so now."""
    if not charged:
        return 0.0
    target = study.spec["privacy"]
    try:
        stated = await asyncio.to_thread(
            price, charged, delta=target["delta"], accountant=Accountant(target["accountant"])
        )
    except AccountantError:
        log.exception("study %s ends with the epsilon of all that it held", study.id)
        return epsilon.reserved(study)
    return stated.epsilon
