"""The drivers of a study on its page: how they ended, what they said last, and where the log is."""

import httpx
import pytest

from service.context import Context
from service.db.tables import Attempt, Study
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import get


async def test_an_attempt_is_shown_with_its_end_and_its_last_lines(
    client: httpx.AsyncClient, context: Context
) -> None:
    study_id = await seeding.training(context)
    async with context.database.session() as session:
        attempt = await session.get_one(Attempt, (f"{study_id}-private", 1))
        attempt.state, attempt.reason, attempt.exit_code = "lost", "the driver ended", 137
        attempt.last_lines = "step 12\n<b>Killed</b>"

    page = await get(client, f"/ui/studies/{study_id}")

    assert "Private run, attempt 1: lost, exit code 137" in page.text["attempts"]
    assert "<b>Killed</b>" in page.text["attempts"]  # as text: it is no element
    hrefs = [link.get("href") for link in page.all("a")]
    assert f"/studies/{study_id}/logs?run=private&attempt=1" in hrefs


@pytest.mark.parametrize(
    ("ranks", "told"),
    [(1, "attempt 2: live, 1 of 2 ranks"), (2, "attempt 2: live"), (None, "attempt 2: live")],
)
async def test_a_run_that_has_fewer_ranks_than_it_asked_for_says_so(
    client: httpx.AsyncClient, context: Context, ranks: int | None, told: str
) -> None:
    study_id = await seeding.training(context)
    async with context.database.session() as session:
        (await session.get_one(Attempt, (f"{study_id}-private", 2))).ranks = ranks
        study = await session.get_one(Study, study_id)
        study.spec = {**study.spec, "train": {**study.spec["train"], "workers": 2}}

    page = await get(client, f"/ui/studies/{study_id}")

    lines = [line.strip() for line in page.text["attempts"].splitlines()]
    assert f"Private run, {told}" in lines
    attempts = (await client.get(f"/studies/{study_id}/attempts")).json()["items"]
    assert attempts[-1]["ranks"] == ranks


@pytest.mark.parametrize(("is_paused", "verb"), [(False, "pause"), (True, "resume")])
async def test_a_study_offers_what_can_be_done_with_it(
    client: httpx.AsyncClient, context: Context, is_paused: bool, verb: str
) -> None:
    study_id = await seeding.training(context)
    async with context.database.session() as session:
        (await session.get_one(Study, study_id)).pause_requested = is_paused

    page = await get(client, f"/ui/studies/{study_id}")

    posts = [button.get("hx-post") for button in page.all("button")]
    assert f"/studies/{study_id}/{verb}" in posts
    assert ("paused" in page.text["meta"]) == is_paused


async def test_the_place_in_the_line_stands_in_the_reason(
    client: httpx.AsyncClient, context: Context
) -> None:
    study_id = await seeding.submitted(context)
    async with context.database.session() as session:
        (await session.get_one(Study, study_id)).reason = "waiting for a free slot"

    for path in ("/", f"/ui/studies/{study_id}"):
        page = await get(client, path)
        assert "waiting for a free slot, 1st in line" in page.text["main"]
