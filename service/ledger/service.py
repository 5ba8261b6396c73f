"""The ledger: reserve before anything runs, charge before a segment begins, never give back a begun step.

Admission by PLD composes every commitment of the scope with the new mechanism, outside any lock, and
then reserves only if the scope's head has not moved meanwhile; admission by a Rényi filter is decided in
the database alone. A tenant's cap is held the same way. Every method works in the caller's transaction;
what it refuses leaves that transaction usable.
"""

import asyncio
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from service import text
from service.db.tables import Dataset, Study
from service.errors import NotFoundError
from service.ledger import admission, journal, renyi, repository
from service.ledger.admission import Limit, Request, check_dimensions, limits, merge
from service.ledger.errors import (
    BudgetExceededError,
    HeadMovedError,
    LedgerArgumentError,
    LedgerImmutableError,
    ReservationClosedError,
    ReservationReusedError,
    StaleEpochError,
    UnknownReservationError,
    WorthExceededError,
)
from service.ledger.fit import Foreseen
from service.ledger.registered import registration_of
from service.ledger.schemas import (
    ALL_TENANTS,
    LOCAL_TENANT,
    Account,
    Admission,
    AdmissionRule,
    Cap,
    CapSet,
    CapUsed,
    ChainReport,
    Entry,
    Evaluation,
    Reservation,
    Scope,
    Totals,
)
from tan_core.accounting import Price, SearchAccounting
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation

__all__ = [
    "BudgetExceededError",
    "HeadMovedError",
    "Ledger",
    "LedgerArgumentError",
    "LedgerImmutableError",
    "ReservationClosedError",
    "ReservationReusedError",
    "StaleEpochError",
    "UnknownReservationError",
    "merge",
]

_OPTIMISTIC_TRIES = 3
_MAX_TEXT = 2000


