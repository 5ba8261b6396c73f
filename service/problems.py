"""Every error as ``application/problem+json``: the handlers, and how OpenAPI describes them."""

import errno
import logging
import math
import secrets
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, get_type_hints

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from service.db.session import is_locked, is_read_only
from service.errors import Problem, ServiceError
from service.prefix import base_of
from tan_core.errors import AccountantError, ParameterError, TanError, UnsupportedEventError
from tan_core.spec import FieldProblem
from tan_core.spec.problems import problems_of

MEDIA_TYPE = "application/problem+json"
MAX_DETAIL = 4000
MAX_TEXT = 1000
"""Of a path or a message: an answer must not repeat a megabyte that it was sent."""
MAX_VALUE = 200
MAX_INTEGER_BITS = 600
"""Python does not write integers of some thousand digits as text."""
MAX_ERRORS = 200
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""A disk that is full, or cannot be written: nobody's bug, and there may be room in a while."""
_log = logging.getLogger(__name__)


def problem_response(
    status: int,
    detail: str,
    *,
    errors: Sequence[FieldProblem] = (),
    instance: str | None = None,
    headers: dict[str, str] | None = None,
    kind: str = "about:blank",
) -> JSONResponse:
    """The response for one error."""
    problem = Problem(
        type=kind,
        title=HTTPStatus(status).phrase,
        status=status,
        detail=_short(detail, MAX_DETAIL),
        instance=instance,
        errors=[_shown(error) for error in errors[:MAX_ERRORS]],
    )
    return JSONResponse(
        problem.model_dump(mode="json"), status, headers=headers, media_type=MEDIA_TYPE
    )


def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """``responses=`` of a route that may answer with these problems."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
        for status in statuses
    }


def install(app: FastAPI) -> None:
    """Render every error that a route or the router raises."""
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(TanError, _library_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(DBAPIError, _database_error)
    app.add_exception_handler(PoolTimeoutError, _database_error)


def unexpected(error: Exception, path: str) -> JSONResponse:
    """The response for a bug: an id to quote, and nothing from inside."""
    error_id = secrets.token_hex(6)
    _log.error("error %s at %s", error_id, path, exc_info=error)
    return problem_response(
        500, f"the service failed; its log has the details under {error_id}", instance=error_id
    )


def of_error(error: ServiceError) -> JSONResponse:
    """The response for an error of ours."""
    return problem_response(
        error.status,
        error.detail,
        errors=error.problems,
        headers=dict(error.headers),
        kind=error.type,
    )


def of_failure(error: Exception, path: str) -> JSONResponse:
    """The response for what no route expected: a bug, or a database that is away or overrun."""
    if isinstance(error, PoolTimeoutError):
        _log.warning("every database connection is in use: a request was turned away")
        return problem_response(
            503, "the service is busy; try again in a moment", headers={"Retry-After": "1"}
        )
    if isinstance(error, DBAPIError) and is_read_only(error):
        _log.warning("the database takes no changes: %s", error.orig)
        return problem_response(
            503,
            "the database takes no changes now, as in a failover; try again in a moment",
            headers={"Retry-After": "1"},
        )
    if isinstance(error, DBAPIError) and is_locked(error):
        _log.warning("another session held for long what a request at %s needs", path)
        return problem_response(
            503,
            "what this request needs is held by another one; try again in a moment",
            headers={"Retry-After": "1"},
        )
    if isinstance(error, OperationalError | InterfaceError) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    ):
        _log.warning("the database does not answer: %s", error.orig)
        return problem_response(
            503,
            "the database does not answer; try again in a moment",
            headers={"Retry-After": "1"},
        )
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        _log.error("a file of the service cannot be written: %s", error)
        return problem_response(
            503,
            f"the service cannot write its files: {error.strerror}; its operator can help",
            headers={"Retry-After": "10"},
        )
    return unexpected(error, path)


async def _service_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ServiceError)  # noqa: S101 - registered for this type only
    return of_error(error)


async def _library_error(request: Request, error: Exception) -> JSONResponse:
    """What the library refuses is the caller's input, except where an accountant broke down."""
    if isinstance(error, ParameterError):
        field = getattr(error, "field", None)
        errors = [FieldProblem(path=field, message=str(error))] if field else []
        return problem_response(422, str(error), errors=errors)
    if isinstance(error, AccountantError | UnsupportedEventError):
        path = "privacy.accountant"
        return problem_response(
            422, str(error), errors=[FieldProblem(path=path, message=str(error))]
        )
    return unexpected(error, request.url.path)


