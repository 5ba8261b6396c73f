"""Who goes first, and what the others are told."""

import asyncio
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest
from sqlalchemy import update

from service.db.session import Database
from service.db.tables import Attempt, Run, Study
from service.orchestrator import assignments
from service.orchestrator.decide import FIRST_PAUSE, PAUSED
from service.orchestrator.ticks import Ticks
from tests.support.world import World


async def states(world: World, *study_ids: str) -> list[str]:
    return [(await world.study(study_id))["state"] for study_id in study_ids]


async def give(owner: Database, tenant: str, *study_ids: str) -> None:
    async with owner.session() as session:
        await session.execute(update(Study).where(Study.id.in_(study_ids)).values(tenant=tenant))


async def fail_attempts(world: World, study_id: str, times: int) -> None:
    """Let the search's driver end so often without a trial."""
    for fence in range(1, times + 1):
        await world.tick(3)
        await world.report(
            f"{study_id}-search",
            "POST",
            "/finish",
            fence,
            outcome="failed",
            reason="OSError: stale",
        )


async def let_rest(database: Database, study_id: str, duration: timedelta) -> None:
    """Let so much time pass since the study's attempts ended."""
    async with database.session() as session:
        await session.execute(
            update(Attempt)
            .where(Attempt.run_id == f"{study_id}-search")
            .values(finished_at=Attempt.finished_at - duration)
        )


