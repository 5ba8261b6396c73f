"""The threads for plans: bounded, and given back."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from service.arithmetic import Arithmetic
from service.auth.scopes import asking
from service.errors import BusyError
from tan_core.accounting.effort import check_effort
from tan_core.errors import TooHardError


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


async def test_one_tenant_holds_up_no_other_however_much_it_asks() -> None:
    arithmetic = Arithmetic(patience_seconds=0.5)
    hold, begun = threading.Event(), threading.Semaphore(0)

    asking.set("acme")
    flood = [asyncio.create_task(arithmetic.run(holding(hold, begun))) for _ in range(40)]
    for _ in range(3):
        await asyncio.to_thread(begun.acquire)
    asking.set("umbrella")
    answer = await arithmetic.run(lambda: 1)

    ended = await asyncio.gather(*flood[3:], return_exceptions=True)
    hold.set()
    assert answer == 1
    assert {type(each) for each in ended} == {BusyError}
    assert await asyncio.gather(*flood[:3]) == [True] * 3


async def test_a_place_comes_free_whatever_the_end() -> None:
    arithmetic = Arithmetic(at_once=1, patience_seconds=5.0)

    with pytest.raises(ZeroDivisionError):
        await arithmetic.run(lambda: 1 // 0)

    assert await arithmetic.run(lambda: 2) == 2


async def test_what_takes_too_long_is_stopped_and_gives_its_place_back() -> None:
    arithmetic = Arithmetic(at_once=1)
    asked = 0

    def endless() -> None:
        nonlocal asked
        while True:
            asked += 1
            check_effort("pld")

    with pytest.raises(TooHardError, match=r"pld was stopped: it takes more than 0.05 s"):
        await arithmetic.run(endless, effort_seconds=0.05)

    assert asked > 1
    assert await arithmetic.run(lambda: 2) == 2
