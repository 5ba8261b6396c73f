"""How a study ends that has no statement: the budget is given back, and what was spent is written."""

import asyncio
import logging

from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study
from service.ledger import repository
from service.ledger.service import Ledger, merge
from service.studies import epsilon
from service.studies.events import set_state
from tan_core.accounting import price
from tan_core.errors import AccountantError
from tan_core.mechanism import Accountant, Mechanism

log = logging.getLogger(__name__)


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
        # Priced before the release holds the scope, and again if a segment began meanwhile.
        charged = await _charged(session, study.id)
        spent = await _epsilon(study, charged)
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
