"""Claims on studies: one statement takes a study and leases it, so no two orchestrators share one."""

from datetime import timedelta

from sqlalchemy import Interval, and_, bindparam, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study

ACTIVE_STATES = ("queued", "simulating", "training")
AT_ONCE = 100
"""Studies that one statement takes."""


async def claim_open(session: AsyncSession, *, owner: str, lease: timedelta) -> list[str]:
    """Lease every open study that is free or ours; their ids by priority, then age.

    A study that waits for a person is left alone until that person has spoken. A lease that ends later
    than any that is given is of a clock that was put back, and binds nobody.
    """
    spoken = or_(Study.cancel_requested, Study.promote_requested)
    free = (
        select(Study.id)
        .where(
            or_(Study.state.in_(ACTIVE_STATES), and_(Study.state == "awaiting_approval", spoken)),
            or_(
                Study.lease_owner == owner,
                Study.lease_until.is_(None),
                Study.lease_until < func.now(),
                Study.lease_until > func.now() + 2 * lease,
            ),
        )
        # Those that have waited longest come first, so that a long list starves nobody.
        .order_by(Study.lease_until.nulls_first(), Study.created_at)
        .limit(AT_ONCE)
        .with_for_update(skip_locked=True)
    )
    claimed = await session.execute(
        update(Study)
        .where(Study.id.in_(free.scalar_subquery()))
        .values(lease_owner=owner, lease_until=func.now() + lease)
        .returning(Study.id, Study.priority, Study.created_at)
    )
    ordered = sorted(claimed, key=lambda row: (-row.priority, row.created_at, row.id))
    return [row.id for row in ordered]


async def locked(
    session: AsyncSession, study_id: str, *, owner: str, lease: timedelta
) -> Study | None:
    """The study under its row lock with its lease renewed, unless another took it meanwhile."""
    return await session.scalar(_LOCKED, {"of_study": study_id, "of_owner": owner, "until": lease})


_LOCKED = (
    update(Study)
    .where(Study.id == bindparam("of_study"), Study.lease_owner == bindparam("of_owner"))
    .values(lease_until=func.now() + bindparam("until", type_=Interval))
    .returning(Study)
    .execution_options(populate_existing=True, synchronize_session=False)
)


async def release_all(session: AsyncSession, *, owner: str) -> None:
    """Give every lease back, so that a successor need not wait for it to expire."""
    await session.execute(
        update(Study).where(Study.lease_owner == owner).values(lease_owner=None, lease_until=None)
    )
