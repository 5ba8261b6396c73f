"""The page of a privacy statement, over a study that was trained."""

import json
from pathlib import Path

import httpx
import pytest

from service.context import Context
from service.datasets.service import ensure_digits
from service.db.session import Database
from service.db.tables import Study
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import get
from tests.support.world import World


@pytest.fixture
async def study(client: httpx.AsyncClient, context: Context, database: Database) -> str:
    await ensure_digits(database)
    world = World(client, context.settings, database)
    study_id = await world.trained()
    await world.tick(3)
    return study_id


async def test_a_person_reads_what_the_signed_document_says(
    client: httpx.AsyncClient, study: str
) -> None:
    said = (await client.get(f"/studies/{study}/statement")).json()
    page = await get(client, f"/ui/studies/{study}/statement")

    privacy = said["privacy"]
    assert page.data["guarantee"][:2] == [privacy["epsilon"], privacy["delta"]]
    assert said["search"]["note"] in page.text["guarantee"]
    assert "neighbours: add or remove one" in page.text["guarantee"]
    assert "wants to tell two cases apart" in page.text["meaning"]
    for line in said["assumptions"]:
        assert line in page.text["assumptions"]
    for line in said["coverage"]:
        assert line.partition(": ")[2][1:] in page.text["coverage"]
    for part in (said["weights"]["sha256"], said["signature"]["key_id"]):
        assert part in page.text["evidence"]
    assert "the key that this service signs with" in page.text["evidence"]
    hrefs = [a.get("href") for a in page.all("a")]
    assert f"/studies/{study}/statement" in hrefs
    (loads,) = [a["hx-get"] for _, a in page.elements if a.get("hx-trigger") == "load"]
    assert loads == f"/ui/studies/{study}/statement/verdict"


@pytest.mark.slow
async def test_it_is_verified_in_the_page(client: httpx.AsyncClient, study: str) -> None:
    part = await client.get(f"/ui/studies/{study}/statement/verdict")

    assert part.status_code == 200
    assert "Everything holds." in part.text


@pytest.mark.slow
async def test_a_document_that_was_changed_where_it_is_kept_does_not_hold(
    client: httpx.AsyncClient, context: Context, study: str
) -> None:
    async with context.database.session() as session:
        row = await session.get_one(Study, study)
        assert row.statement is not None
        changed = {**row.statement["privacy"], "epsilon": 0.5}
        row.statement = {**row.statement, "privacy": changed}

    part = await client.get(f"/ui/studies/{study}/statement/verdict")

    assert "This statement does not hold." in part.text


@pytest.mark.slow
async def test_one_of_another_study_does_not_hold(
    client: httpx.AsyncClient, context: Context, study: str
) -> None:
    other = await seeding.completed(context)
    async with context.database.session() as session:
        mixed = (await session.get_one(Study, study)).statement
        (await session.get_one(Study, other)).statement = mixed

    part = await client.get(f"/ui/studies/{other}/statement/verdict")

    assert "This statement does not hold." in part.text
    assert f"asked for was &#39;{other}&#39;" in part.text


async def test_one_of_an_earlier_version_is_told_and_one_of_another_form_is_left_to_its_json(
    client: httpx.AsyncClient, context: Context
) -> None:
    study_id = await seeding.completed(context)
    recorded = Path(__file__).parents[2] / "unit/service/cli/statement.json"

    page = await get(client, f"/ui/studies/{study_id}/statement")
    assert "guarantee" not in page.text
    assert f"/studies/{study_id}/statement" in [a.get("href") for a in page.all("a")]

    async with context.database.session() as session:
        row = await session.get_one(Study, study_id)
        row.statement = {**json.loads(recorded.read_text()), "ledger": None}
    page = await get(client, f"/ui/studies/{study_id}/statement")
    assert "a key that this service does not know" in page.text["evidence"]


async def test_there_is_none_before_the_end(client: httpx.AsyncClient, context: Context) -> None:
    study_id = await seeding.training(context)
    for part in ("", "/verdict"):
        response = await client.get(f"/ui/studies/{study_id}/statement{part}")
        assert response.status_code == 404
        assert "exists once it is completed" in response.text
