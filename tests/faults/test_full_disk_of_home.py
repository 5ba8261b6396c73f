"""A disk of the state directory without space: nothing leaves that is not written down there first."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest.mock import AsyncMock, MagicMock

import httpx
import pytest
from pydantic import SecretStr

from service.datasets.service import ensure_digits
from service.db.session import Database
from service.orchestrator.ticks import Ticks
from tests.fixtures.api import make_settings, open_client
from tests.fixtures.postgres import DatabaseUrls
from tests.support.disks import fill, small_disk
from tests.support.world import World

pytestmark = pytest.mark.faults

FULL = "No space left on device"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", megabytes=1) as path:
        yield path


@pytest.fixture
async def world(
    disk: Path, database: Database, database_urls: DatabaseUrls
) -> AsyncIterator[World]:
    await ensure_digits(database)
    settings = make_settings(disk / "home", database_url=SecretStr(database_urls.app))
    async with open_client(settings, database) as client:
        yield World(client, settings, database)


async def look(world: World, study_id: str) -> None:
    """Three looks of an orchestrator that outlives what it meets."""
    ticks = Ticks(
        database=world.database,
        reconciler=world.reconciler(),
        ear=MagicMock(),
        published=AsyncMock(),
        owner="one",
    )
    for _ in range(3):
        await ticks.advance(study_id, world.heard)


async def test_a_private_run_waits_for_room_and_says_so(world: World, disk: Path) -> None:
    study_id = await world.submit()
    await world.tick(3)
    await world.finish_search(study_id)
    ballast = fill(disk)

    await look(world, study_id)

    study = await world.study(study_id)
    assert (study["state"], study["reason"]) == ("training", f"trying again: OSError: {FULL}")
    assert [job.submission_id for job in world.launcher.submitted] == [f"{study_id}-search-a1"]

    ballast.unlink()
    await look(world, study_id)

    assert world.launcher.submitted[-1].submission_id == f"{study_id}-private-a1"
    await world.begin_segment(study_id, 0, 100)
    await world.finish_private(study_id)
    await world.tick(2)
    study = await world.study(study_id)
    assert (study["state"], study["reason"]) == ("completed", None)


async def test_steps_wait_for_room_and_are_charged_once(world: World, disk: Path) -> None:
    study_id = await world.to_training()
    ballast = fill(disk)

    with pytest.raises(AssertionError, match=FULL):
        await world.begin_segment(study_id, 0, 10)

    ballast.unlink()
    granted = await world.begin_segment(study_id, 0, 10)
    assert granted["num_steps"] == 10
    account = (await world.client.get("/datasets/digits/ledger")).json()
    assert [each["charged_steps"] for each in account["reservations"]] == [10]


async def test_a_statement_waits_for_room_and_says_so(world: World, disk: Path) -> None:
    study_id = await world.trained()
    await world.tick(2)
    # Something else is reserved, so that the next thing that leaves has to be noted.
    await world.submit(name="other")
    ballast = fill(disk)

    refused: httpx.Response = await world.client.get("/datasets/digits/ledger/export")

    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "10"), refused.text
    assert refused.json()["detail"].startswith(f"the service cannot write its files: {FULL}")
    ballast.unlink()
    for path in ("/datasets/digits/ledger/export", f"/studies/{study_id}/statement"):
        assert (await world.client.get(path)).status_code == 200
