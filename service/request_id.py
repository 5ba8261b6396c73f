"""A name for every request: in its answer, in its log records, in what is kept of it."""

import re
import secrets
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tan_core import log_records

HEADER = "X-Request-ID"
_ACCEPTED = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestId:
    """ASGI middleware: takes the caller's ``X-Request-ID`` where it is one, else makes one up.

    Up to 64 letters, digits, dots, dashes and underscores are accepted: it is written to logs.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if _ACCEPTED.fullmatch(given) else secrets.token_hex(8)

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        with log_records.bind(
            request_id=request_id,
            **{name: _path_parameter(scope, name) for name in ("study_id", "run_id")},
        ):
            await self._app(scope, receive, send_named)


def _path_parameter(scope: Scope, name: str) -> Callable[[], object]:
    """The parameter, asked for when a record is written: the router has read the path by then."""
    return lambda: scope.get("path_params", {}).get(name)