class Ledger:
    """Budgets, reservations and charges.

    Args:
        accountant: who prices what admission compares with the budget.
    """

    def __init__(self, accountant: Accountant = Accountant.PLD) -> None:
        self._accountant = accountant

    # Budgets

    async def open_scope(
        self,
        session: AsyncSession,
        *,
        scope_id: str,
        unit: str,
        neighboring_relation: NeighboringRelation,
        epsilon: float,
        delta: float,
        actor: str,
        name: str | None = None,
        admission: AdmissionRule = AdmissionRule.PLD,
        registration: Mapping[str, Any] | None = None,
    ) -> int:
        """Open a scope with its whole budget; its first entry. Harmless to repeat unchanged.

        Args:
            session: the transaction.
            scope_id: of the new scope.
            unit: what one guarantee is for.
            neighboring_relation: which datasets are neighbours.
            epsilon: the whole budget, nats.
            delta: of the budget.
            actor: who asked.
            name: for people.
            admission: how commitments are held to the budget.
            registration: what it is opened for, as :func:`~service.ledger.registered.registration_of` tells
                it; it stands in the first entry.

        Raises:
            ReservationReusedError: it is open already, with another budget, unit, relation or rule, or for
                other data.
            LedgerArgumentError: an argument is outside its domain.
        """
        if not (math.isfinite(epsilon) and epsilon > 0 and 0 < delta < 1):
            raise LedgerArgumentError(
                f"a budget needs a finite epsilon > 0 and a delta in (0, 1), got {epsilon}, {delta}"
            )
        (seq,) = await repository.call(
            session, "ledger_open_scope", scope_id, name or scope_id, unit,
            NeighboringRelation(neighboring_relation).value, float(epsilon).hex(),
            float(delta).hex(), AdmissionRule(admission).value, actor,
            None if registration is None else json.dumps(registration, separators=(",", ":")),
        )  # fmt: skip
        return seq

    async def set_cap(
        self, session: AsyncSession, scope_id: str, *, tenant: str, epsilon: float, actor: str
    ) -> Cap:
        """Limit a tenant to a lower epsilon within the scope. What it has committed stays; 0 admits nothing more.

        Raises:
            LedgerArgumentError: epsilon is below 0, or above the scope's; or no such tenant can be.
        """
        total = (await repository.scope(session, scope_id)).epsilon
        if not 0 <= epsilon <= total:
            raise LedgerArgumentError.at(
                "epsilon", f"a cap is at least 0 and at most the whole budget, {total:g}", epsilon
            )
        epsilon = float(epsilon) + 0.0  # -0.0 is 0 too, and the database has no sign for it
        (seq,) = await repository.call(
            session, "ledger_set_cap", scope_id, tenant, epsilon.hex(), actor
        )
        return Cap(tenant=tenant, epsilon=epsilon, seq=seq)

    async def what_meets(self, session: AsyncSession, scope_id: str, cap: Cap) -> CapSet:
        """The cap with what its tenant has committed by now, and what whoever set it may overlook."""
        scope = await repository.scope(session, scope_id)
        held = await repository.reservations(session, scope_id)
        committed = await self._committed_to(cap, held, scope)
        warnings: list[str] = []
        if committed > cap.epsilon:
            warnings.append(
                f"epsilon {text.epsilon(committed)} is committed already, above the cap of {cap.epsilon:g}: it stays, "
                "and nothing more is admitted"
            )
        if scope.filter_order is not None:
            least = renyi.least(scope.filter_order, scope.delta)
            if 0 < cap.epsilon <= least:
                warnings.append(
                    f"nothing is admitted: the filter of this budget adds up at order {scope.filter_order:g}, where even what costs next to "
                    f"nothing is epsilon {text.epsilon(least)}; a cap has to be above that"
                )
        if cap.tenant not in (ALL_TENANTS, LOCAL_TENANT) and not await repository.is_known_tenant(
            session, cap.tenant
        ):
            warnings.append(
                f"no token and no study is of tenant {cap.tenant!r}: until there is one, the cap holds nobody"
            )
        return CapSet(**cap.model_dump(), committed_epsilon=committed, warnings=warnings)

    async def _committed_to(self, cap: Cap, held: Sequence[Reservation], scope: Scope) -> float:
        """Epsilon of all that counts to a cap."""
        counts = (each for each in held if cap.tenant in (ALL_TENANTS, each.tenant))
        return await self.epsilon((each.committed for each in counts), scope)

    async def scope(self, session: AsyncSession, scope_id: str) -> Scope:
        """A scope and its budget."""
        return await repository.scope(session, scope_id)

    async def spent(self, session: AsyncSession, scope_id: str) -> list[Mechanism]:
        """The scope's live commitments: what was charged and what is still held."""
        held = await repository.reservations(session, scope_id)
        return [committed for each in held if (committed := each.committed)]

    async def account(
        self,
        session: AsyncSession,
        scope_id: str,
        *,
        last_entries: int = 50,
        until: int | None = None,
    ) -> Account:
        """A scope's budget, where it went, and its newest entries, or those up to ``until``.

        In a :meth:`service.db.session.Database.snapshot` all of it is of one moment.
        """
        scope = await repository.scope(session, scope_id)
        head = await repository.head(session, scope_id)
        held = await repository.reservations(session, scope_id)
        committed = await self.epsilon((each.committed for each in held), scope)
        charged = await self.epsilon((each.charged for each in held), scope)
        beside = await repository.beside(session, scope_id)
        return Account(
            **beside.model_dump(),
            scope=scope,
            accountant=self.accountant_of(scope).value,
            committed_epsilon=committed,
            charged_epsilon=charged,
            remaining_epsilon=max(0.0, scope.epsilon - committed),
            head=head,
            caps=[
                CapUsed(
                    **cap.model_dump(), committed_epsilon=await self._committed_to(cap, held, scope)
                )
                for cap in await repository.caps(session, scope_id)
            ],
            reservations=held,
            entries=await repository.entries(session, scope_id, last=last_entries, until=until),
        )

    async def totals(self, session: AsyncSession, scope_id: str) -> Totals:
        """What the account comes to, without a look at every reservation: for those who ask often."""
        scope = await repository.scope(session, scope_id)
        head = await repository.head(session, scope_id)
        sums = await repository.commitments(session, scope_id)
        return Totals(
            head=head,
            accountant=self.accountant_of(scope).value,
            committed_epsilon=await self.epsilon(
                (part for each in sums for part in each.of(each.committed_steps)), scope
            ),
            charged_epsilon=await self.epsilon(
                (part for each in sums for part in each.of(each.charged_steps)), scope
            ),
        )

    # Admission

    async def admit_and_reserve(
        self,
        session: AsyncSession,
        *,
        scope_id: str,
        reservation_id: str,
        study_id: str,
        mechanism: Mechanism,
        actor: str,
        tenant: str = LOCAL_TENANT,
        delta: float | None = None,
        search_accounting: SearchAccounting | None = None,
        baseline: bool | None = None,
        together_with: Sequence[Mechanism] = (),
        after: Sequence[str] = (),
    ) -> Admission:
        """Reserve ``mechanism`` (the plan and its spare steps) if the budget holds it.

        The same ``reservation_id`` with the same request is answered again, reserved once. ``delta``
        is the study's; it may not be above the scope's. ``search_accounting`` is what the journal says of
        the study's search, and ``baseline`` whether the study also trains a model without privacy; None: nothing.
        ``together_with`` is what the caller reserves next in the same transaction: the budget must hold all of it.
        ``after`` names what it has reserved of the same study before, in this transaction: where the budget does not
        hold all of it, the refusal tells the figures of all of it.

        Raises:
            BudgetExceededError: the budget, or the tenant's cap in it, does not hold it.
            InvalidInputError: its delta or neighbouring relation is not the scope's, or the scope's
                rule of admission has no price for it.
            ReservationReusedError: ``reservation_id`` was used for another request.
        """
        return await self._admit(
            session,
            Request(
                scope_id=scope_id, reservation_id=reservation_id, study_id=study_id,
                mechanism=mechanism, actor=actor, tenant=tenant, search_accounting=search_accounting,
                baseline=baseline, together_with=tuple(together_with), after=tuple(after),
            ),
            delta,
        )  # fmt: skip

    async def foresee(
        self,
        session: AsyncSession,
        *,
        scope_id: str,
        mechanism: Mechanism,
        tenant: str,
        together_with: Sequence[Mechanism] = (),
    ) -> Foreseen:
        """What :meth:`admit_and_reserve` would compare now. Only read: who asks prices it, in time of its own.

        In a :meth:`service.db.session.Database.snapshot` all of it is of one moment.
        """
        scope = await repository.scope(session, scope_id)
        request = Request(
            scope_id=scope_id, reservation_id="", study_id="", mechanism=mechanism, actor="",
            tenant=tenant, together_with=tuple(together_with),
        )  # fmt: skip
        return Foreseen(
            request=request,
            head=await repository.head(session, scope_id),
            held=await repository.reservations(session, scope_id),
            limits=limits(scope, await repository.caps(session, scope_id), tenant),
            accountant=self.accountant_of(scope),
        )

    async def swap(
        self,
        session: AsyncSession,
        reservation_id: str,
        *,
        new_reservation_id: str,
        study_id: str,
        mechanism: Mechanism,
        actor: str,
    ) -> str:
        """Release a reservation and hold another mechanism in its place; the new identifier.

        Both or neither: where the new one does not fit, the old one stays. What the old one said of the
        search and of a baseline the new one says too.

        Raises:
            BudgetExceededError: it does not fit, even with what the old one frees.
        """
        old = await repository.reservation(session, reservation_id)
        if new_reservation_id == reservation_id:
            raise ReservationReusedError(
                f"reservation {reservation_id!r} cannot take its own place: use a new identifier"
            )
        admission = await self._admit(
            session,
            Request(
                scope_id=old.scope_id, reservation_id=new_reservation_id, study_id=study_id,
                mechanism=mechanism, actor=actor, tenant=old.tenant, instead_of=reservation_id,
                search_accounting=SearchAccounting(old.search_accounting) if old.search_accounting else None,
                baseline=old.baseline,
            ),
        )  # fmt: skip
        return admission.reservation_id

    async def _admit(
        self, session: AsyncSession, request: Request, delta: float | None = None
    ) -> Admission:
        scope = await repository.scope(session, request.scope_id)
        check_dimensions(scope, request.mechanism, delta)
        if scope.admission is AdmissionRule.RENYI_FILTER:
            return await self._place(session, scope, request)
        for _ in range(_OPTIMISTIC_TRIES):
            head = await repository.head(session, request.scope_id)
            try:
                return await self._try_to_admit(session, scope, request, head.seq)
            except HeadMovedError:
                continue
        # Too busy a scope for optimism: hold it while pricing.
        seq = await _hold(session, request.scope_id)
        return await self._try_to_admit(session, scope, request, seq)

    async def _try_to_admit(
        self, session: AsyncSession, scope: Scope, request: Request, seq: int
    ) -> Admission:
        """Price what is committed at entry ``seq``, then reserve if nothing came after it."""
        held = await repository.reservations(session, scope.scope_id)
        if not any(each.reservation_id == request.reservation_id for each in held):
            caps = await repository.caps(session, scope.scope_id)
            for limit in limits(scope, caps, request.tenant):
                await self._check_budget(request, held, limit)
        return await self._place(session, scope, request, seq)

    async def _place(
        self, session: AsyncSession, scope: Scope, request: Request, seq: int | None = None
    ) -> Admission:
        """Reserve, in the place of what is given up for it; at entry ``seq`` where that matters."""
        try:
            async with session.begin_nested():
                # Who came too late learns it before the database computes divergences for nothing.
                if seq is not None and await _hold(session, scope.scope_id) != seq:
                    raise HeadMovedError(f"scope {scope.scope_id} has moved past entry {seq}")
                if request.instead_of is not None:
                    reason = f"replaced by {request.reservation_id}"
                    await self.release(
                        session, request.instead_of, actor=request.actor, reason=reason
                    )
                    seq = (await repository.head(session, scope.scope_id)).seq
                return await _reserve(session, request, seq)
        except WorthExceededError as refusal:
            raise await _by_renyi(session, scope, request, refusal) from refusal

    async def _check_budget(
        self, request: Request, held: Sequence[Reservation], limit: Limit
    ) -> None:
        """Compose with all that is committed; under a cap, with what its tenant committed."""
        scope = limit.scope
        composed = await self.epsilon(limit.composed(request, held), scope)
        if not limit.holds(composed):
            raise limit.refusal(
                asked=await self.epsilon(request.asked, scope),
                committed=await self.epsilon(limit.committed(request, held), scope),
                composed=composed,
            )

    async def epsilon(self, mechanisms: Iterable[Mechanism | None], scope: Scope) -> float:
        """The composed epsilon by the scope's rule, in a thread: it is work for a processor.

        So is reading thousands of mechanisms: let an iterator do it, and it is done there.
        """
        return await asyncio.to_thread(admission.epsilon, mechanisms, scope, self._accountant)

    def accountant_of(self, scope: Scope) -> Accountant:
        """Who prices what a scope admits."""
        return Accountant.RDP if scope.filter_order is not None else self._accountant

    # Charges

    async def acquire(self, session: AsyncSession, reservation_id: str, *, epoch: int) -> None:
        """Hand the reservation to the worker of ``epoch``; every earlier epoch is refused from now on.

        Raises:
            StaleEpochError: ``epoch`` is not above the present one.
            ReservationClosedError: it was released.
        """
        await repository.call(session, "ledger_acquire", reservation_id, epoch)

    async def begin_segment(
        self,
        session: AsyncSession,
        reservation_id: str,
        *,
        epoch: int,
        start_step: int,
        num_steps: int,
        request_id: str,
    ) -> tuple[int, int]:
        """Charge the next steps: the segment's number, and how many steps may run.

        Commit before the first of them runs. Fewer steps than asked are granted when fewer are
        left, (0, 0) when none is. The same ``request_id`` is answered again, charged once.

        Raises:
            StaleEpochError: a successor holds the reservation.
            ReservationClosedError: it was released.
            ReservationReusedError: ``request_id`` was used for other steps.
        """
        answer = await repository.call(
            session,
            "ledger_begin_segment",
            reservation_id,
            epoch,
            start_step,
            num_steps,
            request_id,
        )
        return answer.segment, answer.granted

    async def end_segment(
        self,
        session: AsyncSession,
        reservation_id: str,
        *,
        epoch: int,
        segment: int,
        checkpoint_step: int,
        checkpoint_sha256: str,
    ) -> None:
        """Note the checkpoint that a segment ended with. Harmless to repeat.

        Raises:
            StaleEpochError: a successor holds the reservation.
            UnknownReservationError: this epoch began no such segment, or ended it elsewhere.
            LedgerArgumentError: the step is outside the segment.
        """
        await repository.call(
            session, "ledger_end_segment", reservation_id, epoch, segment, checkpoint_step,
            checkpoint_sha256,
        )  # fmt: skip

    async def release(
        self, session: AsyncSession, reservation_id: str, *, actor: str, reason: str
    ) -> int:
        """Give back the steps that never began, and close the reservation; how many they were."""
        (released,) = await repository.call(
            session, "ledger_release", reservation_id, actor, _clean(reason)
        )
        return released

    # Evidence

    async def attest(
        self, session: AsyncSession, reservation_id: str, *, note: dict[str, object], actor: str
    ) -> int:
        """Bind a fact, such as the hash of released weights, to the chain; its entry."""
        (seq,) = await repository.call(
            session, "ledger_attest", reservation_id, json.dumps(note, separators=(",", ":")), actor
        )
        return seq

    async def attest_scope(
        self, session: AsyncSession, scope_id: str, *, note: dict[str, object], actor: str
    ) -> int:
        """Bind a fact about the whole scope to its chain; its entry."""
        (seq,) = await repository.call(
            session, "ledger_attest_scope", scope_id, json.dumps(note, separators=(",", ":")), actor
        )
        return seq

    async def record_evaluation(
        self,
        session: AsyncSession,
        scope_id: str,
        seq: int,
        priced: Price,
        *,
        reservation_id: str | None = None,
    ) -> None:
        """Keep what an accountant computed up to entry ``seq``: of one reservation, or of all."""
        await repository.call(
            session, "ledger_record_evaluation", scope_id, seq, reservation_id,
            priced.accountant.value,
            f"{priced.library} {priced.library_version}", priced.epsilon.hex(), priced.delta.hex(),
        )  # fmt: skip

    async def evaluations(self, session: AsyncSession, scope_id: str) -> Sequence[Evaluation]:
        """What was computed for the scope's entries, in order."""
        return await repository.evaluations(session, scope_id)

    async def reservation(self, session: AsyncSession, reservation_id: str) -> Reservation:
        """One reservation as it stands."""
        return await repository.reservation(session, reservation_id)

    async def last_entry_of(self, session: AsyncSession, reservation_id: str) -> Entry:
        """The newest entry about a reservation: its hash covers everything before it."""
        return await repository.last_entry_of(session, reservation_id)

    async def verify_chain(self, session: AsyncSession, scope_id: str) -> ChainReport:
        """Whether the journal chains and the state is its fold; else the first bad entry."""
        # Of public data nobody opens a budget: a row that says so now is none of what this one protects.
        query = select(Dataset).where(Dataset.scope_id == scope_id, ~Dataset.public)
        registrations = [registration_of(each) for each in await session.scalars(query)]
        async with session.begin_nested() as moment:
            await _hold(session, scope_id)  # a picture of one moment
            picture = (
                await repository.scope(session, scope_id),
                await repository.head(session, scope_id),
                await repository.entries(session, scope_id),
                await repository.reservations(session, scope_id),
                await repository.caps(session, scope_id),
                await repository.segments(session, scope_id),
            )
            await moment.rollback()  # lets go of the scope: looking closely takes seconds
        return await asyncio.to_thread(journal.verify, *picture, registrations=registrations)


