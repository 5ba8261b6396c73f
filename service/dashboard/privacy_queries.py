"""What the pages of datasets ask of the tables, that no view of the API holds. Read only."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Double, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study


@dataclass(frozen=True)
class Stated:
    """A study with a signed statement."""

    study_id: str
    name: str
    epsilon: float
    delta: float
    search_accounting: str
    charged_epsilon: float | None
    """All that was charged on the dataset by then; None: a statement of before it said so."""
    finished_at: datetime | None


async def statements_of(
    session: AsyncSession, dataset: str, *, tenant: str | None, limit: int
) -> list[Stated]:
    """The newest studies of a dataset whose statement is there; of one tenant, or (None) of all."""
    privacy = Study.statement["privacy"]
    query = (
        select(
            Study.id,
            Study.name,
            privacy["epsilon"].astext.cast(Double),
            Study.plan["privacy"]["delta"].as_float(),
            Study.search_accounting,
            Study.statement["ledger"]["charged_epsilon"].astext.cast(Double),
            Study.finished_at,
        )
        .where(Study.dataset == dataset, Study.statement.is_not(None))
        .order_by(Study.finished_at.desc(), Study.id.desc())
        .limit(limit)
    )
    if tenant is not None:
        query = query.where(Study.tenant == tenant)
    return [Stated(*row) for row in await session.execute(query)]
