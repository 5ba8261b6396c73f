"""The whole client: every operation of the API but those of workers."""

from service.access.schemas import AuditPage, NewToken, TokenList, TokenRequest
from service.client.connection import part
from service.client.datasets import Datasets
from service.client.studies import Studies
from service.health import Health
from service.webhooks.schemas import DeliveryList


class Client(Studies, Datasets):
    """One method per operation, named as in ``/openapi.json``.

    Every method raises:
        ProblemError: the service refused; its ``problem`` names the fields at fault.
        UnreachableError: nothing answered, or not in time.
    """

    def healthz(self) -> Health:
        """Whether the process answers."""
        return self._ask(Health, "GET", "/healthz")

    def readyz(self) -> Health:
        """Whether it can serve."""
        return self._ask(Health, "GET", "/readyz")

    def get_metrics(self) -> str:
        """How things stand, in the Prometheus text format."""
        return self._send("GET", "/metrics", headers={"Accept": "text/plain"}).text

    def list_tokens(self) -> TokenList:
        """Every token, without its secret."""
        return self._ask(TokenList, "GET", "/tokens")

    def create_token(self, token: TokenRequest) -> NewToken:
        """A new token; its secret is told this once."""
        return self._ask(NewToken, "POST", "/tokens", body=token)

    def revoke_token(self, token_id: str) -> None:
        """Let a token open nothing any more."""
        self._send("DELETE", f"/tokens/{part(token_id)}")

    def read_audit(self, *, limit: int | None = None, cursor: str | None = None) -> AuditPage:
        """Who did what, the newest first."""
        return self._ask(AuditPage, "GET", "/audit", query={"limit": limit, "cursor": cursor})

    def list_deliveries(
        self, *, state: str | None = None, limit: int | None = None
    ) -> DeliveryList:
        """Messages to the operator's addresses, the newest first."""
        query = {"state": state, "limit": limit}
        return self._ask(DeliveryList, "GET", "/webhooks/deliveries", query=query)
