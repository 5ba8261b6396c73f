"""What a token may do, and who somebody is once a token was recognised."""

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

LOCAL_TENANT = "local"
"""Whose everything is while nobody is asked for a token."""


asking: ContextVar[str] = ContextVar("asking", default="")
"""The tenant whose request is being answered, as the door found out; empty where there is none."""


class Scope(StrEnum):
    """What a token may be given."""

    READ = "read"
    """See the tenant's studies, and every dataset with its budget."""
    SUBMIT = "submit"
    """Spend: submit studies, edit and cancel them."""
    APPROVE = "approve"
    """Let the private run of a study begin that waits for approval."""
    AUDIT = "audit"
    """See everything in every tenant, tokens, deliveries of webhooks and the audit too, and change nothing."""
    ADMIN = "admin"
    """Everything, in every tenant: datasets and their budgets, tokens, the audit."""


_IMPLIED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.SUBMIT: frozenset({Scope.SUBMIT, Scope.READ}),
    Scope.APPROVE: frozenset({Scope.APPROVE, Scope.READ}),
    Scope.AUDIT: frozenset({Scope.AUDIT, Scope.READ}),
    Scope.ADMIN: frozenset(Scope),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. ``scopes`` holds the implied ones too: make it by :meth:`of`."""

    id: str
    """Of the token; ``bootstrap`` for TAN_API_TOKEN, ``local`` where no token is asked for."""
    tenant: str
    scopes: frozenset[Scope]
    name: str
    """Of the token, for people: two tokens may have the same."""
    until: int | None = None
    """Seconds since 1970, when the dashboard's session by which it came in runs out."""

    @classmethod
    def of(
        cls, id_: str, tenant: str, scopes: Iterable[str], *, name: str | None = None
    ) -> "Principal":
        """The principal with these scopes and all that they imply; named by its id where it has no name."""
        implied = (_IMPLIED[Scope(scope)] for scope in scopes)
        return cls(id_, tenant, frozenset[Scope]().union(*implied), name or id_)

    def may(self, scope: Scope) -> bool:
        """Whether the scope was given, by name or by a wider one."""
        return scope in self.scopes

    @property
    def actor(self) -> str:
        """As the ledger names who asked."""
        return f"token:{self.id}"

    @property
    def widest(self) -> list[Scope]:
        """Its scopes without those that another one of them implies."""
        return [
            scope
            for scope in Scope
            if scope in self.scopes
            and not any(scope in _IMPLIED[other] for other in self.scopes - {scope})
        ]

    @property
    def sees(self) -> str | None:
        """The only tenant whose studies are visible; None: every tenant's."""
        return None if self.may(Scope.AUDIT) else self.tenant

    @property
    def reaches(self) -> str | None:
        """The only tenant whose studies it may change, or start from; None: every tenant's."""
        return None if self.may(Scope.ADMIN) else self.tenant


LOCAL = Principal.of("local", LOCAL_TENANT, [Scope.ADMIN])
"""Whoever asks on this machine, while there are no tokens."""
