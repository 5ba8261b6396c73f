"""Errors of the control plane. Each carries its HTTP status; one handler renders them all.

ServiceError
├── NotFoundError             404  no such study, dataset, run
├── InvalidInputError         422  what was sent cannot be had; it lists the fields at fault
├── ConflictError             409  what was asked contradicts the present state
│   └── StaleFenceError       409  a driver whose attempt is no longer the live one
├── PreconditionFailedError   412  what is to be edited was edited meanwhile
├── PreconditionRequiredError 428  an edit that does not say what it is an edit of
├── UnauthorizedError         401  no token, or a wrong one
├── ForbiddenError            403  the token does not go so far
│   └── StalePageError        403  a page of the dashboard is of an earlier sign-in
├── TooManyRequestsError      429  faster than this caller may ask
└── UnsupportedMediaError     415  a body that is neither JSON nor YAML
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field

from tan_core.spec import FieldProblem


class Problem(BaseModel):
    """An error as ``application/problem+json`` (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "about:blank",
                    "title": "Unprocessable Content",
                    "status": 422,
                    "detail": "search.trials: Input should be greater than or equal to 1",
                    "instance": None,
                    "errors": [
                        {
                            "path": "search.trials",
                            "message": "Input should be greater than or equal to 1",
                            "value": 0,
                        }
                    ],
                }
            ]
        }
    )

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    instance: str | None = None
    errors: list[FieldProblem] = Field(default_factory=list[FieldProblem])
    """Every field at fault, with its path as in the YAML."""


class ServiceError(Exception):
    """An error that a caller can act upon."""

    status = 500
    type = "about:blank"
    """URI reference of the problem's type, for clients that act on it."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Of the answer."""

    def __init__(self, detail: str, *, problems: Sequence[FieldProblem] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.problems = list(problems)


class NotFoundError(ServiceError):
    """Nothing has this name."""

    status = 404


class InvalidInputError(ServiceError):
    """What was sent cannot be had."""

    status = 422

    @classmethod
    def of(cls, problems: Sequence[FieldProblem]) -> "InvalidInputError":
        """The error that lists these fields; its detail is what a person reads first."""
        # A fault of the whole has no path.
        told = (": ".join(filter(None, (p.path, p.message))) for p in problems)
        return cls("; ".join(told), problems=problems)

    @classmethod
    def at(cls, path: str, message: str, value: object = None) -> "InvalidInputError":
        """The error of one field."""
        return cls.of([FieldProblem(path=path, message=message, value=value)])


class ConflictError(ServiceError):
    """The request contradicts the present state."""

    status = 409


class StaleFenceError(ConflictError):
    """The driver's attempt is no longer the live one: it must stop and write nothing."""


class PreconditionFailedError(ServiceError):
    """What is to be edited was edited meanwhile."""

    status = 412


class PreconditionRequiredError(ServiceError):
    """An edit must say of which version it is one."""

    status = 428


class UnauthorizedError(ServiceError):
    """A token is missing or wrong."""

    status = 401
    headers = MappingProxyType({"WWW-Authenticate": "Bearer"})


class ForbiddenError(ServiceError):
    """Who asks is known, and may not do this."""

    status = 403


class StalePageError(ForbiddenError):
    """The page that asks is of an earlier sign-in in this browser: it asks again once it was loaded again."""

    type = "/problems/stale-page"


class BusyError(ServiceError):
    """It could be done, but not now."""

    status = 503
    headers = MappingProxyType({"Retry-After": "10"})


class TooManyRequestsError(ServiceError):
    """The caller asks faster than it may."""

    status = 429

    def __init__(self, detail: str, wait_seconds: float) -> None:
        super().__init__(f"{detail}; try again in {math.ceil(wait_seconds)} s")
        self.headers = {"Retry-After": str(math.ceil(wait_seconds))}


class UnsupportedMediaError(ServiceError):
    """The body is neither JSON nor YAML."""

    status = 415
