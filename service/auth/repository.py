"""Queries over API tokens and the audit."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from service.auth.tokens import Token, is_same
from service.db.clock import clock
from service.db.tables import ApiToken, AuditEvent

_TOKENS_LOCK = 0x7A4E_0002


async def find(session: AsyncSession, token_id: str) -> ApiToken | None:
    """The token with this id, whatever has become of it."""
    if "\x00" in token_id:  # PostgreSQL has no such text, so no such token
        return None
    return await session.get(ApiToken, token_id)


async def find_good(session: AsyncSession, token_id: str) -> ApiToken | None:
    """The token with this id, unless it was revoked or has expired.

    By the database's clock: those of hosts differ, and may be put back.
    """
    token = await find(session, token_id)
    if token is None or token.revoked_at is not None:
        return None
    is_over = token.expires_at is not None and token.expires_at <= await clock(session)
    return None if is_over else token


async def is_stored(session: AsyncSession, token: Token) -> bool:
    """Whether this very token was made here, whatever has become of it."""
    row = await find(session, token.id)
    return row is not None and is_same(token.digest, row.secret_sha256)


async def lock(session: AsyncSession) -> None:
    """Let nobody else make or end tokens before this transaction ends."""
    await session.execute(select(func.pg_advisory_xact_lock(_TOKENS_LOCK)))


async def every(session: AsyncSession) -> Sequence[ApiToken]:
    """All tokens, the newest first."""
    query = select(ApiToken).order_by(ApiToken.created_at.desc(), ApiToken.id)
    return (await session.scalars(query)).all()


async def insert(session: AsyncSession, token: ApiToken) -> None:
    """Store a new token, with what the database fills in."""
    session.add(token)
    await session.flush()
    await session.refresh(token)


async def any_unrevoked(session: AsyncSession) -> bool:
    """Whether tokens are in use. One that has expired counts: time alone opens no door."""
    query = select(exists().where(ApiToken.revoked_at.is_(None)))
    return bool(await session.scalar(query))


async def revoke(session: AsyncSession, token: ApiToken) -> None:
    """End the token now. One that was revoked before keeps its time."""
    if token.revoked_at is None:
        token.revoked_at = await now(session)
        await session.flush()


async def touch(session: AsyncSession, token_id: str) -> None:
    """Note that the token was used in this minute."""
    minute = func.date_trunc("minute", func.now())
    await session.execute(
        update(ApiToken)
        .where(ApiToken.id == token_id, ApiToken.last_used_at.is_distinct_from(minute))
        .values(last_used_at=minute)
    )


async def now(session: AsyncSession) -> datetime:
    """The time, by the clock that stamps the rows."""
    return (await session.execute(select(func.now()))).scalar_one()


async def append(session: AsyncSession, event: AuditEvent) -> None:
    """Write down what was asked for."""
    session.add(event)
    await session.flush()


async def audit_page(
    session: AsyncSession, *, before: int | None, limit: int
) -> Sequence[AuditEvent]:
    """Up to ``limit`` events older than ``before``, newest first."""
    query = select(AuditEvent).order_by(AuditEvent.id.desc()).limit(limit)
    if before is not None:
        query = query.where(AuditEvent.id < before)
    return (await session.scalars(query)).all()
