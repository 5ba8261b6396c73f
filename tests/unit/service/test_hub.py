"""The connection that listens for events, where it cannot."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import psycopg
import pytest

from service import hub as module
from service.hub import EventHub


def test_a_listener_that_cannot_listen_says_so_in_full_once_and_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    caplog.set_level("INFO")
    tries = 0

    class Refusing:
        """A database that refuses nineteen times to let us listen."""

        async def listen(self, channel: str) -> AsyncGenerator[str]:
            nonlocal tries
            tries += 1
            if tries < 20:
                raise psycopg.errors.InsufficientPrivilege(f"LISTEN {channel}")
            yield ""
            await asyncio.sleep(60)

    async def follow() -> None:
        database: Any = Refusing()
        hub = EventHub(database)
        async with hub.subscribe("s-1") as wake:
            await asyncio.wait_for(wake.wait(), 10)
        await hub.close()

    asyncio.run(follow())

    refused = "cannot listen for events; trying again"
    assert caplog.messages == [refused, f"over: {refused}"]
    assert "InsufficientPrivilege: LISTEN tan_event" in caplog.text
