"""What awaits a person: counted before a page is made, for the navigation of all of them."""

from fastapi import Depends, Request

from service.auth.scopes import Principal, Scope
from service.context import ContextDep
from service.dashboard import queries


async def _count(request: Request, context: ContextDep) -> None:
    principal: Principal | None = request.state.principal
    if principal is None or not principal.may(Scope.APPROVE) or request.url.path.endswith(".csv"):
        return
    async with context.database.reading() as session:
        request.state.awaiting = await queries.awaiting(session, tenant=principal.reaches)


COUNTED = Depends(_count)
"""Of a router whose routes are pages; who may approve nothing is told of nothing."""
