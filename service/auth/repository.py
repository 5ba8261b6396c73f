"""Queries over API tokens and the audit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Text, exists, func, or_, select, text, tuple_, update
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
        token.revoked_at = await clock(session)
        await session.flush()


async def touch(session: AsyncSession, token_id: str) -> None:
    """Note that the token was used in this minute."""
    minute = func.date_trunc("minute", func.now())
    await session.execute(
        update(ApiToken)
        .where(ApiToken.id == token_id, ApiToken.last_used_at.is_distinct_from(minute))
        .values(last_used_at=minute)
    )


async def append(session: AsyncSession, events: Sequence[AuditEvent]) -> None:
    """Write down what was asked for."""
    session.add_all(events)
    await session.flush()


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which events; None: whatever it is."""

    target: str | None = None
    """What was to be changed, and what is below it."""
    action: str | None = None
    """A part of the method and the route, in any case of letters."""
    actor: str | None = None
    """A token's id, or the name of some."""
    since: datetime | None = None


async def audit_page(
    session: AsyncSession, which: AuditFilter, *, before: int | None, limit: int
) -> list[tuple[AuditEvent, str | None]]:
    """Up to ``limit`` events older than ``before``, newest first, each with the name of its token."""
    query = (
        select(AuditEvent, ApiToken.name)
        .outerjoin(ApiToken, ApiToken.id == AuditEvent.token_id)
        .order_by(AuditEvent.id.desc())
        .limit(limit)
    )
    if which.target is not None:
        below = AuditEvent.target.startswith(f"{which.target}/", autoescape=True)
        query = query.where(or_(AuditEvent.target == which.target, below))
    if which.action is not None:
        actions = await _actions(session, which.action)
        query = query.where(tuple_(AuditEvent.method, AuditEvent.route).in_(actions))
    if which.actor is not None:
        named = await session.scalars(select(ApiToken.id).where(ApiToken.name == which.actor))
        query = query.where(AuditEvent.token_id.in_([which.actor, *named]))
    if which.since is not None:
        query = query.where(AuditEvent.at >= which.since)
    if before is not None:
        query = query.where(AuditEvent.id < before)
    return [(event, name) for event, name in await session.execute(query)]


_ACTIONS = text("""
    WITH RECURSIVE known (method, route) AS (
        (SELECT method, route FROM audit_event ORDER BY method, route LIMIT 1)
        UNION ALL
        SELECT following.* FROM known, LATERAL (
            SELECT method, route FROM audit_event
             WHERE (audit_event.method, audit_event.route) > (known.method, known.route)
             ORDER BY method, route LIMIT 1
        ) AS following
    )
    SELECT method, route FROM known
""").columns(method=Text, route=Text)
"""Every one there is: as many looks into the index as there are, dozens, however long the audit is."""


async def _actions(session: AsyncSession, part: str) -> list[tuple[str, str]]:
    """Methods and routes of the audit that hold these words, in any case of letters."""
    known = _ACTIONS.subquery()
    asked = known.c.method + " " + known.c.route
    found = await session.execute(select(known).where(asked.icontains(part, autoescape=True)))
    return [(method, route) for method, route in found]
