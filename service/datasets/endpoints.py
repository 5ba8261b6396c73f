"""``/datasets``."""

from fastapi import APIRouter, Request, Response, status

from service.body import read_mapping, validate
from service.context import ContextDep
from service.datasets import repository, service
from service.datasets.schemas import DatasetList, DatasetRegistration, DatasetView
from service.openapi import request_body
from service.problems import described

router = APIRouter(prefix="/datasets", tags=["datasets"])


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    responses=described(400, 409, 413, 415, 422),
    openapi_extra=request_body(DatasetRegistration),
)
async def register_dataset(
    request: Request, response: Response, context: ContextDep
) -> DatasetView:
    """Register a dataset with its whole budget. No file can be registered twice."""
    registration = validate(DatasetRegistration, await read_mapping(request))
    view = await service.register(context.database, registration, actor="api")
    response.headers["Location"] = f"/datasets/{view.name}"
    return view


@router.get("")
async def list_datasets(context: ContextDep) -> DatasetList:
    """Every registered dataset, by name."""
    async with context.database.session() as session:
        found = await repository.every(session)
        return DatasetList(items=[await service.view(session, dataset) for dataset in found])


@router.get("/{name}", responses=described(404))
async def get_dataset(name: str, context: ContextDep) -> DatasetView:
    """One dataset."""
    async with context.database.session() as session:
        return await service.view(session, await service.find(session, name))
