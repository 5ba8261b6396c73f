"""Who goes first, and what the others are told."""

from sqlalchemy import update

from service.db.session import Database
from service.db.tables import Study
from tests.support.world import World


async def states(world: World, *study_ids: str) -> list[str]:
    return [(await world.study(study_id))["state"] for study_id in study_ids]


async def give(database: Database, tenant: str, *study_ids: str) -> None:
    async with database.session() as session:
        await session.execute(update(Study).where(Study.id.in_(study_ids)).values(tenant=tenant))


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

    async def test_it_is_an_integer_of_a_known_range(self, world: World) -> None:
        spec = {**(await world.study(await world.submit()))["spec"], "priority": 101}

        refused = await world.client.post("/studies", json=spec)

        assert refused.status_code == 422
        assert refused.json()["errors"][0]["path"] == "priority"


class TestTenants:
    async def test_one_cannot_take_every_slot(self, world: World, database: Database) -> None:
        world.settings = world.settings.model_copy(
            update={"max_running_studies": 3, "max_running_studies_per_tenant": 1}
        )
        mine = [await world.submit(priority=9) for _ in range(2)]
        yours = await world.submit()
        await give(database, "mine", *mine)
        await give(database, "yours", yours)

        await world.tick(2)

        assert await states(world, *mine, yours) == ["simulating", "queued", "simulating"]
        waiting = await world.study(mine[1])
        assert waiting["reason"] == "waiting for a free slot of tenant mine, 1st in line"
