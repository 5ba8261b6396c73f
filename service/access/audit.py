"""One row for every change that somebody asked for, granted or refused, and for every model and ledger that left.

What counts is what the route declares: a method that may change something, and more than ``read``.
"""

import logging

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import Message, Scope

from service.access.guard import Guard
from service.access.routes import declared, route_of
from service.auth import repository, scopes
from service.auth.scopes import Principal
from service.db.session import Database
from service.db.tables import AuditEvent
from tan_core import log_records

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
DOWNLOADS = frozenset({"/studies/{study_id}/model", "/datasets/{name}/ledger/export"})
"""Routes whose answers leave the service for good: who has had them is written down too."""
NOT_MODIFIED = 304
MAX_TARGET = 200
TARGETS = "audited"
"""In the state of a request: what it was to change, where the route knows better than its path."""
DONE = "audited_done"
"""Likewise: which of these it has changed, whatever the answer says of others."""
NO_CONTENT = 204
_log = logging.getLogger(__name__)


class Audit:
    """Writes the events of one service."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, scope: Scope, answer: Message, *, address: str) -> None:
        """Write down the request with its answer, where it counts.

        It is awaited before the answer leaves: a caller that was told of a change finds it here.
        """
        route, parameters = route_of(scope)
        guard = declared(route) if route else None
        if route is None or guard is None or not _counts(scope["method"], route, guard, answer):
            return
        principal: Principal | None = scope["state"].get("principal")
        targets = scope["state"].get(TARGETS) or [_target(parameters, answer)]
        done = scope["state"].get(DONE, ())
        events = [
            AuditEvent(
                token_id=principal.id if principal else None,
                tenant=principal.tenant if principal else None,
                address=address,
                method=scope["method"],
                route=route.path,
                target=target,
                status=NO_CONTENT if target in done else answer["status"],
                request_id=str(log_records.bound().get("request_id", "")),
            )
            for target in targets
        ]
        try:
            async with self._database.session() as session:
                await repository.append(session, events)
        except Exception:
            _log.error(
                "not in the audit: %s %s by %s, answered %s",
                *(scope["method"], route.path, events[0].token_id, answer["status"]),
            )
            raise


def note_targets(request: Request, *targets: str) -> None:
    """Let the audit say that these are what the request was to change, each in a row of its own."""
    setattr(request.state, TARGETS, [_cut(target) for target in targets])


def note_done(request: Request, target: str) -> None:
    """Let the audit say of one of these that it was changed, though the answer may refuse others."""
    done = getattr(request.state, DONE, frozenset[str]())
    setattr(request.state, DONE, done | {_cut(target)})


def _counts(method: str, route: APIRoute, guard: Guard, answer: Message) -> bool:
    if method in SAFE_METHODS:  # what the caller had already is no news
        is_had = method == "GET" and answer["status"] != NOT_MODIFIED
        return is_had and route.path in DOWNLOADS
    # A POST that ``read`` may ask for only computes. Workers' reports are the history of their run.
    return guard.scope is not scopes.Scope.READ


def _target(parameters: dict[str, object], answer: Message) -> str | None:
    """What was to be changed: what the path names, else what the answer says was made."""
    named = next(iter(parameters.values()), None)
    made = Headers(raw=answer.get("headers", [])).get("location", "").rpartition("/")[2]
    target = str(named) if named is not None else made
    return _cut(target) or None


def _cut(target: str) -> str:
    return target.replace("\x00", "")[:MAX_TARGET]
