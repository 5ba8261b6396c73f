"""Many who follow one study cost the database what one does, and wait with it where it is away."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from service.context import Context
from service.db.tables import Study
from service.hub import EventHub
from service.studies import repository
from service.studies.events import append_event, set_state
from service.studies.stream import stream
from tests.fixtures.api import make_spec
from tests.support.round_trips import RoundTrips

NUM_FOLLOWERS = 100


@pytest.fixture
async def context(settings, database) -> AsyncIterator[Context]:
    hub = EventHub(database)
    yield Context(settings=settings, database=database, hub=hub)
    await hub.close()


@pytest.fixture
async def study_id(client) -> str:
    return (await client.post("/studies", json=make_spec())).json()["id"]


async def test_an_event_is_read_once_for_all_who_follow(context, study_id) -> None:
    told = [0] * NUM_FOLLOWERS

    async def follow(number: int) -> None:
        async for _ in stream(context, study_id, 0):
            told[number] += 1

    following = [asyncio.create_task(follow(number)) for number in range(NUM_FOLLOWERS)]
    await _all_told(told, 1)

    with RoundTrips.counted(context.database) as trips:
        await _append(context, study_id)
        await _all_told(told, 2)

    # Of the event itself five, and of a read six; it may wake them twice, and they may poll meanwhile.
    assert trips.number <= 30
    async with context.database.session() as session:
        await set_state(session, await session.get_one(Study, study_id), "failed")
    await asyncio.wait_for(asyncio.gather(*following), 10)
    assert told == [3] * NUM_FOLLOWERS


async def test_a_stream_outlives_a_database_that_is_away(context, study_id, monkeypatch) -> None:
    monkeypatch.setattr("service.studies.stream.POLL_SECONDS", 0.02)
    read, troubles = repository.events_after, []

    async def read_in_vain(*args, **options):
        if len(troubles) < 3:
            troubles.append(PoolTimeoutError("QueuePool limit"))
            raise troubles[-1]
        return await read(*args, **options)

    monkeypatch.setattr(repository, "events_after", read_in_vain)
    async with context.database.session() as session:
        await set_state(session, await session.get_one(Study, study_id), "failed")

    told = [chunk async for chunk in stream(context, study_id, 0)]

    assert len(troubles) == 3
    assert [chunk.split(b"id: ")[1].split(b"\n")[0] for chunk in told] == [b"1", b"2"]


async def _append(context: Context, study_id: str) -> None:
    async with context.database.session() as session:
        await append_event(
            session, await session.get_one(Study, study_id), "step", {"step": 1, "steps": 2}
        )


async def _all_told(told: list[int], wanted: int) -> None:
    async with asyncio.timeout(20):
        while min(told) < wanted:  # noqa: ASYNC110 - of a hundred counters
            await asyncio.sleep(0.05)
