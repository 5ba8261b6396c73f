"""Since when drivers could be heard, where a tick takes long."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from service.orchestrator import hearing as module
from service.orchestrator.decide import Heard
from service.orchestrator.hearing import GAP, Ear, Hearing

START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """A database whose clock goes on by a second at each look at it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = START
        self.is_late = asyncio.Event()
        """It is longer than a gap since the start."""
        monkeypatch.setattr(module, "clock", self.look)

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[None]:
        yield

    async def look(self, _: object) -> datetime:
        self.now += timedelta(seconds=1)
        if self.now - START > 3 * GAP:
            self.is_late.set()
        return self.now


def heard_since(start: datetime) -> Heard:
    return Heard(looking_since=start, listening_since=start)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Any:
    async def answers(_: Hearing) -> bool:
        await asyncio.sleep(0)
        return True

    monkeypatch.setattr(Hearing, "_api_answers", answers)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    return Clock(monkeypatch)


def test_a_tick_that_lasts_longer_than_a_gap_is_none(database: Any) -> None:
    async def two_ticks() -> list[Heard]:
        hearing, stop = Hearing("http://api"), asyncio.Event()
        ear = Ear(database, hearing)
        beside = asyncio.create_task(ear.run(stop))
        first = await ear.look()
        await asyncio.wait_for(database.is_late.wait(), 20)  # a study that takes long
        second = await ear.look()
        stop.set()
        await beside
        await hearing.close()
        return [first, second]

    first, second = asyncio.run(two_ticks())
    assert first == second == heard_since(START + timedelta(seconds=1))


def test_looks_at_the_same_time_see_the_clock_go_on(database: Any) -> None:
    async def many() -> list[Heard]:
        hearing = Hearing("http://api")
        ear = Ear(database, hearing)
        found = await asyncio.gather(*(ear.look() for _ in range(20)))
        await hearing.close()
        return found

    assert set(asyncio.run(many())) == {heard_since(START + timedelta(seconds=1))}


def test_looks_go_on_where_the_api_falls_silent_until_the_clock_jumps(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [True, False, False, True, True]

    async def answer(_: Hearing) -> bool:
        return answers.pop(0)

    monkeypatch.setattr(Hearing, "_api_answers", answer)

    async def look() -> list[tuple[int, int]]:
        hearing, found = Hearing("http://api"), []
        for at in (0, 1, 2, 3, 3600):
            heard = await hearing.look(START + timedelta(seconds=at))
            found.append(
                tuple(
                    int((since - START).total_seconds())
                    for since in (heard.looking_since, heard.listening_since)
                )
            )
        return found

    assert asyncio.run(look()) == [(0, 0), (0, 1), (0, 2), (0, 3), (3600, 3600)]


def test_an_api_that_never_answers_is_told_once_with_its_address(
    database: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [False] * 7 + [True]

    async def answer(_: Hearing) -> bool:
        return answers.pop(0)

    monkeypatch.setattr(Hearing, "_api_answers", answer)

    async def look() -> list[bool]:
        ear, found = Ear(database, Hearing("http://nowhere:1")), []
        while answers:
            found.append((await ear.look()).is_unreached)
        return found

    assert asyncio.run(look()) == [False] * 4 + [True] * 3 + [False]
    (said,) = caplog.messages
    assert "nobody answers at http://nowhere:1" in said
    assert "TAN_WORKER_URL" in said


@pytest.mark.parametrize(
    ("answer", "is_heard"),
    [
        (httpx.Response(200, json={"status": "ok", "of_a_later_version": 1}), True),
        (httpx.Response(200, text="<html>Back in a moment.</html>"), False),
        (httpx.Response(200, json=["ok"]), False),
        (httpx.Response(503, json={"status": "ok"}), False),
    ],
    ids=["api", "page", "else", "trouble"],
)
def test_a_page_of_who_stands_before_the_api_is_not_the_api(
    monkeypatch: pytest.MonkeyPatch, answer: httpx.Response, is_heard: bool
) -> None:
    """No heartbeat passes there either: drivers that live would be stopped for their silence."""
    transport, client = httpx.MockTransport(lambda _: answer), httpx.AsyncClient
    monkeypatch.setattr(
        httpx, "AsyncClient", lambda **options: client(transport=transport, **options)
    )

    async def look() -> bool:
        hearing = Hearing("http://api")
        found = await hearing._api_answers()  # pyright: ignore[reportPrivateUsage]
        await hearing.close()
        return found

    assert asyncio.run(look()) is is_heard
