"""The database's clock, which leases and lifetimes are kept by, is put forward or back by hours."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from service.auth import authenticator
from service.db.clock import clock
from service.db.session import Database
from service.db.tables import Attempt, WebhookDelivery
from service.orchestrator import compute
from service.orchestrator.decide import Heard
from service.orchestrator.hearing import Hearing
from service.settings import Settings
from service.studies import repository as studies
from service.webhooks import outbox
from service.webhooks.targets import Target
from tests.fixtures.api import make_settings, make_spec, open_client
from tests.fixtures.postgres import DatabaseUrls
from tests.support.clock import DatabaseClock
from tests.support.world import World

pytestmark = pytest.mark.faults

HOURS = timedelta(hours=3)
Look = Callable[[], Awaitable[None]]
both_ways = pytest.mark.parametrize("by", [HOURS, -HOURS], ids=["forward", "back"])


@pytest.fixture
def its_clock(database_urls: DatabaseUrls) -> DatabaseClock:
    return DatabaseClock(database_urls.superuser)


@pytest.fixture
def world(client: httpx.AsyncClient, settings: Settings, database: Database) -> World:
    return World(client, settings, database)


class TestDriver:
    @pytest.fixture
    async def look(
        self, world: World, its_clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[Look]:
        """One look of an orchestrator that has been listening all the time."""

        async def answers(_: Hearing) -> bool:
            return True

        monkeypatch.setattr(Hearing, "_api_answers", answers)
        hearing = Hearing("http://api")

        async def look() -> None:
            async with world.database.session() as session:
                now = await clock(session)
            heard = await hearing.look(now + its_clock.ahead)
            world.heard = Heard(
                looking_since=heard.looking_since - its_clock.ahead,
                listening_since=heard.listening_since - its_clock.ahead,
            )
            await world.tick()

        yield look
        await hearing.close()

    @pytest.mark.slow
    @both_ways
    async def test_one_that_goes_on_beating_keeps_its_attempt(
        self, world: World, its_clock: DatabaseClock, look: Look, by: timedelta
    ) -> None:
        study_id = await world.to_training()
        await world.report(f"{study_id}-private", "POST", "/heartbeat")
        await look()

        its_clock.jump(by)
        await look()
        await world.report(f"{study_id}-private", "POST", "/heartbeat")
        await look()

        assert world.launcher.stopped == []
        assert (await world.study(study_id))["run"]["attempt"] == 1

    @pytest.mark.slow
    @both_ways
    async def test_one_that_died_is_missed_as_soon_as_without_a_jump(
        self, world: World, its_clock: DatabaseClock, look: Look, by: timedelta
    ) -> None:
        study_id = await world.to_training()
        await world.report(f"{study_id}-private", "POST", "/heartbeat")
        await look()
        its_clock.jump(by)
        await look()
        assert world.launcher.stopped == []

        step = timedelta(seconds=4)
        for _ in range(int(world.settings.heartbeat_timeout_seconds / step.total_seconds()) + 1):
            its_clock.jump(step)
            await look()

        assert world.launcher.stopped == [f"{study_id}-private-a1"]

    @both_ways
    async def test_its_steps_are_told_as_before(
        self, world: World, its_clock: DatabaseClock, by: timedelta
    ) -> None:
        study_id = await world.to_training()
        run_id = f"{study_id}-private"
        await world.report(run_id, "POST", "/heartbeat", step=1)

        its_clock.jump(by)
        await world.report(run_id, "POST", "/heartbeat", step=2)

        told = [event["step"] for event in await world.events(study_id) if "step" in event]
        assert told == [1, 2]

    @both_ways
    async def test_what_it_charged_stays_and_is_charged_once(
        self, world: World, its_clock: DatabaseClock, by: timedelta
    ) -> None:
        study_id = await world.to_training()
        first = await world.begin_segment(study_id, 0, 10)
        its_clock.jump(by)
        assert await world.begin_segment(study_id, 0, 10) == first
        assert (await world.study(study_id))["privacy"]["charged_steps"] == 10
        assert (await world.client.get("/datasets/digits/ledger/verify")).json()["is_valid"]

    async def test_time_that_ran_backwards_gives_no_device_hours_back(
        self, world: World, owner: Database, its_clock: DatabaseClock
    ) -> None:
        study_id = await world.to_training()
        its_clock.jump(-HOURS)
        async with owner.session() as session:
            study = await studies.find(session, study_id)
            assert study is not None
            study.spec = {**study.spec, "budget": {"gpu_hours": 1e-9}}
            await session.flush()
            is_used_up = await compute.is_used_up(session, study)
            attempt = await session.get_one(Attempt, (f"{study_id}-private", 1))
            assert attempt.submitted_at is not None
            assert attempt.submitted_at > await clock(session)
        assert is_used_up  # by the search alone


@both_ways
async def test_what_a_dead_orchestrator_held_is_soon_another_ones(
    world: World, its_clock: DatabaseClock, by: timedelta
) -> None:
    study_id = await world.submit()
    await world.tick(3, owner="dead")

    its_clock.jump(by)
    await world.tick(owner="next")

    assert (await world.study(study_id))["state"] == "simulating"
    async with world.database.session() as session:
        study = await studies.find(session, study_id)
    assert study is not None
    assert study.lease_owner == "next"


async def test_a_token_lives_by_the_databases_clock(
    tmp_path: Path, database: Database, its_clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "CACHE_SECONDS", 0.0)
    settings = make_settings(tmp_path, api_token="bootstrap")
    headers = {"Authorization": "Bearer bootstrap"}
    asked = {"name": "short", "scopes": ["read"], "expires_in_seconds": 3600}
    async with open_client(settings, database, headers=headers) as client:
        made = (await client.post("/tokens", json=asked)).json()

        async def status() -> int:
            own = {"Authorization": f"Bearer {made['token']}"}
            return (await client.get("/studies", headers=own)).status_code

        assert await status() == 200
        its_clock.jump(HOURS)
        assert await status() == 401
        its_clock.jump(-HOURS)
        assert await status() == 200


@both_ways
async def test_a_key_is_known_for_ever(
    world: World, its_clock: DatabaseClock, by: timedelta
) -> None:
    once = {"json": make_spec(), "headers": {"Idempotency-Key": "once"}}
    first = await world.client.post("/studies", **once)
    its_clock.jump(by)
    again = await world.client.post("/studies", **once)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]


async def test_a_message_that_was_put_off_is_not_put_off_for_hours(
    world: World, its_clock: DatabaseClock
) -> None:
    study_id = await world.submit()
    target = Target("https://hooks.example.org/a")
    async with world.database.session() as session:
        session.add(
            WebhookDelivery(
                id="d",
                study_id=study_id,
                event="completed",
                seq=1,
                target=target.id,
                host=target.host,
                body="{}",
                state="pending",
            )
        )
    its_clock.jump(-HOURS)
    async with world.database.session() as session:
        assert [each.id for each in await outbox.take(session, target, limit=9)] == ["d"]
