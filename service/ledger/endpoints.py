"""``GET /datasets/{name}/ledger``."""

from fastapi import APIRouter

from service.context import ContextDep
from service.db.tables import Dataset
from service.errors import NotFoundError
from service.ledger.schemas import Account
from service.ledger.service import Ledger
from service.problems import described

router = APIRouter(prefix="/datasets", tags=["datasets"])


@router.get("/{name}/ledger", responses=described(404))
async def get_ledger(name: str, context: ContextDep) -> Account:
    """The dataset's budget, where it went, and the newest entries of its journal."""
    async with context.database.session() as session:
        dataset = None if "\x00" in name else await session.get(Dataset, name)
        if dataset is None:
            raise NotFoundError(f"there is no dataset {name!r}")
        if dataset.scope_id is None:
            raise NotFoundError(f"dataset {name!r} is public: it has no budget and no ledger")
        return await Ledger().account(session, dataset.scope_id)
