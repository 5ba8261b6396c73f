"""Old events are forgotten, study by study, and a stream says so."""

import json
from datetime import timedelta

import pytest
from sqlalchemy import func, select, text, update

from service.app import create_app
from service.context import Context
from service.db.tables import Event, Study, Trial
from service.retention import Retention, forget_old_events
from service.studies.stream import is_over, stream
from tests.integration.dashboard import seeding


@pytest.fixture
def context(settings, database) -> Context:
    return create_app(settings, database).state.context


async def ended(context: Context, name: str, *, days_ago: float) -> str:
    study_id = await seeding.failed(context, "out of luck", name=name)
    async with context.database.session() as session:
        await session.execute(
            update(Study)
            .where(Study.id == study_id)
            .values(finished_at=func.now() - timedelta(days=days_ago))
        )
    return study_id


async def followed(context: Context, study_id: str, after: int = 0) -> list[tuple[str, dict]]:
    """Kind and data of everything that the stream of an ended study has."""
    blocks = [chunk.decode() async for chunk in stream(context, study_id, after)]
    lines = [dict(line.split(": ", 1) for line in block.strip().splitlines()) for block in blocks]
    return [(line["event"], json.loads(line["data"])) for line in lines]


async def test_only_events_of_studies_that_ended_long_ago_go(context, database):
    old = await ended(context, "old", days_ago=31)
    recent = await ended(context, "recent", days_ago=29)
    running = await seeding.simulating(context, name="running")
    async with database.session() as session:
        assert await forget_old_events(session, days=30) == 1
    async with database.session() as session:
        kept = set(await session.scalars(select(Event.study_id)))
        trials = await session.scalar(
            select(func.count()).select_from(Trial).where(Trial.study_id == old)
        )
        entries = await session.scalar(text("SELECT count(*) FROM ledger_entry"))
    assert kept == {recent, running}
    assert trials == 3
    assert entries


async def test_a_stream_from_before_begins_with_a_reset(context, database):
    study_id = await ended(context, "old", days_ago=31)
    before = await followed(context, study_id)
    last = before[-1][1]["seq"]
    await Retention(database, 30).sweep()
    (only,) = await followed(context, study_id)
    kind, data = only
    assert (kind, data["seq"], data["kind"]) == ("reset", last, "reset")
    assert (data["state"], data["reason"]) == ("failed", "out of luck")
    assert not await is_over(context, study_id, last - 1)
    assert await is_over(context, study_id, last)  # who has seen the reset has seen everything


async def test_batches_are_small_and_nothing_goes_unasked(context, database):
    for number in range(3):
        await ended(context, f"old-{number}", days_ago=40 - number)
    await Retention(database, None).sweep()
    async with database.session() as session:
        assert await forget_old_events(session, days=30, batch=2) == 2
    async with database.session() as session:
        assert await forget_old_events(session, days=30, batch=2) == 1
        assert await forget_old_events(session, days=30, batch=2) == 0
