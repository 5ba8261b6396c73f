"""The threads for plans: bounded, and given back."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from service.arithmetic import Arithmetic
from service.errors import BusyError


def holding(hold: threading.Event, begun: threading.Semaphore) -> Callable[[], bool]:
    """What says that it has begun, and lasts until it is let go."""

    def compute() -> bool:
        begun.release()
        return hold.wait(10.0)

    return compute


async def test_who_finds_no_place_is_told_to_come_again() -> None:
    arithmetic = Arithmetic(at_once=2, patience_seconds=0.05)
    hold, begun = threading.Event(), threading.Semaphore(0)
    taken = [asyncio.create_task(arithmetic.run(holding(hold, begun))) for _ in range(2)]
    for _ in taken:
        await asyncio.to_thread(begun.acquire)

    with pytest.raises(BusyError) as refused:
        await arithmetic.run(lambda: 1)

    hold.set()
    await asyncio.gather(*taken)
    assert refused.value.status == 503
    assert refused.value.headers["Retry-After"] == "10"
    assert await arithmetic.run(lambda: 1) == 1


async def test_a_place_comes_free_whatever_the_end() -> None:
    arithmetic = Arithmetic(at_once=1, patience_seconds=5.0)

    with pytest.raises(ZeroDivisionError):
        await arithmetic.run(lambda: 1 // 0)

    assert await arithmetic.run(lambda: 2) == 2
