"""How long requests take, by route template: never by path, whose ids would make a series each."""

import time
from collections.abc import MutableMapping
from typing import Any

from prometheus_client import Histogram
from prometheus_client.registry import CollectorRegistry
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NO_ROUTE = "none"
"""Of what was refused at the gate, and of paths that nothing is at."""


def make_histogram(registry: CollectorRegistry) -> Histogram:
    """The histogram of one application."""
    return Histogram(
        "tan_http_request_seconds",
        "Time from a request to the beginning of its answer, by route template and status class.",
        ("method", "route", "status"),
        buckets=BUCKETS,
        registry=registry,
    )


class RequestLatency:
    """ASGI middleware: times every request up to the first byte of its answer.

    Event streams last for hours: what a caller waits for is their beginning.
    """

    def __init__(self, app: ASGIApp, histogram: Histogram) -> None:
        self._app = app
        self._histogram = histogram

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()

        async def send_timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds = time.perf_counter() - start
                self._histogram.labels(*_labels(scope, message["status"])).observe(seconds)
            await send(message)

        await self._app(scope, receive, send_timed)


def _labels(scope: MutableMapping[str, Any], status: int) -> tuple[str, str, str]:
    method = scope["method"] if scope["method"] in METHODS else "other"
    route = getattr(scope.get("route"), "path", NO_ROUTE)
    return method, route, f"{status // 100}xx"
