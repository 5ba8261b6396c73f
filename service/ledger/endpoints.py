"""``/datasets/{name}/ledger``."""

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.guard import needs
from service.auth.scopes import Scope
from service.context import ContextDep
from service.db.tables import Dataset
from service.errors import NotFoundError
from service.ledger.schemas import Account, ChainReport
from service.ledger.service import Ledger
from service.problems import described

router = APIRouter(prefix="/datasets", tags=["datasets"])


@router.get("/{name}/ledger", dependencies=[needs(Scope.READ)], responses=described(404, 422))
async def get_ledger(
    name: str,
    context: ContextDep,
    entries: Annotated[int, Query(ge=0, le=10_000, description="How many of the newest")] = 50,
) -> Account:
    """The dataset's budget, where it went, and the newest entries of its journal."""
    async with context.database.session() as session:
        scope_id = await _scope_id(session, name)
        return await Ledger().account(session, scope_id, last_entries=entries)


@router.get("/{name}/ledger/verify", dependencies=[needs(Scope.READ)], responses=described(404))
async def verify_ledger(name: str, context: ContextDep) -> ChainReport:
    """Whether the journal is whole and says what the state tables say."""
    async with context.database.session() as session:
        return await Ledger().verify_chain(session, await _scope_id(session, name))


async def _scope_id(session: AsyncSession, name: str) -> str:
    dataset = None if "\x00" in name else await session.get(Dataset, name)
    if dataset is None:
        raise NotFoundError(f"there is no dataset {name!r}")
    if dataset.scope_id is None:
        raise NotFoundError(f"dataset {name!r} is public: it has no budget and no ledger")
    return dataset.scope_id