async def _database_error(request: Request, error: Exception) -> JSONResponse:
    """A database that is away is nobody's bug: the same request may succeed in a moment."""
    return of_failure(error, request.url.path)


def validation_problems(error: RequestValidationError, request: Request) -> list[FieldProblem]:
    """What is wrong with the fields of a request."""
    model = _model_asked_for(request)
    found: list[FieldProblem] = []
    for place, details in _by_place(error).items():
        # A fault of the whole has no path: the place stands for it.
        found += [
            p if p.path else p.model_copy(update={"path": place})
            for p in problems_of(details, model)
        ]
    return found


def _by_place(error: RequestValidationError) -> dict[str, list[dict[str, Any]]]:
    """The faults of the body, of the query and so on, each located within its place."""
    places: dict[str, list[dict[str, Any]]] = {}
    for detail in error.errors():
        place, *loc = detail["loc"]
        places.setdefault(str(place), []).append({**detail, "loc": tuple(loc)})
    return places


def _model_asked_for(request: Request) -> type[BaseModel] | None:
    """What the route reads the body or the query into; None: neither, or both."""
    hints = get_type_hints(request.scope["endpoint"])
    models = [
        kind
        for name, kind in hints.items()
        if name != "return" and isinstance(kind, type) and issubclass(kind, BaseModel)
    ]
    return models[0] if len(models) == 1 else None


async def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this type only
    if any(detail["type"] == "json_invalid" for detail in error.errors()):
        return problem_response(400, "the body is not JSON")
    errors = validation_problems(error, request)
    return problem_response(422, "; ".join(f"{e.path}: {e.message}" for e in errors), errors=errors)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type only
    detail = error.detail
    if error.status_code == 404 and detail == "Not Found":
        detail = f"there is nothing at {request.url.path}"
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = _allowed_methods(request) or headers.get("Allow", "")
        detail = f"{request.method} is not possible here; accepted: {headers['Allow']}"
    return problem_response(error.status_code, str(detail), headers=headers)


def _allowed_methods(request: Request) -> str:
    """Every method that some route has at this path; the router names those of the first only."""
    app: FastAPI = request.app
    asked = request.url.path.removeprefix(base_of(request))
    methods = {
        method.upper()
        for path, operations in app.openapi()["paths"].items()
        if compile_path(path)[0].match(asked)
        for method in operations
    }
    return ", ".join(sorted(methods))


def _shown(problem: FieldProblem) -> FieldProblem:
    """The problem with a value that JSON can carry and a person can read."""
    value = problem.value
    if isinstance(value, float):
        value = value if math.isfinite(value) else repr(value)
    elif isinstance(value, int):
        value = value if value.bit_length() <= MAX_INTEGER_BITS else "a huge integer"
    elif value is not None:
        value = _short(value if isinstance(value, str) else repr(value), MAX_VALUE)
    return FieldProblem(
        path=_short(problem.path, MAX_TEXT), message=_short(problem.message, MAX_TEXT), value=value
    )


def _short(text: str, length: int) -> str:
    """At most so much of the text, in UTF-8: lone surrogates are valid in JSON escapes only."""
    shown = text if len(text) <= length else f"{text[: length - 3]}..."
    return shown.encode("utf-8", "replace").decode()
