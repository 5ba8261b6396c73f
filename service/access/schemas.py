"""Tokens and audit events as the API shows them."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from service.auth.scopes import Scope
from service.moments import Moment

MAX_LIFETIME_SECONDS = 10 * 366 * 86_400
NAME = r"^[A-Za-z0-9][A-Za-z0-9._@ -]*$"
TENANT = r"^[a-z0-9][a-z0-9-]*$"


class TokenRequest(BaseModel):
    """A token to be made."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "name": "alice",
                    "scopes": ["submit"],
                    "tenant": "vision",
                    "expires_in_seconds": 7_776_000,
                }
            ]
        },
    )

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=NAME)]
    """Whose or what for; it need not be unique."""
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))]
    """``admin`` implies all; ``submit``, ``approve`` and ``audit`` imply ``read``."""
    tenant: Annotated[str, Field(min_length=1, max_length=63, pattern=TENANT)] | None = None
    """Whose studies it sees and makes. Unset: the tenant of who asks."""
    expires_in_seconds: Annotated[int, Field(ge=60, le=MAX_LIFETIME_SECONDS)] | None = None
    """Unset: never."""


class TokenView(BaseModel):
    """A token without its secret."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    name: str
    tenant: str
    scopes: list[Scope]
    created_by: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    """To the minute."""


class NewToken(TokenView):
    """A token that was just made."""

    token: str
    """``tan_<id>_<secret>``: it is shown this once."""


class TokenList(BaseModel):
    """Every token, the newest first."""

    items: list[TokenView]


Words = Annotated[
    str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")
]


class AuditListing(BaseModel):
    """Which audit events."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Words | None = Field(
        default=None,
        description="What was to be changed, by its id or name: a study, a dataset, a token. What is below "
        "it counts, such as the trial that was approved",
    )
    action: Words | None = Field(
        default=None,
        description="A part of the method and the route, in any case of letters: `promote`, `DELETE /tokens`",
    )
    actor: Words | None = Field(default=None, description="A token, by its id or its name")
    since: Moment | None = Field(default=None, description="With its UTC offset")


class AuditQuery(AuditListing):
    """One page of audit events."""

    limit: int = Field(default=100, ge=1, le=1000)
    cursor: str | None = Field(
        default=None, max_length=100, description="next_cursor of the page before this one"
    )


class AuditEventView(BaseModel):
    """A change that somebody asked for, or a model or ledger that somebody had; granted or refused."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    at: datetime
    token_id: str | None
    """``bootstrap``: TAN_API_TOKEN; ``local``: nobody was asked for a token; None: nobody known."""
    token_name: str | None = None
    """None where the token is none of ``GET /tokens``."""
    tenant: str | None
    address: str | None
    method: str
    route: str
    target: str | None
    """What was to be changed; of an approval ``STUDY/trials/NUMBER``, of a change to many ``STUDY/ACTION``."""
    status: int
    request_id: str


class AuditPage(BaseModel):
    """Audit events, the newest first."""

    items: list[AuditEventView]
    next_cursor: str | None = None
