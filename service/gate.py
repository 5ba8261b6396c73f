"""The outermost checks of a request, and what every response gets on its way out.

* Where only this machine is served, only loopback names are: a page that rebinds its own name to this
  machine gets nothing.
* A bug answers 500 with an id and nothing from inside.

Who asks is found out behind it (service/access/door.py), before a body is read (service/body_limit.py).
"""

from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.hosts import is_loopback
from service.problems import of_failure, problem_response
from service.settings import Settings

SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Gate:
    """ASGI middleware: see the module."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._only_loopback = not settings.serves_others
        self._worker_host = urlsplit(settings.worker_url or "").hostname

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _add_security_headers(message)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
            return
        try:
            await self._app(scope, receive, send_guarded)
        except Exception as error:
            if started:
                raise
            await of_failure(error, scope["path"])(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        host = Headers(scope=scope).get("host", "")
        if self._only_loopback and not self._is_served(_hostname(host)):
            return problem_response(
                400, f"this service answers to localhost only, not to {host[:200]!r}"
            )
        return None

    def _is_served(self, host: str | None) -> bool:
        return host is not None and (is_loopback(host) or host == self._worker_host)


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _add_security_headers(message: MutableMapping[str, Any]) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in SECURITY_HEADERS.items():
        headers.setdefault(name, value)
