"""What a route asks of whoever calls it, said where the route is declared.

``dependencies=[needs(Scope.SUBMIT)]`` beside the path is the whole of it; a test walks the routes and fails
at one that says nothing.
"""

from typing import Annotated

from fastapi import Depends, Request
from fastapi.params import Depends as Dependency
from sqlalchemy import select

from service.auth.scopes import Principal, Scope
from service.context import Context, ContextDep
from service.db.tables import Study
from service.errors import ForbiddenError, NotFoundError, UnauthorizedError


class Guard:
    """Lets through whoever has the scope; None: everybody.

    Args:
        scope: what the caller's token must hold.
        of_study: the route is below one study, which must be of the caller's own tenant.
    """

    def __init__(self, scope: Scope | None, *, of_study: bool = False) -> None:
        self.scope = scope
        self.of_study = of_study

    async def __call__(self, request: Request, context: ContextDep) -> None:
        """Refuse whoever may not, and hide what is another tenant's.

        Raises:
            ForbiddenError: the token lacks the scope; the message names it.
            NotFoundError: no such study, or not the caller's: nobody learns which.
        """
        if self.scope is None:
            return
        principal = principal_of(request)
        if not principal.may(self.scope):
            raise ForbiddenError(f"this needs a token with the scope {self.scope.value!r}")
        only = principal.sees if self.scope is Scope.READ else principal.reaches
        if self.of_study and only is not None:
            await expect_study(context, request.path_params["study_id"], only)


async def expect_study(context: Context, study_id: str, tenant: str) -> None:
    """Hide a study that is not the tenant's.

    Raises:
        NotFoundError: there is none, or it is another's: nobody learns which.
    """
    query = select(Study.tenant).where(Study.id == study_id)
    async with context.database.session() as session:
        owner = None if "\x00" in study_id else await session.scalar(query)
    if owner != tenant:
        raise NotFoundError(f"there is no study {study_id!r}")


def needs(scope: Scope) -> Dependency:
    """The route is for tokens with this scope."""
    return Depends(Guard(scope))


def needs_study(scope: Scope) -> Dependency:
    """The route, whose path has a ``study_id``, is for tokens with this scope of the study's tenant."""
    return Depends(Guard(scope, of_study=True))


def open_to_all() -> Dependency:
    """The route tells and changes nothing that is anybody's."""
    return Depends(Guard(None))


def principal_of(request: Request) -> Principal:
    """Who asks, as the door found out (service/access/door.py).

    Raises:
        UnauthorizedError: the door lets everybody through to this path.
    """
    principal: Principal | None = request.state.principal
    if principal is None:
        raise UnauthorizedError("a token is needed")
    return principal


PrincipalDep = Annotated[Principal, Depends(principal_of)]
