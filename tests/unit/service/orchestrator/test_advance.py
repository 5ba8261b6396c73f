"""What a study is told of trouble on its way."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from service.errors import ConflictError
from service.orchestrator.__main__ import _advance  # pyright: ignore[reportPrivateUsage]


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
    asyncio.run(_advance(reconciler, "s-1", datetime.now(UTC)))
    assert reconciler.noted == [told]
