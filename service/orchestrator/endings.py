"""How a study ends that has no statement: the budget is given back, and what was spent is written."""

import asyncio
import logging

from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study
from service.ledger import repository
from service.ledger.service import Ledger
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
        charged = await _charged(session, study.reservation_id)
        spent = await _epsilon(study, charged)
        # Everybody reads the ledger, for ever. What a driver died of may quote its data.
        told = f"the study ended: {state}"
        await ledger.release(session, study.reservation_id, actor=actor, reason=told)
        if (last := await _charged(session, study.reservation_id)) != charged:
            spent = await _epsilon(study, last)
        study.charged_epsilon = spent
    if state == "failed":
        study.error = {"reason": reason}
    await set_state(session, study, state, reason)


async def _charged(session: AsyncSession, reservation_id: str) -> Mechanism | None:
    return (await repository.reservation(session, reservation_id)).charged


async def _epsilon(study: Study, charged: Mechanism | None) -> float:
    """What the charged steps cost; of the whole reservation where no accountant says so now."""
    if charged is None:
        return 0.0
    target = study.spec["privacy"]
    try:
        stated = await asyncio.to_thread(
            price, [charged], delta=target["delta"], accountant=Accountant(target["accountant"])
        )
    except AccountantError:
        log.exception("study %s ends with the epsilon of all that it held", study.id)
        return epsilon.reserved(study)
    return stated.epsilon
