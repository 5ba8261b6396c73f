"""Requests that are worked on: so many of one caller, and others beside them."""

import asyncio

import pytest

from service.access.in_hand import InHand
from service.errors import TooManyRequestsError


async def test_one_caller_waits_for_itself_and_nobody_else_does() -> None:
    in_hand = InHand(2)
    first, _ = [await in_hand.take("flood") for _ in range(2)]
    third = asyncio.create_task(in_hand.take("flood"))
    async with asyncio.timeout(1):
        await in_hand.take("other")
    assert not third.done()

    first()
    async with asyncio.timeout(1):
        await third


async def test_who_waits_too_long_is_told_to_come_again() -> None:
    in_hand = InHand(1, patience_seconds=0.01)
    let_go = await in_hand.take("a")
    with pytest.raises(TooManyRequestsError, match="more than 1 requests"):
        await in_hand.take("a")
    let_go()
    await in_hand.take("a")


async def test_a_place_is_given_back_once() -> None:
    in_hand = InHand(1, patience_seconds=0.01)
    let_go = await in_hand.take("a")
    let_go()
    let_go()
    held = await in_hand.take("a")
    with pytest.raises(TooManyRequestsError):
        await in_hand.take("a")
    held()
