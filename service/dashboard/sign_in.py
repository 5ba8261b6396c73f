"""Signing in to the dashboard with a token, and out again."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from service.access.door import SIGN_IN, SIGN_OUT, address_of, check_csrf
from service.access.guard import needs, open_to_all
from service.auth.scopes import Scope
from service.auth.sessions import COOKIE, LIFETIME_SECONDS
from service.context import ContextDep
from service.dashboard.forms import read_form
from service.dashboard.render import page
from service.errors import ForbiddenError, TooManyRequestsError
from service.prefix import base_of

router = APIRouter(include_in_schema=False)

HOME = "/"


@router.get(SIGN_IN, dependencies=[open_to_all()])
async def ask_for_token(
    request: Request, next_: Annotated[str, Query(alias="next", max_length=2000)] = HOME
) -> HTMLResponse:
    """The form."""
    return _form(request, next_)


@router.post(SIGN_IN, dependencies=[open_to_all()])
async def sign_in(request: Request, context: ContextDep) -> Response:
    """Exchange a token for a session: a cookie that no script can read and no other site sends."""
    fields = await _fields(request)
    if request.headers.get("origin") is None:  # every browser sends it; the door compared it
        raise ForbiddenError("signing in is for browsers; programs send Authorization: Bearer")
    known = context.authenticator
    try:
        credential = await known.by_token(
            fields.get("token", "").strip(), address=address_of(request.scope)
        )
    except TooManyRequestsError as error:
        return _form(request, fields.get("next", HOME), status=429, refusal=error.detail)
    if credential is None:
        refusal = "This token is not known here, has expired or was revoked."
        return _form(request, fields.get("next", HOME), status=401, refusal=refusal)
    request.state.principal = credential.principal
    session = await known.open_session(credential)
    response = RedirectResponse(base_of(request) + _own_path(fields.get("next", HOME)), 303)
    response.set_cookie(
        COOKIE,
        str(session),
        max_age=LIFETIME_SECONDS,
        path=base_of(request) or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


@router.post(SIGN_OUT, dependencies=[needs(Scope.READ)])
async def sign_out(request: Request) -> RedirectResponse:
    """End the browser's session. Revoking its token ends every session of it."""
    csrf_token = getattr(request.state, "csrf_token", None)
    if csrf_token is not None:
        check_csrf(csrf_token, (await _fields(request)).get("csrf_token", ""))
    response = RedirectResponse(base_of(request) + SIGN_IN, 303)
    response.delete_cookie(COOKIE, path=base_of(request) or "/")
    return response


def _form(
    request: Request, next_: str, *, status: int = 200, refusal: str | None = None
) -> HTMLResponse:
    return page(request, "login.html", status=status, next=_own_path(next_), refusal=refusal)


async def _fields(request: Request) -> dict[str, str]:
    """Each field's first value."""
    fields: dict[str, str] = {}
    for name, value in await read_form(request):
        fields.setdefault(name, value)
    return fields


def _own_path(wanted: str) -> str:
    """Where to go next: a path of this service, or its first page. Never another site."""
    is_own = wanted.startswith("/") and not wanted.startswith(("//", "/\\", SIGN_IN))
    return wanted if is_own and wanted.isprintable() else HOME
