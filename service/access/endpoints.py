"""``/tokens`` and ``/audit``: for admins; auditors may read them."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response, status

from service.access import service
from service.access.guard import PrincipalDep, needs
from service.access.schemas import (
    AuditPage,
    AuditQuery,
    NewToken,
    TokenList,
    TokenRequest,
    TokenView,
)
from service.auth import repository
from service.auth.scopes import Scope
from service.context import ContextDep
from service.prefix import base_of
from service.problems import described

router = APIRouter(tags=["access"], responses=described(401, 403, 429))

TokenId = Annotated[str, Path(max_length=100)]


@router.post(
    "/tokens",
    status_code=status.HTTP_201_CREATED,
    dependencies=[needs(Scope.ADMIN)],
    responses=described(400, 413, 422),
)
async def create_token(
    request: TokenRequest,
    connection: Request,
    response: Response,
    context: ContextDep,
    principal: PrincipalDep,
) -> NewToken:
    """Make a token. Its secret is in this answer and nowhere else."""
    known = context.authenticator
    has_bootstrap = await known.has_bootstrap_token()
    async with context.database.session() as session:
        made = await service.create(session, request, by=principal, has_bootstrap=has_bootstrap)
    known.forget()
    response.headers["Location"] = f"{base_of(connection)}/tokens/{made.id}"
    return made


@router.get("/tokens", dependencies=[needs(Scope.AUDIT)])
async def list_tokens(context: ContextDep) -> TokenList:
    """Every token, also those that have ended; the newest first."""
    async with context.database.session() as session:
        found = await repository.every(session)
    return TokenList(items=[TokenView.model_validate(token) for token in found])


@router.delete(
    "/tokens/{token_id}",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[needs(Scope.ADMIN)],
    responses=described(404, 409),
)
async def revoke_token(token_id: TokenId, context: ContextDep) -> None:
    """End a token and its sessions for good. Doing so twice is harmless."""
    known = context.authenticator
    has_bootstrap = await known.has_bootstrap_token()
    async with context.database.session() as session:
        await service.revoke(session, token_id, has_bootstrap=has_bootstrap)
    known.forget()


@router.get("/audit", dependencies=[needs(Scope.AUDIT)], responses=described(422))
async def read_audit(context: ContextDep, query: Annotated[AuditQuery, Query()]) -> AuditPage:
    """Every change that was asked for, granted or refused, and who has had models and ledgers; newest first."""
    async with context.database.session() as session:
        return await service.audit_page(session, query)