class TestPriority:
    async def test_the_higher_goes_first_then_the_older(self, world: World) -> None:
        low, normal, older, newer = [
            await world.submit(priority=priority) for priority in (-1, 0, 5, 5)
        ]

        assert [(await world.study(each))["queue_position"] for each in (older, newer)] == [1, 2]
        await world.tick(1)

        assert await states(world, low, normal, older, newer) == [
            "queued",
            "queued",
            "simulating",
            "queued",
        ]

    async def test_those_that_wait_are_told_their_place(self, world: World) -> None:
        first, second, third = [await world.submit() for _ in range(3)]
        await world.tick(1)

        shown = [await world.study(each) for each in (first, second, third)]
        listed = (await world.client.get("/studies")).json()["items"]

        assert [each["queue_position"] for each in shown] == [None, 1, 2]
        assert shown[2]["reason"] == "waiting for a free slot, 2nd in line"
        assert [each["queue_position"] for each in listed] == [2, 1, None]
        assert listed[0]["reason"] == shown[2]["reason"]

    async def test_what_is_cancelled_stands_in_nobodys_way(self, world: World) -> None:
        first, second, third = [await world.submit() for _ in range(3)]
        await world.tick(1)
        await world.client.post(f"/studies/{second}/cancel")

        assert (await world.study(third))["queue_position"] == 1
        await world.client.post(f"/studies/{first}/cancel")
        await world.tick(4)

        assert (await world.study(third))["state"] == "simulating"

    async def test_a_study_that_cannot_be_begun_holds_up_none_behind_it(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second, third = [await world.submit() for _ in range(3)]
        search_run = assignments.search_run

        async def broken(session: Any, study: Study, **rest: Any) -> Run:
            if study.id == first:
                raise KeyError("a spec of another version")
            return await search_run(session, study, **rest)

        async def look_at_all(times: int) -> None:
            ticks = Ticks(
                database=world.database,
                reconciler=world.reconciler("one"),
                ear=AsyncMock(look=AsyncMock(return_value=world.heard)),
                published=AsyncMock(),
                owner="one",
            )
            for _ in range(times):
                await ticks.take(asyncio.Event())

        with monkeypatch.context() as patch:
            patch.setattr(assignments, "search_run", broken)
            await look_at_all(2)
            assert await states(world, first, second, third) == ["queued", "simulating", "queued"]
            await world.client.post(f"/studies/{second}/cancel")
            await look_at_all(4)

        assert await states(world, first, second, third) == ["queued", "cancelled", "simulating"]
        stuck = await world.study(first)
        assert (stuck["reason"], stuck["queue_position"]) == (
            "waiting for a free slot, 1st in line",
            1,
        )

        await world.client.post(f"/studies/{third}/cancel")
        await look_at_all(4)
        assert (await world.study(first))["state"] == "simulating"

    async def test_it_is_an_integer_of_a_known_range(self, world: World) -> None:
        spec = {**(await world.study(await world.submit()))["spec"], "priority": 101}

        refused = await world.client.post("/studies", json=spec)

        assert refused.status_code == 422
        assert refused.json()["errors"][0]["path"] == "priority"


class TestRest:
    async def test_a_study_that_rests_for_long_gives_its_slot_and_stands_in_line_again(
        self, world: World, database: Database
    ) -> None:
        first, second, third = [await world.submit() for _ in range(3)]
        await fail_attempts(world, first, 3)
        world.first_pause = FIRST_PAUSE
        await world.tick(2)

        assert await states(world, first, second, third) == ["simulating", "simulating", "queued"]
        resting = await world.study(first)
        assert (resting["queue_position"], resting["paused"]) == (None, False)
        assert resting["reason"] == "attempt 4 begins 80 s after the last one: OSError: stale"
        assert (await world.events(first))[-1]["reason"] == resting["reason"]
        assert (await world.study(third))["queue_position"] == 1

        await let_rest(database, first, timedelta(seconds=80))
        await world.tick(2)
        waiting = [await world.study(each) for each in (first, third)]
        assert [each["queue_position"] for each in waiting] == [1, 2]
        assert waiting[0]["reason"] == "waiting for a free slot, 1st in line"

        await world.client.post(f"/studies/{second}/cancel")
        await world.tick(6)
        assert world.launcher.submitted[-1].submission_id == f"{first}-search-a4"
        assert (await world.study(third))["state"] == "queued"

    async def test_who_rests_a_moment_keeps_it(self, world: World) -> None:
        first, second = await world.submit(), await world.submit()
        await fail_attempts(world, first, 2)
        world.first_pause = FIRST_PAUSE
        await world.tick(2)

        assert (await world.study(first))["reason"].startswith("attempt 3 begins 20 s after")
        assert (await world.study(second))["state"] == "queued"

    @pytest.mark.slow
    async def test_where_nobody_waits_it_goes_on_at_once(
        self, world: World, database: Database
    ) -> None:
        study_id = await world.submit()
        await fail_attempts(world, study_id, 3)
        world.first_pause = FIRST_PAUSE
        await world.tick(2)

        await let_rest(database, study_id, timedelta(seconds=80))
        await world.tick(2)

        assert world.launcher.submitted[-1].submission_id == f"{study_id}-search-a4"

    async def test_a_pause_that_ends_during_the_rest_prolongs_it_by_nothing(
        self, world: World, database: Database
    ) -> None:
        study_id = await world.submit()
        await fail_attempts(world, study_id, 3)
        world.first_pause = FIRST_PAUSE
        await world.tick(1)
        await world.client.post(f"/studies/{study_id}/pause")
        await world.tick(1)
        assert (await world.study(study_id))["reason"] == PAUSED
        await world.client.post(f"/studies/{study_id}/resume")
        await world.tick(1)
        assert (await world.study(study_id))["reason"].startswith("attempt 4 begins 80 s after")

        await let_rest(database, study_id, timedelta(seconds=80))
        await world.tick(2)

        assert world.launcher.submitted[-1].submission_id == f"{study_id}-search-a4"


class TestTenants:
    async def test_one_cannot_take_every_slot(self, world: World, owner: Database) -> None:
        world.settings = world.settings.model_copy(
            update={"max_running_studies": 3, "max_running_studies_per_tenant": 1}
        )
        mine = [await world.submit(priority=9) for _ in range(2)]
        yours = await world.submit()
        await give(owner, "mine", *mine)
        await give(owner, "yours", yours)

        await world.tick(2)

        assert await states(world, *mine, yours) == ["simulating", "queued", "simulating"]
        waiting = await world.study(mine[1])
        assert waiting["reason"] == "waiting for a free slot of tenant mine, 1st in line"
