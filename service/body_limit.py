"""Reads the body of a request before its route runs, and refuses one that is too large."""

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.problems import problem_response

MAX_BODY_BYTES = 1024 * 1024


class BodyLimit:
    """ASGI middleware: bodies above 1 MiB are refused."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await _read_body(scope, receive)
        except ClientDisconnect:
            return  # half a YAML document may be one too, of something that nobody asked for
        if body is None:
            refusal = problem_response(413, f"a body is at most {MAX_BODY_BYTES} bytes")
            await refusal(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)


async def _read_body(scope: Scope, receive: Receive) -> bytes | None:
    """The whole body, or None when it is too large. Requests without one are not waited for.

    Raises:
        ClientDisconnect: the caller left before its end.
    """
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
            raise ClientDisconnect
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
