"""``/datasets``."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response, status

from service import etags
from service.access.audit import note_targets
from service.access.guard import PrincipalDep, needs
from service.auth.scopes import Scope
from service.body import read_mapping, validate
from service.context import ContextDep
from service.datasets import repository, service
from service.datasets.schemas import (
    ApprovalRequest,
    DatasetList,
    DatasetRegistration,
    DatasetView,
)
from service.etags import NOT_MODIFIED, IfNoneMatch
from service.idempotency import Keyed, KeyHeader, say_replayed
from service.openapi import request_body
from service.prefix import base_of
from service.problems import described

router = APIRouter(prefix="/datasets", tags=["datasets"])


@router.post(
    "",
    dependencies=[needs(Scope.ADMIN)],
    status_code=status.HTTP_201_CREATED,
    responses={
        200: {"model": DatasetView, "description": "What a dry run would have registered"},
        **described(400, 409, 413, 415, 422),
    },
    openapi_extra=request_body(DatasetRegistration),
)
async def register_dataset(
    request: Request,
    response: Response,
    context: ContextDep,
    principal: PrincipalDep,
    idempotency_key: KeyHeader = None,
    dry_run: Annotated[
        bool, Query(description="Look at the data and answer as a registration would; keep nothing")
    ] = False,
) -> DatasetView:
    """Register a dataset with its whole budget. No file can be registered twice."""
    body = await read_mapping(request)
    registration = validate(DatasetRegistration, body)
    opens = None if registration.public else service.scope_of(registration.name)
    await request.app.state.published.check(context.database, opens=opens)
    keyed = Keyed.of(idempotency_key, principal, "register_dataset", body)
    if dry_run:
        note_targets(request, f"{registration.name}/dry run")
    view, is_new = await service.register_for(
        context,
        registration,
        by=principal,
        request=None if dry_run else keyed,
        dry_run=dry_run,
    )
    if dry_run:
        response.status_code = status.HTTP_200_OK
        return view
    response.headers["Location"] = f"{base_of(request)}/datasets/{view.name}"
    say_replayed(response, is_new=is_new)
    return view


@router.get("", dependencies=[needs(Scope.READ)])
async def list_datasets(context: ContextDep) -> DatasetList:
    """Every registered dataset, by name."""
    async with context.database.session() as session:
        found = await repository.every(session)
        return DatasetList(items=await service.views(session, found))


@router.get(
    "/{name}",
    dependencies=[needs(Scope.READ)],
    response_model=DatasetView,
    responses={**NOT_MODIFIED, **described(404, 422)},
)
async def get_dataset(
    name: str, context: ContextDep, if_none_match: IfNoneMatch = None
) -> Response:
    """One dataset."""
    async with context.database.session() as session:
        view = await service.view(session, await service.find(session, name))
    return etags.answer(view.model_dump_json().encode(), if_none_match)


@router.put(
    "/{name}/approval",
    dependencies=[needs(Scope.ADMIN)],
    responses=described(400, 404, 413, 415, 422),
    openapi_extra=request_body(ApprovalRequest, yaml=False),
)
async def set_approval(name: str, request: Request, context: ContextDep) -> DatasetView:
    """Let every private run on the dataset wait for a person, or (``automatic``) let its study say so.

    It holds for studies whose private run has not begun, and for those to come. What waits goes on waiting.
    """
    asked = validate(ApprovalRequest, await read_mapping(request, yaml=False))
    note_targets(request, f"{name}/approval/{asked.approval}")
    async with context.database.session() as session:
        dataset = await service.set_approval(session, name, asked.approval)
        return await service.view(session, dataset)
