"""Idempotency-Key: a request that is sent again under its key is answered again, and done once."""

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, Self

from fastapi import Header, Response
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from service.auth.scopes import Principal
from service.db.tables import IdempotencyKey
from service.errors import InvalidInputError

KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[ -~]+$",
        description="Any text of the caller's own, a UUID say. Sent again with the same request it "
        "gives the same answer, and nothing is done twice; with another request it is refused. "
        "It is known for 90 days, or as long as the server's TAN_IDEMPOTENCY_RETENTION_DAYS says",
    ),
]
REPLAYED = "Idempotent-Replayed"
"""The header of an answer that was given before."""


@dataclass(frozen=True)
class Keyed:
    """One request under its key.

    ``sha256`` is of the request as it was sent: the operation, what it is about, and the parsed
    body, however that was written down. Defaults are not in it, so that a later version that adds
    some knows the request again. Keys of two tenants never meet.
    """

    tenant: str
    key: str
    operation: str
    sha256: str

    @classmethod
    def of(
        cls, key: str | None, by: Principal, operation: str, body: Any, *, subject: str = ""
    ) -> Self | None:
        """The request, or None where it came without a key."""
        if key is None:
            return None
        text_ = json.dumps([operation, subject, _normalised(body)], sort_keys=True)
        digest = hashlib.sha256(text_.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(tenant=by.tenant, key=key, operation=operation, sha256=digest)

    @property
    def stored(self) -> str:
        """The key as it is kept."""
        return f"{self.tenant}:{self.key}"


async def known(session: AsyncSession, request: Keyed) -> IdempotencyKey | None:
    """What this very request did before, if anything.

    Raises:
        InvalidInputError: the key was used for another request.
    """
    row = await session.get(IdempotencyKey, request.stored)
    if row is not None and (row.operation, row.request_sha256) != (
        request.operation,
        request.sha256,
    ):
        of = f"study {row.study_id!r}" if row.study_id else f"dataset {row.dataset!r}"
        raise InvalidInputError.at(
            "Idempotency-Key",
            f"was used for another request ({row.operation}, {of}); use a fresh key for a new one",
            request.key,
        )
    return row


async def claim(session: AsyncSession, request: Keyed) -> IdempotencyKey | None:
    """:func:`known`, after waiting for whoever uses the key now; it is held until the transaction ends."""
    await session.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 7201))"), {"key": request.stored}
    )
    return await known(session, request)


def remember(
    session: AsyncSession,
    request: Keyed,
    *,
    study_id: str | None = None,
    dataset: str | None = None,
) -> IdempotencyKey:
    """Keep what the request made or changed, in the transaction that does it."""
    row = IdempotencyKey(
        key=request.stored,
        operation=request.operation,
        request_sha256=request.sha256,
        study_id=study_id,
        dataset=dataset,
    )
    session.add(row)
    return row


def say_replayed(response: Response, *, is_new: bool) -> None:
    """Mark an answer that was given before."""
    if not is_new:
        response.headers[REPLAYED] = "true"


def _normalised(value: Any) -> Any:
    """Equal for values that JSON and YAML writers take for the same: 3 and 3.0."""
    if isinstance(value, dict):
        return {key: _normalised(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_normalised(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
