"""``/ui/audit``: who asked for what, for admins and auditors."""

import re
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from service.access import service
from service.access.guard import needs
from service.access.schemas import AuditPage, AuditQuery
from service.auth.scopes import Scope
from service.context import ContextDep
from service.dashboard.render import page
from service.errors import InvalidInputError
from tan_core.spec import field_problems

EVENTS_PER_PAGE = 25
FILTERS = ("target", "action", "actor", "since")

router = APIRouter(include_in_schema=False)


@router.get("/ui/audit", dependencies=[needs(Scope.AUDIT)])
async def show_audit(request: Request, context: ContextDep) -> HTMLResponse:
    """One page of the audit, as the filters of the address leave it."""
    given = {name: value.strip() for name, value in request.query_params.items()}
    filters = {name: given[name] for name in FILTERS if given.get(name)}
    try:
        query = _query(filters, given.get("cursor") or None)
        async with context.database.session() as session:
            found = await service.audit_page(session, query)
    except InvalidInputError as error:
        return _page(request, filters, AuditPage(items=[]), refusal=error.detail, status=422)
    return _page(request, filters, found, cursor=query.cursor)


def _query(filters: dict[str, str], cursor: str | None) -> AuditQuery:
    """The page that is asked for. A date alone is its beginning, in UTC.

    Raises:
        InvalidInputError: a filter is none.
    """
    asked: dict[str, Any] = {**filters, "limit": EVENTS_PER_PAGE, "cursor": cursor}
    since = filters.get("since", "")
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", since):
        asked["since"] = f"{since}T00:00:00Z"
    try:
        return AuditQuery.model_validate(asked)
    except ValidationError as error:
        raise InvalidInputError.of(field_problems(error, AuditQuery)) from None


def _page(
    request: Request,
    filters: dict[str, str],
    found: AuditPage,
    *,
    cursor: str | None = None,
    refusal: str | None = None,
    status: int = 200,
) -> HTMLResponse:
    return page(
        request,
        "audit.html",
        status=status,
        filters=filters,
        query=urlencode(filters),
        events=found.items,
        next_cursor=found.next_cursor,
        cursor=cursor,
        refusal=refusal,
    )
