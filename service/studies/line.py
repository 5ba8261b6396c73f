"""The line of studies that wait for a slot: the higher priority first, then the older."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, func, not_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study

RUNNING_STATES = ("simulating", "training")
WAITING = "waiting for a free slot"
TROUBLED = "trying again"
"""How the reason begins of a study whose last look failed. It keeps its place, and holds up none behind it."""
_SLOTS_LOCK = 0x7A4E_0001
_ORDER = (Study.priority.desc(), Study.created_at, Study.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many studies may run at a time."""

    studies: int
    studies_per_tenant: int | None = None
    """None: as many as run at all."""


def is_running() -> ColumnElement[bool]:
    """Holds a slot."""
    return and_(Study.state.in_(RUNNING_STATES), not_(Study.suspended))


NUM_RUNNING = f"""
(SELECT count(*) FROM study AS running WHERE running.state IN {RUNNING_STATES} AND NOT running.suspended)
"""  # noqa: S608 - our own words
"""How many hold a slot, as :func:`is_running` says it, for statements that are text."""


def is_waiting() -> ColumnElement[bool]:
    """Wants a slot. What is paused, rests or is about to be cancelled stands in nobody's way."""
    return and_(
        or_(
            Study.state == "queued",
            and_(Study.state == "awaiting_approval", Study.promote_requested),
            and_(Study.state.in_(RUNNING_STATES), Study.suspended, not_(Study.resting)),
        ),
        not_(Study.pause_requested),
        not_(Study.cancel_requested),
    )


async def positions(session: AsyncSession, studies: Iterable[Study]) -> dict[str, int]:
    """Places in the line, from 1, by the ids of those of the studies that wait."""
    ids = [study.id for study in studies if study.state == "queued" or _may_return(study)]
    if not ids:
        return {}
    line = (
        select(Study.id, func.row_number().over(order_by=_ORDER).label("position"))
        .where(is_waiting())
        .subquery()
    )
    found = await session.execute(select(line.c.id, line.c.position).where(line.c.id.in_(ids)))
    return dict(found.all())


async def why_not_yet(session: AsyncSession, study: Study, limits: Limits) -> str | None:
    """Why a waiting study cannot have a slot now; None: it can.

    Holds a lock to the end of the transaction, so that a slot is given once.
    """
    await session.execute(select(func.pg_advisory_xact_lock(_SLOTS_LOCK)))
    held = await session.execute(
        select(Study.tenant, func.count()).where(is_running()).group_by(Study.tenant)
    )
    running = Counter(dict(held.all()))
    free = limits.studies - running.total()
    if _is_full(running, study.tenant, limits):
        return f"{WAITING} of tenant {study.tenant}"
    if free <= 0:
        return WAITING
    is_troubled = func.coalesce(Study.reason, "").startswith(TROUBLED)
    line = await session.execute(
        select(Study.id, Study.tenant)
        .where(is_waiting(), or_(not_(is_troubled), Study.id == study.id))
        .order_by(*_ORDER)
    )
    for study_id, tenant in line.all():
        if _is_full(running, tenant, limits):
            continue
        if study_id == study.id:
            return None
        running[tenant] += 1
        free -= 1
        if free == 0:
            break
    return WAITING


def told(reason: str | None, position: int | None) -> str | None:
    """The reason with the place in the line.

    Example:
        >>> told("waiting for a free slot", 3)
        'waiting for a free slot, 3rd in line'
    """
    if position is None or reason is None or not reason.startswith(WAITING):
        return reason
    return f"{reason}, {_ordinal(position)} in line"


def _may_return(study: Study) -> bool:
    """Whether it has given its slot back and may want another; spares most studies the query."""
    return study.suspended or (study.state == "awaiting_approval" and study.promote_requested)


def _is_full(running: Counter[str], tenant: str, limits: Limits) -> bool:
    limit = limits.studies_per_tenant
    return limit is not None and running[tenant] >= limit


def _ordinal(number: int) -> str:
    is_teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if is_teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
