"""Reads that are shared are as fresh as reads of one's own."""

import asyncio

import pytest

from service.shared_reads import SharedReads


async def test_those_who_ask_together_share_one_read() -> None:
    reads, shared = [], SharedReads()

    async def read() -> int:
        await asyncio.sleep(0)
        reads.append(len(reads))
        return reads[-1]

    assert await asyncio.gather(*(shared.get("a", read) for _ in range(50))) == [0] * 50
    assert await shared.get("a", read) == 1


async def test_nobody_is_told_what_was_read_before_it_asked() -> None:
    shared, known, gate = SharedReads(), ["old"], asyncio.Event()

    async def read() -> str:
        found = known[0]
        await gate.wait()
        return found

    early = asyncio.create_task(shared.get("a", read))
    await asyncio.sleep(0.01)
    known[0] = "new"
    late = [asyncio.create_task(shared.get("a", read)) for _ in range(3)]
    other = asyncio.create_task(shared.get("b", read))
    await asyncio.sleep(0.01)
    gate.set()

    assert await early == "old"
    assert await asyncio.gather(*late, other) == ["new"] * 4


async def test_who_leaves_takes_nothing_from_the_others() -> None:
    shared, gate = SharedReads(), asyncio.Event()

    async def read() -> str:
        await gate.wait()
        return "whole"

    first, second = (asyncio.create_task(shared.get("a", read)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    gate.set()

    assert await second == "whole"


async def test_what_goes_wrong_is_told_to_all_and_is_over() -> None:
    shared, told = SharedReads(), [OSError("away")]

    async def read() -> str:
        if told:
            raise told.pop()
        return "back"

    answers = await asyncio.gather(
        *(shared.get("a", read) for _ in range(3)), return_exceptions=True
    )
    assert [str(answer) for answer in answers] == ["away"] * 3
    assert await shared.get("a", read) == "back"


async def test_an_error_that_nobody_stayed_for_is_not_complained_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared, gate = SharedReads(), asyncio.Event()

    async def read() -> str:
        await gate.wait()
        raise OSError("away")

    only = asyncio.create_task(shared.get("a", read))
    await asyncio.sleep(0.01)
    only.cancel()
    gate.set()
    await asyncio.sleep(0.01)

    assert caplog.messages == []
