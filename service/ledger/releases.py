"""Releases outside of the service: charged to a dataset's budget before they are made.

Such a release is a reservation that no study holds. It is admitted as a study's is, and charged whole, attested and closed in
the transaction that admits it: none ever waits, none is charged in part, and nothing more can be charged to it.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import UTC
from functools import partial

from sqlalchemy.ext.asyncio import AsyncSession

from service import idempotency
from service.context import Context
from service.db.tables import IdempotencyKey
from service.errors import InvalidInputError
from service.idempotency import Keyed
from service.ledger import names, repository
from service.ledger.notes import OUTSIDE
from service.ledger.schemas import (
    LOCAL_TENANT,
    Head,
    OutsideRelease,
    OutsideReleaseRequest,
    Reservation,
    Scope,
)
from service.ledger.service import Ledger, scope_id_of
from tan_core.accounting import price
from tan_core.accounting.events import in_whole_batches
from tan_core.errors import AccountantError, UnsupportedEventError
from tan_core.mechanism import Mechanism, Sampling

_UNIQUE_BYTES = 12
_EPOCH = 1


@dataclass(frozen=True)
class _Charged:
    """What the journal says of a release, to be priced when nobody waits for the ledger any more."""

    scope: Scope
    held: Reservation
    before: list[Mechanism]
    """All that was committed when it was reserved."""
    entry: Head
    warnings: list[str]


async def charge(
    context: Context,
    dataset: str,
    asked: OutsideReleaseRequest,
    *,
    actor: str,
    tenant: str,
    request: Keyed | None = None,
    dry_run: bool = False,
) -> tuple[OutsideRelease, bool]:
    """Charge a release in one transaction, or nothing at all; the release, and whether it is new.

    Args:
        context: the process's.
        dataset: whose budget.
        asked: what is going to be released.
        actor: who asked.
        tenant: whose caps it counts to.
        request: its idempotency key.
        dry_run: do all of it and take it back: what is told or refused is what would be.

    Raises:
        NotFoundError: no such dataset, or a public one.
        BudgetExceededError: the budget, or a cap in it, does not hold it.
        InvalidInputError: no accountant, or not the scope's rule of admission, has a price for it.
    """
    try:
        charged, is_new = await _charge(
            context, dataset, asked, actor=actor, tenant=tenant, request=request, dry_run=dry_run
        )
    except UnsupportedEventError as error:
        raise InvalidInputError.at("sampling", str(error), asked.sampling) from None
    except AccountantError as error:
        raise InvalidInputError.at("steps", str(error), asked.steps) from None
    return await _priced(charged, is_kept=not dry_run), is_new


async def _charge(
    context: Context,
    dataset: str,
    asked: OutsideReleaseRequest,
    *,
    actor: str,
    tenant: str,
    request: Keyed | None,
    dry_run: bool,
) -> tuple[_Charged, bool]:
    async with context.database.session() as session:
        scope = await repository.scope(session, await scope_id_of(session, dataset))
        known = None if request is None else await idempotency.known(session, request)
        if known is not None:
            return await _read(session, scope, _release_of(known)), False
    mechanism = Mechanism(
        sampling_rate=asked.sampling_rate, noise_multiplier=asked.noise_multiplier, clip_norm=1.0,
        steps=asked.steps, sampling=Sampling(asked.sampling), neighboring_relation=scope.neighboring_relation,
    )  # fmt: skip
    # By itself first, in limited time: once it is charged, every price of the scope has it within.
    await context.arithmetic.run(partial(price, [mechanism], delta=scope.delta))
    # Steps of one mechanism are added up over releases, and each release of shuffled batches has its own last, begun epoch.
    mechanism = in_whole_batches(mechanism)
    async with context.database.session() as session:
        release_id = names.of_outside(secrets.token_hex(_UNIQUE_BYTES))
        if request is not None:
            if (known := await idempotency.claim(session, request)) is not None:
                return await _read(session, scope, _release_of(known)), False
            row = idempotency.remember(session, request, dataset=dataset)
            await session.flush()
            release_id = _release_of(row)
        await _book(session, scope, release_id, mechanism, asked.reason, actor, tenant)
        charged = await _read(session, scope, release_id)
        if dry_run:
            await session.rollback()
        return charged, True


async def _book(
    session: AsyncSession,
    scope: Scope,
    release_id: str,
    mechanism: Mechanism,
    reason: str,
    actor: str,
    tenant: str,
) -> None:
    """Admit it, charge all of it, say why, and close it."""
    ledger = Ledger()
    await ledger.admit_and_reserve(
        session, scope_id=scope.scope_id, reservation_id=release_id, study_id=release_id,
        mechanism=mechanism, actor=actor, tenant=tenant,
    )  # fmt: skip
    # Refused where the identifier was there already: no release is ever charged by an earlier one.
    await ledger.acquire(session, release_id, epoch=_EPOCH)
    await ledger.begin_segment(
        session, release_id, epoch=_EPOCH, start_step=0, num_steps=mechanism.steps,
        request_id=release_id,
    )  # fmt: skip
    note: dict[str, object] = {OUTSIDE: {"reason": reason, "mechanism": mechanism.fingerprint}}
    await ledger.attest(session, release_id, note=note, actor=actor)
    await ledger.release(session, release_id, actor=actor, reason="charged whole")


def _release_of(row: IdempotencyKey) -> str:
    """The release that this use of a key made. A key that was forgotten, and is used again, makes another one."""
    used = f"{row.key}|{row.created_at.astimezone(UTC).isoformat()}"
    return names.of_outside(hashlib.sha256(used.encode()).hexdigest()[: 2 * _UNIQUE_BYTES])


async def _read(session: AsyncSession, scope: Scope, release_id: str) -> _Charged:
    held = await repository.reservation(session, release_id)
    last = await repository.last_entry_of(session, release_id)
    return _Charged(
        scope=scope,
        held=held,
        before=await repository.committed_before(session, scope.scope_id, held.seq),
        entry=Head(seq=last.seq, hash=last.hash),
        warnings=await _warnings(session, scope.scope_id, held.tenant),
    )


async def _warnings(session: AsyncSession, scope_id: str, tenant: str) -> list[str]:
    """What whoever named the tenant may overlook: of a slip no cap of whom was meant knows."""
    capped = {cap.tenant for cap in await repository.caps(session, scope_id)}
    if tenant in (LOCAL_TENANT, *capped) or await repository.is_known_tenant(session, tenant):
        return []
    return [
        f"no token, no study and no cap is of tenant {tenant!r}: it counts to the cap of nobody else"
    ]


async def _priced(charged: _Charged, *, is_kept: bool) -> OutsideRelease:
    ledger, scope, held = Ledger(), charged.scope, charged.held
    after = await ledger.epsilon([*charged.before, held.committed], scope)
    return OutsideRelease(
        id=held.reservation_id if is_kept else None,
        scope_id=scope.scope_id,
        tenant=held.tenant,
        reason=held.reason or "",
        mechanism=held.whole.to_json(),
        epsilon=await ledger.epsilon([held.committed], scope),
        epsilon_before=await ledger.epsilon(charged.before, scope),
        epsilon_after=after,
        remaining_epsilon=max(0.0, scope.epsilon - after),
        delta=scope.delta,
        accountant=ledger.accountant_of(scope).value,
        entry=charged.entry if is_kept else None,
        warnings=charged.warnings,
    )
