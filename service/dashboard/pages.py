"""What pages have in common: the id in their addresses, and what they say where something is refused."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Path, Request, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.access.door import is_page
from service.dashboard.render import page
from service.errors import Problem
from service.problems import MEDIA_TYPE
from tan_core.spec import FieldProblem

MAX_SHOWN = 100
"""Characters of a value that is refused."""
HEADINGS = {
    404: "Not found",
    429: "Too many requests",
    500: "The service failed",
    503: "Not available right now",
}
StudyId = Annotated[str, Path(max_length=200)]


class ErrorPages:
    """ASGI middleware: a problem becomes a page where someone looks at it.

    It lies outside of all that may refuse a request, so that a database that is away is said on a page too,
    whoever asked it first. Scripts are answered with the problem itself: those of a page say it in their place.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not _is_looked_at(scope):
            await self._app(scope, receive, send)
            return
        refused: Message | None = None
        body = b""

        async def send_page(message: Message) -> None:
            nonlocal refused, body
            if message["type"] == "http.response.start" and _is_ours(scope, message):
                refused = message
            elif refused is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    answer = _error_page(Request(scope), Headers(raw=refused["headers"]), body)
                    await answer(scope, receive, send)

        await self._app(scope, receive, send_page)


def _is_looked_at(scope: Scope) -> bool:
    """Whether the answer takes the place of the page in a browser's window."""
    headers = Headers(scope=scope)
    # The answer to HEAD has no content that a page could be made of.
    if "hx-request" in headers or scope["method"] == "HEAD":
        return False
    is_browser = "text/html" in headers.get("accept", "")
    return is_browser or (is_page(scope) and scope["method"] == "GET")


def _is_ours(scope: Scope, start: Message) -> bool:
    """Whether a page says it: what the dashboard refuses, and that there is nothing at an address.

    The API answers a browser as everybody else, and says itself where it knows no such study.
    """
    is_nowhere = start["status"] == HTTPStatus.NOT_FOUND and "endpoint" not in scope
    is_problem = Headers(raw=start["headers"]).get("content-type") == MEDIA_TYPE
    return is_problem and (is_page(scope) or is_nowhere)


def _error_page(request: Request, headers: Headers, body: bytes) -> Response:
    """The problem's page, with what its headers said beside the content."""
    problem = Problem.model_validate_json(body)
    answer = page(
        request,
        "error.html",
        status=problem.status,
        code=problem.status,
        heading=HEADINGS.get(problem.status, "That is not possible"),
        detail=problem.detail,
        faults=[_said(each) for each in problem.errors],
        # A form that was sent is not sent again by itself.
        tries_again=problem.status == 503 and request.method == "GET",
    )
    kept = MutableHeaders(raw=answer.raw_headers)
    for name, value in headers.items():
        if not name.startswith("content-"):
            kept.setdefault(name, value)
    kept.add_vary_header("Accept")
    return answer


def _said(problem: FieldProblem) -> str:
    """The field, what it accepts, and what it got."""
    got = "" if problem.value is None else f", got {str(problem.value)[:MAX_SHOWN]!r}"
    return f"{problem.path}: {problem.message}{got}"
