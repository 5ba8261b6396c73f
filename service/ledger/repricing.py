"""The past by the accountants of today: what is stored is the mechanism, so it can be priced again."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from service.db.session import Database
from service.errors import InvalidInputError
from service.ledger import repository
from service.ledger.schemas import Evaluation, Repriced, Repricing, Scope
from service.ledger.service import Ledger, merge
from tan_core.accounting import Price, price
from tan_core.errors import UnsupportedEventError
from tan_core.mechanism import Accountant, Mechanism

_USUAL = (Accountant.PLD, Accountant.RDP)


@dataclass(frozen=True)
class _Subject:
    """Charges that have an epsilon of their own, and the entry up to which they were made."""

    reservation_id: str | None
    study_id: str | None
    reason: str | None
    seq: int
    charged: tuple[Mechanism, ...]


async def reprice(
    database: Database, scope_id: str, accountants: Sequence[Accountant] | None = None
) -> Repricing:
    """Price every reservation's charges and all together, at the scope's delta; append what is new.

    Args:
        database: the control plane's.
        scope_id: whose charges.
        accountants: whose figures. None: those of pld, and of rdp for what it has a price for.

    Raises:
        InvalidInputError: one of ``accountants`` cannot price a mechanism of the scope.
        AccountantError: an accountant failed.
    """
    async with database.snapshot() as session:
        scope = await repository.scope(session, scope_id)
        head = await repository.head(session, scope_id)
        subjects = await _subjects(session, scope_id, head.seq)
    # In no transaction: of many studies this takes longer than one may stand still.
    found = [
        (subject, priced)
        for subject in subjects
        for accountant in dict.fromkeys(accountants or _USUAL)
        if (priced := await _priced(subject, scope, accountant, is_asked=accountants is not None))
    ]
    items: list[Repriced] = []
    async with database.session() as session:
        before = await repository.evaluations(session, scope_id)
        for subject, priced in found:
            known = _newest(before, subject, priced.accountant)
            item = _item(subject, priced, known)
            items.append(item)
            if known is None or (known.version, known.epsilon) != (item.version, item.epsilon):
                await Ledger().record_evaluation(
                    session, scope_id, subject.seq, priced, reservation_id=subject.reservation_id
                )
    return Repricing(scope_id=scope_id, head=head, items=items)


async def _subjects(session: AsyncSession, scope_id: str, head: int) -> list[_Subject]:
    held = [each for each in await repository.reservations(session, scope_id) if each.charged]
    subjects = [
        _Subject(
            reservation_id=each.reservation_id,
            study_id=each.study_id,
            reason=each.reason,
            seq=(await repository.last_entry_of(session, each.reservation_id)).seq,
            charged=merge([each.charged] if each.charged else []),
        )
        for each in held
    ]
    if not subjects:
        return []
    together = merge(each.charged for each in held if each.charged)
    all_of_it = _Subject(
        reservation_id=None, study_id=None, reason=None, seq=head, charged=together
    )
    return [*subjects, all_of_it]


async def _priced(
    subject: _Subject, scope: Scope, accountant: Accountant, *, is_asked: bool
) -> Price | None:
    """None: the accountant has no price for it, and nobody asked for it by name."""
    try:
        return await asyncio.to_thread(
            price, subject.charged, delta=scope.delta, accountant=accountant
        )
    except UnsupportedEventError as error:
        if is_asked:
            raise InvalidInputError.at("accountants", str(error), accountant.value) from None
        return None


def _newest(
    before: Sequence[Evaluation], subject: _Subject, accountant: Accountant
) -> Evaluation | None:
    """The last evaluation of the very same charges by this accountant, of whatever version."""
    return next(
        (
            each
            for each in reversed(before)
            if (each.reservation_id, each.seq, each.accountant)
            == (subject.reservation_id, subject.seq, accountant.value)
        ),
        None,
    )


def _item(subject: _Subject, priced: Price, known: Evaluation | None) -> Repriced:
    return Repriced(
        reservation_id=subject.reservation_id,
        study_id=subject.study_id,
        reason=subject.reason,
        seq=subject.seq,
        accountant=priced.accountant.value,
        version=f"{priced.library} {priced.library_version}",
        delta=priced.delta,
        epsilon=priced.epsilon,
        before=None if known is None else known.epsilon,
        version_before=None if known is None else known.version,
    )
