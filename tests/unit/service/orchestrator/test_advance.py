"""What a study is told of trouble on its way."""

import asyncio
import errno
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from sqlalchemy.exc import OperationalError

from service.db.migrate import SchemaError
from service.errors import ConflictError
from service.orchestrator import claims
from service.orchestrator.__main__ import (
    _warn_if_only_here,  # pyright: ignore[reportPrivateUsage]
)
from service.orchestrator.ticks import Ticks
from service.publication.published import RestoredBackupError
from tests.support.world import always_heard


class Troubled:
    """A reconciler that meets an error, and what it notes on the study."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.noted: list[str] = []

    async def advance(self, *_: object) -> None:
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
        (
            OSError(errno.ENOSPC, "No space left on device", "/home/tan/published.lock"),
            "trying again: OSError: No space left on device",
        ),
        (TimeoutError(), "trying again: TimeoutError"),
    ],
)
def test_it_hears_what_concerns_it_and_nothing_of_the_operators(
    error: Exception, told: str
) -> None:
    reconciler: Any = Troubled(error)
    asyncio.run(ticks(reconciler).advance("s-1", always_heard()))
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


def ticks(reconciler: Any, **parts: Any) -> Ticks:
    """Ticks over nothing, but for what is given."""
    made: dict[str, Any] = {
        "database": MagicMock(),
        "ear": AsyncMock(),
        "published": AsyncMock(),
        **parts,
    }
    return Ticks(reconciler=reconciler, owner="me", **made)


@pytest.fixture
def claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three studies are ours, in a database of this version."""

    async def studies(*_: object, **__: object) -> list[str]:
        return ["s-1", "s-2", "s-3"]

    monkeypatch.setattr(claims, "claim_open", studies)
    monkeypatch.setattr("service.orchestrator.ticks.expect_schema", AsyncMock())


@pytest.mark.usefixtures("claimed")
def test_who_is_told_to_stop_begins_with_no_further_study() -> None:
    stop, begun = asyncio.Event(), list[str]()

    class Slow:
        async def advance(self, study_id: str, _: object) -> None:
            begun.append(study_id)
            stop.set()

    asyncio.run(ticks(Slow()).take(stop))

    assert begun == ["s-1"]


@pytest.mark.usefixtures("claimed")
@pytest.mark.parametrize("error", [SchemaError("at schema 9"), RestoredBackupError("an old one")])
def test_nothing_is_decided_on_a_database_that_is_not_ours_as_it_should_be(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    reconciler, published = AsyncMock(), AsyncMock()
    published.check.side_effect = error
    asked = ticks(reconciler, published=published)

    for _ in range(3):
        asyncio.run(asked.take(asyncio.Event()))

    reconciler.advance.assert_not_awaited()
    assert caplog.messages == [f"nothing is decided: {error}"]


@pytest.mark.usefixtures("claimed")
def test_an_outage_is_told_in_full_once(caplog: pytest.LogCaptureFixture) -> None:
    reconciler, published = AsyncMock(), AsyncMock()
    reconciler.advance.side_effect = OperationalError("SELECT 1", {}, Exception("gone"))
    reconciler.note.side_effect = OperationalError("UPDATE", {}, Exception("gone"))
    asked = ticks(reconciler, published=published)

    for _ in range(50):
        asyncio.run(asked.take(asyncio.Event()))
    published.check.side_effect = OperationalError("SELECT 1", {}, Exception("gone"))
    for _ in range(50):
        asyncio.run(asked.take(asyncio.Event()))

    met = ("study {} does not move; trying again", "study {}: trying again at the next tick")
    assert caplog.messages == [
        *(each.format(study_id) for study_id in ("s-1", "s-2", "s-3") for each in met),
        "cannot look at the database; trying again",
    ]
