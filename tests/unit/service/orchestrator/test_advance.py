"""What a study is told of trouble on its way."""

import asyncio
from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from sqlalchemy.exc import OperationalError

from service.errors import ConflictError
from service.orchestrator import claims
from service.orchestrator.__main__ import (
    _advance,  # pyright: ignore[reportPrivateUsage]
    _tick,  # pyright: ignore[reportPrivateUsage]
    _warn_if_only_here,  # pyright: ignore[reportPrivateUsage]
)


class Troubled:
    """A reconciler that meets an error, and what it notes on the study."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.noted: list[str] = []

    async def advance(self, *_: object, **__: object) -> None:
        raise self.error

    async def note(self, _study_id: str, reason: str) -> None:
        self.noted.append(reason)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConflictError("the scope moved on"), "trying again: ConflictError: the scope moved on"),
        (
            OperationalError("SELECT 1", {"key": "x"}, Exception("server at 10.0.0.5 failed")),
            "trying again: OperationalError",
        ),
    ],
)
def test_it_hears_what_concerns_it_and_nothing_of_the_database(error: Exception, told: str) -> None:
    reconciler: Any = Troubled(error)
    asyncio.run(_advance(reconciler, "s-1", datetime.now(UTC), is_unreached=False))
    assert reconciler.noted == [told]


@pytest.mark.parametrize(
    ("api", "ray", "is_told"),
    [
        ("http://0.0.0.0:8321", "http://ray-head:8265", True),
        ("http://127.0.0.1:8321", "http://10.0.0.7:8265", True),
        ("http://[::]:8321", "http://ray-head:8265", True),
        ("http://api:8321", "http://ray-head:8265", False),
        ("http://127.0.0.1:8321", "http://127.0.0.1:8265", False),
        ("http://0.0.0.0:8321", "http://localhost:8265", False),
    ],
)
def test_an_address_that_means_another_machine_to_drivers_is_told(
    api: str, ray: str, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    _warn_if_only_here(api, ray)

    assert [api in said and "TAN_WORKER_URL" in said for said in caplog.messages] == [
        True
    ] * is_told


def test_who_is_told_to_stop_begins_with_no_further_study(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, begun = asyncio.Event(), list[str]()

    class Slow:
        async def advance(self, study_id: str, **_: object) -> None:
            begun.append(study_id)
            stop.set()

    async def claimed(*_: object, **__: object) -> list[str]:
        return ["s-1", "s-2", "s-3"]

    monkeypatch.setattr(claims, "claim_open", claimed)
    ear: Any = AsyncMock(is_unreached=False)
    database: Any = MagicMock()
    reconciler: Any = Slow()
    asyncio.run(_tick(database, reconciler, ear, "me", stop))

    assert begun == ["s-1"]
