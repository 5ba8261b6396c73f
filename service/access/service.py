"""Making and ending tokens, and reading the audit."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from service.access.schemas import (
    AuditEventView,
    AuditPage,
    AuditQuery,
    NewToken,
    TokenRequest,
    TokenView,
)
from service.auth import repository
from service.auth.scopes import LOCAL_TENANT, Principal, Scope
from service.auth.tokens import Token
from service.db.clock import clock
from service.db.session import Database
from service.db.tables import ApiToken
from service.errors import ConflictError, InvalidInputError, NotFoundError

FIRST_TOKEN_NAME = "first-admin"  # noqa: S105 - its name


async def create(
    session: AsyncSession, request: TokenRequest, *, by: Principal | None, has_bootstrap: bool
) -> NewToken:
    """A new token, whose secret is told here and nowhere else.

    Args:
        session: open.
        request: what it may do, and for how long.
        by: who asks; None: the service itself.
        has_bootstrap: whether TAN_API_TOKEN lets an admin in.

    Raises:
        InvalidInputError: it would be the first one, and nobody would be admin any more.
    """
    await repository.lock(session)
    now = await clock(session)
    if (
        Scope.ADMIN not in request.scopes
        and not has_bootstrap
        and not _admins(await repository.every(session), now)
    ):
        raise InvalidInputError.at(
            "scopes",
            "must hold admin: from the first token on everybody is asked for one, and none of an "
            "admin is there",
            [scope.value for scope in request.scopes],
        )
    lifetime = request.expires_in_seconds
    token = Token.new()
    row = ApiToken(
        id=token.id,
        name=request.name,
        tenant=request.tenant or (by.tenant if by else LOCAL_TENANT),
        scopes=[scope.value for scope in Scope if scope in request.scopes],
        secret_sha256=token.digest,
        created_by=by.id if by else None,
        expires_at=now + timedelta(seconds=lifetime) if lifetime else None,
    )
    await repository.insert(session, row)
    return NewToken(**TokenView.model_validate(row).model_dump(), token=str(token))


async def revoke(session: AsyncSession, token_id: str, *, has_bootstrap: bool) -> None:
    """End a token for good. Doing so twice is harmless.

    Raises:
        NotFoundError: there is no such token.
        ConflictError: it is the last one of an admin, and others are in use.
    """
    await repository.lock(session)
    token = await repository.find(session, token_id)
    if token is None:
        raise NotFoundError(f"there is no token {token_id!r}")
    others = [row for row in await repository.every(session) if row.id != token_id]
    in_use = [row for row in others if row.revoked_at is None]
    if in_use and not has_bootstrap and not _admins(others, await clock(session)):
        raise ConflictError(
            f"token {token_id!r} is the last one with the scope 'admin', and others are in use: make "
            "another admin token first"
        )
    await repository.revoke(session, token)


async def make_first(database: Database, *, stated: str | None = None) -> str | None:
    """The text of a new admin token, if nobody could come in as an admin; else None.

    Args:
        database: where tokens are kept.
        stated: TAN_API_TOKEN of the server. It lets an admin in, unless it is one of the database's
            tokens itself.
    """
    async with database.session() as session:
        token = Token.parse(stated) if stated else None
        if stated and not (token and await repository.is_stored(session, token)):
            return None
        if _admins(await repository.every(session), await clock(session)):
            return None
        request = TokenRequest(name=FIRST_TOKEN_NAME, scopes=[Scope.ADMIN])
        return (await create(session, request, by=None, has_bootstrap=False)).token


async def audit_page(session: AsyncSession, query: AuditQuery) -> AuditPage:
    """One page of the audit, newest first.

    Raises:
        InvalidInputError: the cursor is none.
    """
    which = repository.AuditFilter(query.target, query.action, query.actor, query.since)
    before = _number(query.cursor)
    found = await repository.audit_page(session, which, before=before, limit=query.limit + 1)
    items = [
        AuditEventView.model_validate(event).model_copy(update={"token_name": name})
        for event, name in found[: query.limit]
    ]
    return AuditPage(
        items=items, next_cursor=str(items[-1].id) if len(found) > query.limit else None
    )


def _number(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
        raise InvalidInputError.at(
            "cursor", "not a cursor of this list: pass next_cursor of a page", cursor[:200]
        )
    return int(cursor)


def _admins(tokens: Sequence[ApiToken], now: datetime) -> list[ApiToken]:
    """The tokens that let an admin in now."""
    return [
        token
        for token in tokens
        if Scope.ADMIN in token.scopes
        and token.revoked_at is None
        and (token.expires_at is None or token.expires_at > now)
    ]
