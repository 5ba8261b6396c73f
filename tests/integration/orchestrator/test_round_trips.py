"""What is done all the time asks PostgreSQL as seldom as this; docs/scale.md says what it costs."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from service.orchestrator import claims
from tests.support.reports import completed_trial, make_score, make_trial
from tests.support.round_trips import RoundTrips
from tests.support.world import LEASE, World

WARM = 8
"""Before the count: the driver prepares a statement when it has been sent a few times."""
Act = Callable[[int], Awaitable[Any]]


async def round_trips(world: World, act: Act) -> int:
    """Of one such act, the cheapest of three: some count the drivers every few seconds."""
    for number in range(WARM):
        await act(number)
    counted: list[int] = []
    for number in range(WARM, WARM + 3):
        with RoundTrips.counted(world.database) as trips:
            await act(number)
        counted.append(trips.number)
    return min(counted)


@pytest.fixture
async def run_id(world: World) -> str:
    """A search whose driver runs."""
    study_id = await world.submit()
    await world.tick(3)
    await world.report(f"{study_id}-search", "POST", "/heartbeat")
    return f"{study_id}-search"


async def test_a_transaction_is_counted_whole(world: World) -> None:
    async def claim(_: int) -> None:
        async with world.database.session() as session:
            await claims.claim_open(session, owner="one", lease=LEASE)

    assert await round_trips(world, claim) == 3  # BEGIN, the statement, COMMIT


async def test_a_new_trial_is_seen_and_stored(world: World, run_id: str) -> None:
    async def begin(number: int) -> None:
        await world.report(run_id, "PUT", f"/trials/{number}", trial=make_trial(number))

    assert await round_trips(world, begin) == 2


async def test_so_is_a_trial_that_ends(world: World, run_id: str) -> None:
    numbers = range(WARM + 3)
    for number in numbers:
        scores = [make_score(0, 0.6)]
        trial = make_trial(number, scores=scores, value=0.6)
        await world.report(run_id, "PUT", f"/trials/{number}", trial=trial)

    async def end(number: int) -> None:
        trial = completed_trial(number, 0.6, 0.7)
        await world.report(run_id, "PUT", f"/trials/{number}", trial=trial)

    assert await round_trips(world, end) == 2


async def test_what_is_said_again_costs_no_more(world: World, run_id: str) -> None:
    async def repeat(_: int) -> None:
        await world.report(run_id, "PUT", "/trials/0", trial=make_trial(0))

    assert await round_trips(world, repeat) == 2


async def test_a_heartbeat_is_one(world: World, run_id: str) -> None:
    async def beat(_: int) -> None:
        await world.report(run_id, "POST", "/heartbeat")

    assert await round_trips(world, beat) == 1


async def test_a_look_at_one_that_waits_in_line_is_one(world: World) -> None:
    first, waiting = await world.submit(), await world.submit()
    await world.tick(2)
    assert (await world.study(waiting))["queue_position"] == 1
    reconciler = world.reconciler()

    async def look(_: int) -> None:
        await reconciler.advance(waiting, world.heard)

    assert await round_trips(world, look) == 1
    await world.client.post(f"/studies/{first}/cancel")
    await world.tick(4)
    assert (await world.study(waiting))["state"] == "simulating"


@pytest.mark.parametrize("budget", [None, 5.0])
async def test_a_look_that_finds_nothing_to_do_is_one(world: World, budget: float | None) -> None:
    study_id = await world.submit(budget={"gpu_hours": budget})
    await world.tick(3)
    await world.report(f"{study_id}-search", "POST", "/heartbeat")
    reconciler = world.reconciler()

    async def look(_: int) -> None:
        await reconciler.advance(study_id, world.heard)

    assert await round_trips(world, look) == 1
