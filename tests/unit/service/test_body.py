"""What a body is read into."""

import asyncio
import threading
from typing import Any

import pytest
from starlette.requests import Request

from service import body


def test_yaml_is_parsed_beside_the_loop_that_serves_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsers = list[threading.Thread]()

    def parse(_text: str) -> dict[str, Any]:
        parsers.append(threading.current_thread())
        return {}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"a: 1", "more_body": False}

    monkeypatch.setattr(body, "parse_yaml", parse)
    scope = {"type": "http", "headers": [(b"content-type", b"application/yaml")]}
    assert asyncio.run(body.read_mapping(Request(scope, receive))) == {}
    assert parsers[0] is not threading.main_thread()