async def scope_id_of(session: AsyncSession, dataset: str) -> str:
    """The scope that a dataset's budget hangs on.

    Raises:
        NotFoundError: no such dataset, or a public one.
    """
    found = None if "\x00" in dataset else await session.get(Dataset, dataset)
    if found is None:
        known = text.known_names(dataset, await repository.datasets(session))
        raise NotFoundError(f"there is no dataset {dataset!r}; with a budget: {known}")
    if found.scope_id is None:
        raise NotFoundError(f"dataset {dataset!r} is public: it has no budget and no ledger")
    return found.scope_id


async def missing_reservation(session: AsyncSession, study: Study) -> str | None:
    """What is wrong with a study without a reservation; None where its data are public, as the dataset's own row says."""
    scope_id = (await session.get_one(Dataset, study.dataset)).scope_id
    if scope_id is None:
        return None
    return (
        f"study {study.id!r} trains on {study.dataset!r}, whose budget is that of {scope_id!r}, and nothing is "
        "reserved of it"
    )


async def _by_renyi(
    session: AsyncSession, scope: Scope, request: Request, refusal: WorthExceededError
) -> BudgetExceededError:
    """The database's refusal with the figures behind it, by its own divergences.

    What is asked is all that the caller asks together: what it reserved of that before, in this transaction, is
    taken back with it, and is no commitment.
    """
    whose = request.tenant if refusal.is_of_tenant else None
    whose = ALL_TENANTS if refusal.is_of_all_tenants else whose
    capped = [cap for cap in await repository.caps(session, scope.scope_id) if cap.tenant == whose]
    held = await repository.reservations(session, scope.scope_id)
    before = [each for each in held if each.reservation_id in request.after]
    others = [each for each in held if each.reservation_id not in request.after]
    committed = list(
        admission.committed(request, others, request.tenant if refusal.is_of_tenant else None)
    )
    asked = [*(each.committed for each in before), *request.asked]
    return admission.beyond_wall(scope, capped[0] if capped else None, asked, committed)


async def _hold(session: AsyncSession, scope_id: str) -> int:
    (seq,) = await repository.call(session, "ledger_hold_scope", scope_id)
    return seq


async def _reserve(session: AsyncSession, request: Request, expected_seq: int | None) -> Admission:
    (seq,) = await repository.call(
        session, "ledger_reserve", request.scope_id, expected_seq, request.reservation_id,
        request.study_id, request.tenant, request.event, request.mechanism.steps, request.actor,
        None if request.search_accounting is None else SearchAccounting(request.search_accounting).value,
        request.baseline,
    )  # fmt: skip
    entry = await repository.entry(session, request.scope_id, seq)
    return Admission(
        scope_id=request.scope_id, reservation_id=request.reservation_id, seq=seq, hash=entry.hash
    )


def _clean(reason: str) -> str:
    """A reason as the journal takes it: PostgreSQL's text holds no NUL."""
    return reason.replace("\x00", "�")[:_MAX_TEXT]
