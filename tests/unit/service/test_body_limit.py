"""The body that a route is given: all of it, or the route is never asked."""

import asyncio
from typing import Any

import pytest

from service.body_limit import MAX_BODY_BYTES, BodyLimit

DISCONNECT = {"type": "http.disconnect"}


def part(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def serve(*messages: dict[str, Any]) -> tuple[list[bytes], list[int]]:
    """The bodies that the application behind was given, and the statuses that were answered."""
    waiting, bodies, statuses = list(messages), list[bytes](), list[int]()

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        bodies.append((await receive())["body"])

    scope = {"type": "http", "headers": [(b"transfer-encoding", b"chunked")]}
    asyncio.run(BodyLimit(app)(scope, receive, send))
    return bodies, statuses


def test_a_body_in_parts_is_given_whole() -> None:
    assert serve(part(b"name: a\n", more=True), part(b"budget: 1\n", more=False)) == (
        [b"name: a\nbudget: 1\n"],
        [],
    )


@pytest.mark.parametrize("before", [[], [part(b"epsilon: 1", more=True)]])
def test_a_body_that_broke_off_reaches_no_route(before: list[dict[str, Any]]) -> None:
    assert serve(*before, DISCONNECT) == ([], [])


def test_a_body_that_is_too_large_is_refused() -> None:
    assert serve(part(b"x" * (MAX_BODY_BYTES + 1), more=True)) == ([], [413])
