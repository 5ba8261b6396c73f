"""What the ledger refuses.

ServiceError
├── NotFoundError
│   └── UnknownReservationError    no such scope, reservation or segment
├── InvalidInputError
│   └── LedgerArgumentError        an argument is outside its domain
├── ConflictError
│   ├── BudgetExceededError        the budget does not hold what was asked
│   ├── WorthExceededError         the same, as the database says it: by Rényi divergences
│   ├── HeadMovedError             someone else wrote since the head was read
│   ├── ReservationReusedError     the identifier was used before, for another request
│   └── ReservationClosedError     nothing more can be charged to it
├── StaleFenceError
│   └── StaleEpochError            a successor holds the reservation
└── LedgerImmutableError           something tried to edit the journal
"""

from service import text
from service.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    ServiceError,
    StaleFenceError,
)


class BudgetExceededError(ConflictError):
    """The scope's budget does not hold the commitments together with what was asked.

    Args:
        scope_id: whose budget.
        asked: epsilon of the new mechanism alone.
        committed: epsilon of everything committed so far.
        composed: epsilon of both together: what would have to fit.
        total: epsilon of the budget.
        delta: the scope's delta, at which all of these hold.
        limit: which one, where it is not the scope's budget: the cap of a tenant.
    """

    type = "/problems/over-budget"

    def __init__(
        self,
        *,
        scope_id: str,
        asked: float,
        committed: float,
        composed: float,
        total: float,
        delta: float,
        limit: str | None = None,
    ) -> None:
        self.scope_id, self.delta = scope_id, delta
        self.limit = limit or f"the budget of {scope_id}"
        self.asked, self.committed, self.composed, self.total = asked, committed, composed, total
        super().__init__(
            f"over {self.limit}: together with what is committed ({text.epsilon(committed)}) the epsilon of "
            f"{text.epsilon(asked)} that was asked would be {text.epsilon(composed)} of {total:.4g} at delta "
            f"{delta:.3g}; epsilons compose to less than their sum, so what fits is not their difference"
        )

    def add(self, advice: str) -> None:
        """Tell what to do instead as well."""
        self.detail = f"{self.detail}. {advice}"
        self.args = (self.detail,)

    @property
    def is_of_cap(self) -> bool:
        """Whether it is a cap that does not hold it, which may be raised."""
        return "the cap of " in self.limit

    @property
    def remaining(self) -> float:
        """Epsilon of the budget above what is committed."""
        return max(0.0, self.total - self.committed)


class WorthExceededError(ConflictError):
    """By the database's own Rényi divergences, a budget or a cap does not hold it."""

    @property
    def is_of_tenant(self) -> bool:
        """Whether it is the tenant's cap that does not."""
        return self.detail.startswith("the cap of tenant ")

    @property
    def is_of_all_tenants(self) -> bool:
        """Whether it is the cap of all tenants together that does not."""
        return self.detail.startswith("the cap of all tenants ")


class HeadMovedError(ConflictError):
    """Someone else wrote to the scope since its head was read: price again."""


class UnknownReservationError(NotFoundError):
    """No such scope, reservation or segment."""


class ReservationReusedError(ConflictError):
    """The identifier was used before, for another request."""


class ReservationClosedError(ConflictError):
    """The reservation is closed: nothing more can be charged to it."""


class StaleEpochError(StaleFenceError):
    """A successor holds the reservation: the caller must stop."""


class LedgerArgumentError(InvalidInputError):
    """An argument is outside its domain."""


class LedgerImmutableError(ServiceError):
    """Something tried to edit the journal."""


BY_SQLSTATE: dict[str, type[ServiceError]] = {
    "TN001": HeadMovedError,
    "TN002": StaleEpochError,
    "TN003": UnknownReservationError,
    "TN004": ReservationReusedError,
    "TN005": ReservationClosedError,
    "TN006": LedgerArgumentError,
    "TN007": LedgerImmutableError,
    "TN008": UnknownReservationError,
    "TN009": WorthExceededError,
}
