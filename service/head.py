"""``HEAD`` of whatever can be had by ``GET``, as RFC 9110 has it: its status and headers, and nothing else.

It lies within all that looks at who asks: the audit tells a download from a look at one.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class _HeadIsOutError(Exception):
    """All that was asked for has been sent: an event stream would go on for hours."""


class Head:
    """ASGI middleware: see the module."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        asked: Scope = {**scope, "method": "GET"}

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope["route"] = asked.get("route")  # for who measures by it
                await send(message)
                return
            await send({"type": "http.response.body", "body": b""})
            raise _HeadIsOutError

        try:
            await self._app(asked, receive, send_head)
        except _HeadIsOutError:
            return
