"""A study whose charges may be lost says so wherever its epsilon is; the others say nothing of it."""

import httpx
import pytest

from service.db.session import Database
from service.ledger.notes import RESTORED, RESTORED_NOTE
from service.ledger.service import Ledger
from service.settings import Settings
from service.text import beside_epsilon, guarantee
from tests.support.world import World

LEDGER = "/datasets/digits/ledger"


@pytest.fixture
def world(client: httpx.AsyncClient, settings: Settings, database: Database) -> World:
    return World(client, settings, database)


async def accept_a_restored_backup(database: Database) -> None:
    async with database.session() as session:
        await Ledger().attest_scope(
            session, "dataset:digits", note={RESTORED: {"reason": "dpo: disk lost"}}, actor="test"
        )


async def told(world: World, study_id: str) -> str | None:
    """The note of the study, which the list must say too."""
    study = await world.study(study_id)
    listed = (await world.client.get("/studies")).json()["items"]
    note = study["privacy"].get("restored_note")
    assert [each.get("restored_note") for each in listed if each["id"] == study_id] == [note]
    return note


@pytest.mark.slow
async def test_what_was_reserved_and_not_over_says_so(world: World, database: Database) -> None:
    over = await world.trained(name="over")
    await world.tick(3)
    assert (await world.study(over))["state"] == "completed"
    reserved = await world.submit(name="reserved")
    cancelled = await world.submit(name="cancelled")
    assert await told(world, reserved) is None

    await accept_a_restored_backup(database)
    later = await world.submit(name="later")
    await world.client.post(f"/studies/{cancelled}/cancel")
    await world.tick(3)

    assert [await told(world, each) for each in (over, reserved, cancelled, later)] == [
        None,
        RESTORED_NOTE,
        RESTORED_NOTE,
        None,
    ]
    privacy = (await world.study(reserved))["privacy"]
    assert guarantee(privacy).endswith(f"; {RESTORED_NOTE}")
    assert beside_epsilon(privacy).startswith(privacy["search_note"])


async def test_pages_say_it_beside_the_epsilon_of_that_study(
    world: World, database: Database
) -> None:
    old = await world.submit(name="old")
    await accept_a_restored_backup(database)
    new = await world.submit(name="new")

    async def mentions(path: str) -> int:
        answer = await world.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text.count(RESTORED_NOTE)

    assert await mentions(f"/ui/studies/{old}") == 3  # at a glance, in the plan, of the reservation
    assert await mentions(f"/ui/studies/{new}") == 0
    assert await mentions(f"/ui/compare?study={old}&study={new}") == 1
    assert await mentions("/") == 1
