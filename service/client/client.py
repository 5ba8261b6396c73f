"""The whole client: every operation of the API but those of workers."""

from collections.abc import Iterator

from service.access.schemas import (
    AuditEventView,
    AuditPage,
    AuditQuery,
    NewToken,
    TokenList,
    TokenRequest,
)
from service.client.connection import Body, part
from service.client.datasets import Datasets
from service.client.models import Models
from service.client.pages import every
from service.client.studies import fields
from service.client.waiting import Waiting
from service.health.schemas import Health, Readiness
from service.webhooks.schemas import DeliveryList

MAX_AUDIT_PAGE = 1000


class Client(Waiting, Models, Datasets):
    """One method per operation, named as in ``/openapi.json``; and what goes through pages, or stays with a study.

    Every method raises:
        ProblemError: the service refused; its ``problem`` names the fields at fault.
        UnreachableError: nothing answered, or not in time.
    """

    def healthz(self) -> Health:
        """Whether the process answers."""
        return self._ask(Health, "GET", "/healthz")

    def readyz(self) -> Readiness:
        """Whether it can serve, and what keeps it from serving all."""
        return self._ask(Readiness, "GET", "/readyz")

    def get_metrics(self) -> str:
        """How things stand, in the Prometheus text format."""
        return self._send("GET", "/metrics", headers={"Accept": "text/plain"}).text

    def list_tokens(self) -> TokenList:
        """Every token, without its secret."""
        return self._ask(TokenList, "GET", "/tokens")

    def create_token(self, token: TokenRequest | Body) -> NewToken:
        """A new token; its secret is told this once."""
        return self._ask(NewToken, "POST", "/tokens", body=token)

    def revoke_token(self, token_id: str) -> None:
        """Let a token open nothing any more."""
        self._done("DELETE", f"/tokens/{part(token_id)}")

    def read_audit(self, query: AuditQuery | Body | None = None) -> AuditPage:
        """Who did what, the newest first."""
        return self._ask(AuditPage, "GET", "/audit", query=fields(query))

    def every_change(
        self, query: AuditQuery | Body | None = None, *, limit: int
    ) -> Iterator[AuditEventView]:
        """The audit events of every page; no more than ``limit``."""
        return every(self.read_audit, fields(query), limit=limit, most=MAX_AUDIT_PAGE)

    def list_deliveries(
        self, *, state: str | None = None, limit: int | None = None
    ) -> DeliveryList:
        """Messages to the operator's addresses, the newest first."""
        query = {"state": state, "limit": limit}
        return self._ask(DeliveryList, "GET", "/webhooks/deliveries", query=query)
