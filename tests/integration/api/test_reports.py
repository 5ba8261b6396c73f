"""Reports of trials that meet others: nothing is lost, doubled, or written for a driver that is dead."""

import asyncio
import random
from typing import Any

import httpx
import pytest
from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.session import Database
from service.db.tables import Attempt, Event, Run, Study, Trial
from service.settings import Settings
from service.studies.glance import progress_of
from service.trials import repository as trials
from service.trials.repository import Seen
from tan_core.wire import TrialRecord
from tests.fixtures.api import driver_headers
from tests.support.reports import completed_trial, make_score, make_trial
from tests.support.world import World

NUM_TRIALS = 24


@pytest.fixture
def world(client: httpx.AsyncClient, settings: Settings, database: Database) -> World:
    return World(client, settings, database)


@pytest.fixture
async def study_id(world: World) -> str:
    study_id = await world.submit(search={"rungs": [16, 64]})
    await world.tick(3)
    return study_id


async def put(world: World, study_id: str, trial: dict[str, Any], fence: int = 1) -> None:
    run_id = f"{study_id}-search"
    await world.report(run_id, "PUT", f"/trials/{trial['number']}", fence, trial=trial)


class TestManyAtOnce:
    @pytest.mark.slow
    async def test_reports_that_race_are_all_stored_with_an_event_each(
        self, world: World, study_id: str
    ) -> None:
        before = len(await world.events(study_id))
        reports = [completed_trial(number, number / 100) for number in range(NUM_TRIALS)]
        await asyncio.gather(*(put(world, study_id, trial) for trial in reports))

        events = await world.events(study_id)
        assert [event["seq"] for event in events] == [*range(1, before + NUM_TRIALS + 1)]
        told = events[before:]
        assert {event["trial"]["number"] for event in told} == set(range(NUM_TRIALS))
        # Each tells of those before it too, in the order of its number.
        assert [event["progress"]["trials_finished"] for event in told] == [
            *range(1, NUM_TRIALS + 1)
        ]
        assert (await world.study(study_id))["progress"]["trials_finished"] == NUM_TRIALS

    async def test_of_one_report_said_by_many_at_once_one_is_stored(
        self, world: World, study_id: str
    ) -> None:
        before = len(await world.events(study_id))
        await asyncio.gather(*(put(world, study_id, make_trial()) for _ in range(NUM_TRIALS)))
        assert len(await world.events(study_id)) == before + 1


