"""What admission compares with what. Pure: one function says it to whoever reserves, and to whoever only plans."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from service.errors import InvalidInputError
from service.ledger import renyi
from service.ledger.errors import BudgetExceededError
from service.ledger.schemas import ALL_TENANTS, LOCAL_TENANT, AdmissionRule, Cap, Reservation, Scope
from tan_core.accounting import SearchAccounting, price
from tan_core.accounting.events import joined
from tan_core.mechanism import Accountant, Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be reserved, and what it takes the place of."""

    scope_id: str
    reservation_id: str
    study_id: str
    mechanism: Mechanism
    actor: str
    tenant: str = LOCAL_TENANT
    search_accounting: SearchAccounting | None = None
    baseline: bool | None = None
    instead_of: str | None = None
    together_with: tuple[Mechanism, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def event(self) -> str:
        """The mechanism as the journal has it."""
        return json.dumps(self.mechanism.to_json(), separators=(",", ":"))

    @property
    def asked(self) -> list[Mechanism]:
        """All that the budget must hold beside what it holds."""
        return [self.mechanism, *self.together_with]


@dataclass(frozen=True, slots=True)
class Limit:
    """What must hold a request: a scope's whole budget, or a cap in it."""

    scope: Scope
    cap: Cap | None = None

    @property
    def total(self) -> float:
        """Its epsilon, at the scope's delta."""
        return self.scope.epsilon if self.cap is None else self.cap.epsilon

    @property
    def name(self) -> str | None:
        """Of the cap; None of the budget."""
        return None if self.cap is None else named(self.cap.tenant, self.scope)

    def committed(
        self, request: Request, held: Sequence[Reservation]
    ) -> Iterator[Mechanism | None]:
        """What counts to it beside the request."""
        capped = None if self.cap is None else self.cap.tenant
        return committed(request, held, None if capped == ALL_TENANTS else capped)

    def composed(self, request: Request, held: Sequence[Reservation]) -> Iterator[Mechanism | None]:
        """The same with the request: what must fit."""
        yield from self.committed(request, held)
        yield from request.asked

    def holds(self, composed: float) -> bool:
        """Whether a composed epsilon fits. Not what is no number; and under a cap of 0 not what costs too little to be seen."""
        return composed <= self.total and self.total != 0

    def refusal(self, *, asked: float, committed: float, composed: float) -> BudgetExceededError:
        """What is told of a composed epsilon that it does not hold."""
        return BudgetExceededError(
            scope_id=self.scope.scope_id,
            asked=asked,
            committed=committed,
            composed=composed,
            total=self.total,
            delta=self.scope.delta,
            limit=self.name,
        )

    def is_beyond_wall(self, request: Request, held: Sequence[Reservation]) -> bool:
        """Whether the database refuses, by its own divergences, what the service would admit under ``pld``."""
        if self.scope.admission is not AdmissionRule.PLD:
            return False
        if not any(map(renyi.divergences, request.asked)):
            return False
        worth = bounded_epsilon(self.composed(request, held), self.scope)
        return not worth <= renyi.wall(self.total)


def limits(scope: Scope, caps: Sequence[Cap], tenant: str) -> list[Limit]:
    """All that must hold what a tenant asks, in the order in which they are asked."""
    return [
        Limit(scope),
        *(Limit(scope, cap) for cap in caps if cap.tenant in (ALL_TENANTS, tenant)),
    ]


def committed(
    request: Request, held: Sequence[Reservation], tenant: str | None
) -> Iterator[Mechanism | None]:
    """What counts beside the request: all of the scope, or of one tenant in it."""
    return (
        each.charged if each.reservation_id == request.instead_of else each.committed
        for each in held
        if tenant is None or each.tenant == tenant
    )


def check_dimensions(scope: Scope, mechanism: Mechanism, delta: float | None) -> None:
    """Refuse what a scope's budget says nothing of.

    Raises:
        InvalidInputError: the neighbouring relation is another one, or the delta is above the scope's.
    """
    if mechanism.neighboring_relation is not scope.neighboring_relation:
        raise InvalidInputError(
            f"the budget of {scope.scope_id} is stated for neighbours by "
            f"{scope.neighboring_relation}, the run for {mechanism.neighboring_relation}"
        )
    if delta is not None and not delta <= scope.delta:
        raise InvalidInputError.at(
            "privacy.delta", f"the budget of {scope.scope_id} ends at delta {scope.delta:g}", delta
        )


def epsilon(mechanisms: Iterable[Mechanism | None], scope: Scope, accountant: Accountant) -> float:
    """The composed epsilon by the scope's rule: seconds of work where many mechanisms differ."""
    merged = merge(mechanism for mechanism in mechanisms if mechanism is not None)
    if not merged:
        return 0.0
    if scope.filter_order is not None:
        return renyi.epsilon(merged, order=scope.filter_order, delta=scope.delta)
    return _priced(merged, scope.delta, accountant)


@lru_cache(maxsize=4096)
def _priced(merged: tuple[Mechanism, ...], delta: float, accountant: Accountant) -> float:
    """Clients that race for one budget, and pages that show it, ask for the same few figures."""
    return price(merged, delta=delta, accountant=accountant).epsilon


def bounded_epsilon(mechanisms: Iterable[Mechanism | None], scope: Scope) -> float:
    """As the database sums them up: by Rényi divergences, and without what has none."""
    bounded = merge(each for each in mechanisms if each and renyi.divergences(each))
    return renyi.epsilon(bounded, order=scope.filter_order, delta=scope.delta)


def beyond_wall(
    scope: Scope,
    cap: Cap | None,
    asked: Iterable[Mechanism | None],
    committed: Iterable[Mechanism | None],
) -> BudgetExceededError:
    """The database's refusal with the figures behind it, by its own divergences."""
    asked, committed = list(asked), list(committed)
    limit, total = Limit(scope, cap).name, Limit(scope, cap).total
    if scope.filter_order is None and total > 0:
        total = renyi.wall(total)
        limit = f"the Rényi wall around {limit or f'the budget of {scope.scope_id}'}"
    return BudgetExceededError(
        scope_id=scope.scope_id,
        asked=bounded_epsilon(asked, scope),
        committed=bounded_epsilon(committed, scope),
        composed=bounded_epsilon([*committed, *asked], scope),
        total=total,
        delta=scope.delta,
        limit=limit,
    )


def merge(mechanisms: Iterable[Mechanism]) -> tuple[Mechanism, ...]:
    """The same composition with equal mechanisms joined, in an order of its own."""
    return tuple(sorted(joined(mechanisms), key=lambda mechanism: mechanism.fingerprint))


def named(tenant: str, scope: Scope) -> str:
    """A cap, for whoever is refused by it."""
    whose = "all tenants" if tenant == ALL_TENANTS else f"tenant {tenant}"
    return f"the cap of {whose} in {scope.scope_id}"
