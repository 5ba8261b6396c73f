"""What the routers of pages have in common: their errors are pages, since someone looks at them."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute

from service.dashboard.render import page
from service.errors import ServiceError
from service.problems import validation_problems
from tan_core.spec import FieldProblem

MAX_SHOWN = 100
"""Characters of a value that is refused."""
StudyId = Annotated[str, Path(max_length=200)]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Handler:
        """The handler, with refusals rendered."""
        handle = super().get_route_handler()

        async def handle_page(request: Request) -> Response:
            try:
                return await handle(request)
            except ServiceError as error:
                return error_page(request, error.status, error.detail)
            except RequestValidationError as error:
                return error_page(request, 422, "; ".join(map(_said, validation_problems(error))))

        return handle_page


def error_page(request: Request, status: int, detail: str) -> HTMLResponse:
    """A refusal in the service's own words."""
    return page(request, "error.html", status=status, code=status, detail=detail)


def _said(problem: FieldProblem) -> str:
    """The field, what it accepts, and what it got."""
    got = "" if problem.value is None else f", got {str(problem.value)[:MAX_SHOWN]!r}"
    return f"{problem.path}: {problem.message}{got}"
