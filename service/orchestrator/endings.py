"""How a study ends that has no statement: the budget is given back, and what was spent is written."""

import asyncio

from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study
from service.ledger import repository
from service.ledger.service import Ledger
from service.studies.events import set_state
from tan_core.accounting import price
from tan_core.mechanism import Accountant


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
        await ledger.release(session, study.reservation_id, actor=actor, reason=reason)
        study.charged_epsilon = await _charged_epsilon(session, study, study.reservation_id)
    if state == "failed":
        study.error = {"reason": reason}
    await set_state(session, study, state, reason)


async def _charged_epsilon(session: AsyncSession, study: Study, reservation_id: str) -> float:
    charged = (await repository.reservation(session, reservation_id)).charged
    if charged is None:
        return 0.0
    target = study.spec["privacy"]
    stated = await asyncio.to_thread(
        price, [charged], delta=target["delta"], accountant=Accountant(target["accountant"])
    )
    return stated.epsilon
