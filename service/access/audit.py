"""One row for every change that somebody asked for, granted or refused.

What counts is what the route declares: a method that may change something, and more than ``read``.
"""

import logging

from starlette.datastructures import Headers
from starlette.types import Message, Scope

from service.access.routes import declared, route_of
from service.auth import repository, scopes
from service.auth.scopes import Principal
from service.db.session import Database
from service.db.tables import AuditEvent
from tan_core import log_records

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
MAX_TARGET = 200
_log = logging.getLogger(__name__)


class Audit:
    """Writes the events of one service."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, scope: Scope, answer: Message, *, address: str) -> None:
        """Write down the request with its answer, where it counts.

        It is awaited before the answer leaves: a caller that was told of a change finds it here.
        """
        if scope["method"] in SAFE_METHODS:
            return
        route, parameters = route_of(scope)
        guard = declared(route) if route else None
        # A POST that ``read`` may ask for only computes. Workers' reports are the history of their run.
        if route is None or guard is None or guard.scope is scopes.Scope.READ:
            return
        principal: Principal | None = scope["state"].get("principal")
        event = AuditEvent(
            token_id=principal.id if principal else None,
            tenant=principal.tenant if principal else None,
            address=address,
            method=scope["method"],
            route=route.path,
            target=_target(parameters, answer),
            status=answer["status"],
            request_id=str(log_records.bound().get("request_id", "")),
        )
        try:
            async with self._database.session() as session:
                await repository.append(session, event)
        except Exception:
            _log.error(
                "not in the audit: %s %s by %s, answered %s",
                *(event.method, event.route, event.token_id, event.status),
            )
            raise


def _target(parameters: dict[str, object], answer: Message) -> str | None:
    """What was to be changed: what the path names, else what the answer says was made."""
    named = next(iter(parameters.values()), None)
    made = Headers(raw=answer.get("headers", [])).get("location", "").rpartition("/")[2]
    target = str(named) if named is not None else made
    return target.replace("\x00", "")[:MAX_TARGET] or None
