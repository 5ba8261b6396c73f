"""What every request passes before a route sees it, and every response on its way out.

* Bodies above 1 MiB are refused.
* On a loopback address only loopback names are served: a page that rebinds its own name to this
  machine gets nothing. A change asked for by another site's page is refused by its ``Origin``.
* With ``TAN_API_TOKEN`` set, users need ``Authorization: Bearer``; a browser asks for it as a password.
* A bug answers 500 with an id and nothing from inside.
"""

import base64
import hmac
import ipaddress
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.problems import problem_response, unexpected
from service.settings import Settings

MAX_BODY_BYTES = 1024 * 1024
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
OPEN_PATHS = ("/healthz", "/readyz", "/worker/")
"""Probes carry no token; workers carry their own, which their routes check."""
SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine, and nothing else."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Gate:
    """ASGI middleware: see the module."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._token = settings.api_token.get_secret_value() if settings.api_token else None
        self._only_loopback = is_loopback(settings.host)
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
        body = None if refusal else await _read_body(scope, receive)
        if refusal is None and body is None:
            refusal = problem_response(413, f"a body is at most {MAX_BODY_BYTES} bytes")
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
            return
        try:
            await self._app(scope, _replay(body or b"", receive), send_guarded)
        except Exception as error:
            if started:
                raise
            await unexpected(error, scope["path"])(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._only_loopback and not self._is_served(_hostname(host)):
            return problem_response(
                400, f"this service answers to localhost only, not to {host[:200]!r}"
            )
        origin = headers.get("origin")
        if (
            scope["method"] not in SAFE_METHODS
            and origin is not None
            and urlsplit(origin).netloc != host
        ):
            return problem_response(403, f"a change cannot be asked for from {origin[:200]!r}")
        if self._token and not scope["path"].startswith(OPEN_PATHS):
            given = _presented_token(headers.get("authorization", ""))
            if not hmac.compare_digest(given, self._token.encode()):
                return problem_response(
                    401,
                    "a token is needed: Authorization: Bearer <TAN_API_TOKEN>",
                    headers={"WWW-Authenticate": 'Bearer, Basic realm="tan-search"'},
                )
        return None

    def _is_served(self, host: str | None) -> bool:
        return host is not None and (is_loopback(host) or host == self._worker_host)


def _presented_token(authorization: str) -> bytes:
    """The token of a program (Bearer), or of a browser: Basic, as the password of any user."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() != "basic":
        return value.encode() if scheme.lower() == "bearer" else b""
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


async def _read_body(scope: Scope, receive: Receive) -> bytes | None:
    """The whole body, or None when it is too large. Requests without one are not waited for."""
    headers = Headers(scope=scope)
    length = headers.get("content-length", "")
    if not length and "transfer-encoding" not in headers:
        return b""
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        return None
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body"):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """``receive`` that gives the read body first, then what follows it: the disconnect."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        message = await receive()
        # A request without a body announces an empty one: it has been given already.
        return await receive() if message["type"] == "http.request" else message

    return replayed


def _add_security_headers(message: MutableMapping[str, Any]) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in SECURITY_HEADERS.items():
        headers.setdefault(name, value)
