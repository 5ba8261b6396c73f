"""``/datasets/{name}/ledger`` and ``/datasets/{name}/caps``."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response, status

from service.access.audit import note_targets
from service.access.guard import PrincipalDep, needs
from service.auth.scopes import Scope
from service.body import read_mapping, validate
from service.context import ContextDep
from service.idempotency import Keyed, KeyHeader, say_replayed
from service.ledger import burndown, releases, repository, repricing
from service.ledger.schemas import (
    Account,
    Burndown,
    CapList,
    CapRequest,
    CapSet,
    ChainReport,
    EvaluationList,
    OutsideRelease,
    OutsideReleaseRequest,
    Repricing,
    RepricingRequest,
)
from service.ledger.service import Ledger, scope_id_of
from service.openapi import request_body
from service.problems import described

router = APIRouter(prefix="/datasets", tags=["datasets"])
TENANT = r"^(\*|[a-z0-9][a-z0-9-]{0,62})$"
"""As tokens name it: a cap on any other name would hold nobody. Or ``*``: all of them together."""


@router.get("/{name}/ledger", dependencies=[needs(Scope.READ)], responses=described(404, 422))
async def get_ledger(
    name: str,
    context: ContextDep,
    entries: Annotated[int, Query(ge=0, le=10_000, description="How many of the newest")] = 50,
    until: Annotated[
        int | None, Query(ge=1, le=2**53, description="None of a higher number; default: all")
    ] = None,
) -> Account:
    """The dataset's budget, where it went, and the newest entries of its journal, or those up to one."""
    async with context.database.snapshot() as session:
        scope_id = await scope_id_of(session, name)
        return await Ledger().account(session, scope_id, last_entries=entries, until=until)


@router.get("/{name}/ledger/verify", dependencies=[needs(Scope.READ)], responses=described(404))
async def verify_ledger(name: str, context: ContextDep) -> ChainReport:
    """Whether the journal is whole and says what the state tables say."""
    async with context.database.session() as session:
        return await Ledger().verify_chain(session, await scope_id_of(session, name))


@router.get("/{name}/ledger/burndown", dependencies=[needs(Scope.READ)], responses=described(404))
async def get_burndown(name: str, context: ContextDep) -> Burndown:
    """How the budget was used up, entry by entry."""
    async with context.database.snapshot() as session:
        return await burndown.burndown(session, await scope_id_of(session, name))


@router.get(
    "/{name}/ledger/evaluations", dependencies=[needs(Scope.READ)], responses=described(404)
)
async def list_evaluations(name: str, context: ContextDep) -> EvaluationList:
    """What accountants of today and of the past made of the charges."""
    async with context.database.session() as session:
        scope_id = await scope_id_of(session, name)
        return EvaluationList(items=list(await repository.evaluations(session, scope_id)))


@router.post(
    "/{name}/ledger/evaluations",
    dependencies=[needs(Scope.ADMIN)],
    responses=described(400, 404, 413, 415, 422),
    openapi_extra=request_body(RepricingRequest, required=False, yaml=False),
)
async def reprice_ledger(name: str, request: Request, context: ContextDep) -> Repricing:
    """Price the past again by the accountants of today; what is new is appended."""
    body = await read_mapping(request, yaml=False) if await request.body() else {}
    asked = validate(RepricingRequest, body)
    async with context.database.session() as session:
        scope_id = await scope_id_of(session, name)
    return await repricing.reprice(context.database, scope_id, asked.accountants)


@router.post(
    "/{name}/ledger/releases",
    dependencies=[needs(Scope.ADMIN)],
    status_code=status.HTTP_201_CREATED,
    responses={
        200: {"model": OutsideRelease, "description": "What a dry run would have charged"},
        **described(400, 404, 409, 413, 415, 422),
    },
    openapi_extra=request_body(OutsideReleaseRequest, yaml=False),
)
async def charge_release(
    name: str,
    request: Request,
    response: Response,
    context: ContextDep,
    principal: PrincipalDep,
    idempotency_key: KeyHeader = None,
    dry_run: Annotated[
        bool, Query(description="Answer as a charge would, by today's ledger; charge nothing")
    ] = False,
) -> OutsideRelease:
    """Charge a release that is going to be made outside of the service: all of it, before it is made, or nothing.

    It counts to the budget and to the caps as a study does. What is charged is never given back.
    """
    body = await read_mapping(request, yaml=False)
    asked = validate(OutsideReleaseRequest, body)
    keyed = Keyed.of(idempotency_key, principal, "charge_release", body, subject=name)
    if dry_run:
        note_targets(request, f"{name}/dry run")
    made, is_new = await releases.charge(
        context, name, asked, actor=principal.actor, tenant=asked.tenant or principal.tenant,
        request=None if dry_run else keyed, dry_run=dry_run,
    )  # fmt: skip
    if made.entry is None:
        response.status_code = status.HTTP_200_OK
        return made
    note_targets(request, f"{name}/{made.id}")
    async with context.database.session() as session:  # of its own: whoever is answered may release
        await request.app.state.published.leave(session, made.scope_id, made.entry)
    say_replayed(response, is_new=is_new)
    return made


@router.get("/{name}/caps", dependencies=[needs(Scope.READ)], responses=described(404))
async def list_caps(name: str, context: ContextDep) -> CapList:
    """The limits of tenants within the dataset's budget."""
    async with context.database.session() as session:
        scope_id = await scope_id_of(session, name)
        return CapList(items=await repository.caps(session, scope_id))


@router.put(
    "/{name}/caps/{tenant}",
    dependencies=[needs(Scope.ADMIN)],
    responses=described(400, 404, 413, 415, 422),
    openapi_extra=request_body(CapRequest, yaml=False),
)
async def set_cap(
    name: str,
    tenant: Annotated[
        str, Path(pattern=TENANT, description="Whose studies are limited; `*`: all together")
    ],
    request: Request,
    context: ContextDep,
    principal: PrincipalDep,
) -> CapSet:
    """Limit a tenant, or all together, to a lower epsilon within the budget; 0 freezes. What is committed stays."""
    asked = validate(CapRequest, await read_mapping(request, yaml=False))
    async with context.database.session() as session:
        scope_id = await scope_id_of(session, name)
        cap = await Ledger().set_cap(
            session, scope_id, tenant=tenant, epsilon=asked.epsilon, actor=principal.actor
        )
    async with context.database.session() as session:  # pricing holds up nobody
        return await Ledger().what_meets(session, scope_id, cap)