class TestInBetween:
    """Something is written between the look at a study and the report's own statement."""

    async def test_an_event_makes_it_look_again(
        self, world: World, study_id: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, tries = trials.store, 0

        async def late(session: AsyncSession, seen: Seen, record: TrialRecord) -> bool:
            nonlocal tries
            tries += 1
            if tries == 1:
                await put(world, study_id, completed_trial(7, 0.9))
            return await store(session, seen, record)

        # The one in between comes through here too, as the second try.
        monkeypatch.setattr(trials, "store", late)
        await put(world, study_id, completed_trial(3, 0.5))

        assert tries == 3
        told = (await world.events(study_id))[-2:]
        assert [event["trial"]["number"] for event in told] == [7, 3]
        assert told[-1]["progress"]["trials_finished"] == 2
        assert told[-1]["progress"]["best_accuracy"] == 0.9

    async def test_a_score_of_the_same_trial_is_not_overwritten(
        self, world: World, study_id: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, was_late = trials.store, False

        async def late(session: AsyncSession, seen: Seen, record: TrialRecord) -> bool:
            nonlocal was_late
            if not was_late:
                was_late = True
                await put(world, study_id, make_trial(scores=[make_score(0, 0.4)], value=0.4))
            return await store(session, seen, record)

        monkeypatch.setattr(trials, "store", late)
        await put(world, study_id, make_trial(scores=[make_score(1, 0.6)], value=0.6))

        (trial,) = (await world.client.get(f"/studies/{study_id}/trials")).json()["items"]
        assert [(score["rung"], score["accuracy"]) for score in trial["scores"]] == [
            (0, 0.4),
            (1, 0.6),
        ]

    @pytest.mark.parametrize("has_event", [True, False])
    async def test_a_driver_that_was_given_up_meanwhile_writes_nothing(
        self, world: World, database: Database, study_id: str, has_event: bool
    ) -> None:
        """The report waits for the lock under which its attempt is lost."""
        run_id = f"{study_id}-search"
        before = await world.events(study_id)
        async with database.session() as session:
            await session.execute(select(Study).where(Study.id == study_id).with_for_update())
            report = asyncio.create_task(
                world.client.put(
                    f"/worker/runs/{run_id}/trials/0",
                    json={"fence": 1, "trial": completed_trial(0, 0.5)},
                    headers=driver_headers(world.settings, run_id, 1),
                )
            )
            await until_one_waits(database)
            await session.execute(
                update(Attempt).where(Attempt.run_id == run_id).values(state="lost")
            )
            if has_event:
                study = await session.get_one(Study, study_id)
                study.event_seq += 1
                session.add(Event(study_id=study_id, seq=study.event_seq, kind="attempt", data={}))

        assert (await report).status_code == 409
        assert len(await world.events(study_id)) == len(before) + has_event
        async with database.session() as session:
            assert (await session.scalars(select(Trial))).all() == []
            study = await session.get_one(Study, study_id)
            assert study.event_seq == len(before) + has_event

    async def test_rows_that_changed_without_an_event_are_taken_as_they_are(
        self, world: World, database: Database, study_id: str
    ) -> None:
        """A lease and a heartbeat are written under the report's feet: it waits, and is stored once."""
        run_id = f"{study_id}-search"
        before = len(await world.events(study_id))
        async with database.session() as session:
            await session.execute(select(Study).where(Study.id == study_id).with_for_update())
            report = asyncio.create_task(put(world, study_id, completed_trial(0, 0.5)))
            await until_one_waits(database)
            await session.execute(
                update(Study).where(Study.id == study_id).values(lease_owner="two", priority=7)
            )
            await session.execute(update(Run).where(Run.id == run_id).values(steps_per_second=1.0))
            await session.execute(
                update(Attempt).where(Attempt.run_id == run_id).values(reason="kept")
            )

        await report
        told = (await world.events(study_id))[before:]
        assert [(event["seq"], event["trial"]["value"]) for event in told] == [(before + 1, 0.5)]
        async with database.session() as session:
            study = await session.get_one(Study, study_id)
            run = await session.get_one(Run, run_id)
            attempt = await session.get_one(Attempt, (run_id, 1))
        assert (study.lease_owner, study.priority, study.event_seq) == ("two", 7, before + 1)
        assert (run.steps_per_second, run.progress_attempt) == (1.0, 1)
        assert (attempt.reason, attempt.heartbeat_at is not None) == ("kept", True)


async def until_one_waits(database: Database) -> None:
    """Until a statement waits for a lock."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    async with asyncio.timeout(20):
        while True:
            async with database.session() as session:
                if await session.scalar(waiting):
                    return
            await asyncio.sleep(0.01)


def some_report(rng: random.Random) -> dict[str, Any]:
    def accuracy() -> float | None:
        return rng.choice([None, 0.25, 0.5, 0.75])

    return make_trial(
        rng.randrange(4),
        rng.choice(["running", "running", "running", "completed", "pruned", "interrupted"]),
        scores=[make_score(rung, accuracy()) for rung in range(rng.randrange(3))],
        repeats=[make_score(rng.randrange(2), accuracy(), seed=1) for _ in range(rng.randrange(3))],
        value=accuracy(),
    )


@pytest.mark.parametrize("seed", range(5))
async def test_what_an_event_says_of_progress_is_what_the_tables_say(
    world: World, database: Database, study_id: str, seed: int
) -> None:
    """The progress of a trial's event is counted beside the database: it must count alike."""
    rng = random.Random(seed)
    seen: set[int] = set()
    for _ in range(30):
        await put(world, study_id, some_report(rng))
        event = (await world.events(study_id))[-1]
        async with database.session() as session:
            study = await session.get_one(Study, study_id)
            counted = await progress_of(session, study)
        assert event["progress"] == counted.model_dump(mode="json")
        seen.add(counted.repeats_finished)
    assert len(seen) > 1
