"""What is old is forgotten, a batch at a time: events, deliveries of webhooks and idempotency keys, and nothing else."""

import json
from datetime import timedelta

import pytest
from sqlalchemy import func, select, text, update

from service.app import create_app
from service.context import Context
from service.db.tables import Event, IdempotencyKey, Study, Trial, WebhookDelivery
from service.retention import (
    Retention,
    forget_old_deliveries,
    forget_old_events,
    forget_old_keys,
)
from service.studies.stream import is_over, stream
from service.webhooks import outbox
from service.webhooks.targets import by_id
from tests.fixtures.api import make_spec
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


async def test_a_stream_from_before_begins_with_a_reset(context, database, settings):
    study_id = await ended(context, "old", days_ago=31)
    before = await followed(context, study_id)
    last = before[-1][1]["seq"]
    await Retention(database, settings.model_copy(update={"event_retention_days": 30})).sweep()
    (only,) = await followed(context, study_id)
    kind, data = only
    assert (kind, data["seq"], data["kind"]) == ("reset", last, "reset")
    assert (data["state"], data["reason"]) == ("failed", "out of luck")
    assert not await is_over(context, study_id, last - 1)
    assert await is_over(context, study_id, last)  # who has seen the reset has seen everything


async def test_batches_are_small_and_no_event_goes_unasked(context, database, settings):
    for number in range(3):
        await ended(context, f"old-{number}", days_ago=40 - number)
    await Retention(database, settings).sweep()
    async with database.session() as session:
        assert await forget_old_events(session, days=30, batch=2) == 2
    async with database.session() as session:
        assert await forget_old_events(session, days=30, batch=2) == 1
        assert await forget_old_events(session, days=30, batch=2) == 0


TARGETS = by_id(("https://hooks.example/tan",)).values()


async def told(context: Context, study_id: str, *, state: str = "delivered") -> None:
    """The messages about the study were sent, or one of them is still to be."""
    async with context.database.session() as session:
        await outbox.fill(session, TARGETS)
        await session.execute(
            update(WebhookDelivery)
            .where(WebhookDelivery.study_id == study_id)
            .values(state=state, finished_at=func.now() if state != "pending" else None)
        )


async def age(context: Context, *, days: float) -> None:
    """All events and keys are older than they were."""
    async with context.database.session() as session:
        for table in (Event.at, IdempotencyKey.created_at):
            await session.execute(
                update(table.class_).values({table.key: table - timedelta(days=days)})
            )


async def told_of(database) -> set[str]:
    async with database.session() as session:
        return set(await session.scalars(select(WebhookDelivery.study_id)))


async def test_only_deliveries_that_nothing_asks_for_again_go(context, database, settings):
    old = await ended(context, "old", days_ago=91)
    recent = await ended(context, "recent", days_ago=89)
    unsent = await ended(context, "unsent", days_ago=91)
    waiting = await seeding.awaiting_approval(context, name="waiting")
    for study_id in (old, recent, waiting):
        await told(context, study_id)
    await told(context, unsent, state="pending")
    await age(context, days=89)
    await Retention(database, settings).sweep()
    assert await told_of(database) == {recent, unsent, waiting}
    async with database.session() as session:
        await outbox.fill(session, TARGETS)
    assert await told_of(database) == {recent, unsent, waiting}


async def test_deliveries_go_in_batches(context, database):
    for number in range(3):
        await told(context, await ended(context, f"old-{number}", days_ago=40 - number))
    async with database.session() as session:
        assert await forget_old_deliveries(session, days=30, batch=2) == 2
    async with database.session() as session:
        assert await forget_old_deliveries(session, days=30, batch=2) == 1
        assert await forget_old_deliveries(session, days=30, batch=2) == 0


async def submitted(client, key: str) -> tuple[str, bool]:
    """The study that the key gives, and whether it was there before."""
    answer = await client.post("/studies", json=make_spec(), headers={"Idempotency-Key": key})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"], "Idempotent-Replayed" in answer.headers


async def test_a_key_is_known_until_its_time_is_over(client, context, database, settings):
    first, _ = await submitted(client, "nightly")
    await age(context, days=89)
    await Retention(database, settings).sweep()
    assert await submitted(client, "nightly") == (first, True)
    await age(context, days=2)
    await Retention(database, settings).sweep()
    second, is_known = await submitted(client, "nightly")
    assert second != first
    assert not is_known
    assert (await client.get(f"/studies/{first}")).status_code == 200


async def test_the_oldest_keys_go_first(client, context, database):
    for key in ("a", "b", "c"):
        await submitted(client, key)
        await age(context, days=1)
    async with database.session() as session:
        assert await forget_old_keys(session, days=0.5, batch=2) == 2
        assert list(await session.scalars(select(IdempotencyKey.key))) == ["local:c"]


async def test_one_kind_that_cannot_go_holds_up_no_other(
    client, context, database, settings, monkeypatch, caplog
):
    async def refuse(*_: object, **__: object) -> int:
        raise OSError("the disk is full")

    monkeypatch.setattr("service.retention.forget_old_keys", refuse)
    study_id = await ended(context, "old", days_ago=91)
    await told(context, study_id)
    await Retention(database, settings).sweep()
    assert "idempotency keys are kept for now" in caplog.text
    assert await told_of(database) == set()
