"""Whoever follows a study and is cut off, anywhere and any number of times, sees each event once."""

import asyncio
import contextlib
import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.context import Context
from service.db.tables import Study
from service.hub import EventHub
from service.studies.events import append_event, set_state
from service.studies.stream import stream
from tests.fixtures.api import make_spec
from tests.support.rows import clone_study

NUM_STEPS = 25
_ids = itertools.count()


@pytest.fixture
async def context(settings, database):
    hub = EventHub(database)
    yield Context(settings=settings, database=database, hub=hub)
    await hub.close()


@pytest.fixture
async def submitted(client) -> str:
    return (await client.post("/studies", json=make_spec())).json()["id"]


async def emit(database, study_id: str, pauses: list[int]) -> None:
    """Steps as they come, then the end; a pause of 0 makes one burst of two."""
    for step in range(NUM_STEPS):
        async with database.session() as session:
            study = await session.get(Study, study_id)
            await append_event(session, study, "step", {"step": step})
        await asyncio.sleep(pauses[step % len(pauses)] / 1000)
    async with database.session() as session:
        await set_state(session, await session.get(Study, study_id), "failed")


async def read(context, study_id: str, after: int, limit: int) -> tuple[list[int], bool]:
    """The numbers of at most ``limit`` events after one, and whether the stream came to its end."""
    seen: list[int] = []
    async with contextlib.aclosing(stream(context, study_id, after)) as chunks:
        async for chunk in chunks:
            fields = dict(line.split(": ", 1) for line in chunk.decode().splitlines() if line)
            if "data" not in fields:
                continue
            assert fields["id"] == str(json.loads(fields["data"])["seq"])
            seen.append(int(fields["id"]))
            if len(seen) == limit:
                return seen, False
    return seen, True


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cuts=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    pauses=st.lists(st.sampled_from([0, 1, 5]), min_size=1, max_size=5),
)
async def test_no_gap_and_no_double_across_reconnects(context, submitted, cuts, pauses) -> None:
    study_id = f"s-replay-{next(_ids)}"
    await clone_study(context.database, submitted, id=study_id, event_seq=0)
    writer = asyncio.create_task(emit(context.database, study_id, pauses))
    seen, is_over = [], False
    for limit in itertools.cycle(cuts):
        part, is_over = await read(context, study_id, seen[-1] if seen else 0, limit)
        seen += part
        if is_over:
            break
    await writer
    assert seen == list(range(1, NUM_STEPS + 2))


async def test_the_header_is_where_a_client_goes_on(client, database, submitted) -> None:
    async with database.session() as session:
        study = await session.get(Study, submitted)
        await append_event(session, study, "step", {"step": 1})
        await set_state(session, study, "failed")
    path = f"/studies/{submitted}/events"
    for last in range(3):
        response = await client.get(path, headers={"Last-Event-ID": str(last)})
        found = [line for line in response.text.splitlines() if line.startswith("id: ")]
        assert found == [f"id: {seq}" for seq in range(last + 1, 4)]
    assert (await client.get(path, headers={"Last-Event-ID": "3"})).status_code == 204
    for odd in ("x", "-1", "1.5", "9" * 16):
        assert (await client.get(path, headers={"Last-Event-ID": odd})).status_code == 422


async def test_who_has_seen_more_than_there_is_is_told_to_read_anew(
    context, client, submitted
) -> None:
    """After a restore numbers begin again, and events below the last one that was seen are others."""
    async with contextlib.aclosing(stream(context, submitted, 500)) as chunks:
        told = await asyncio.wait_for(anext(chunks), timeout=2)
        async with context.database.session() as session:
            await set_state(session, await session.get(Study, submitted), "failed")
        rest = [chunk async for chunk in chunks]
    assert b"event: reset" in told
    assert b"id: 1\n" in told
    assert [b"id: 2\n" in chunk for chunk in rest] == [True]
    again = await client.get(f"/studies/{submitted}/events", headers={"Last-Event-ID": "500"})
    assert [line for line in again.text.splitlines() if line.startswith("id: ")] == ["id: 2"]
