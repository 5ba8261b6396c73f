"""The pages of a study that searches nothing: of a search they say nothing."""

import httpx

from service.context import Context
from service.db.tables import Study
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import get

GIVEN = {"accounting": "no_search", "trials": 0, "space": {}, "rungs": "auto"}


async def test_a_studys_page_has_no_part_of_a_search(
    client: httpx.AsyncClient, context: Context
) -> None:
    study_id = await seeding.submitted(context, search=GIVEN)

    page = await get(client, f"/ui/studies/{study_id}")

    assert not {"prediction", "search", "curves", "trials"} & page.text.keys()
    assert "Learning rate" in page.text["figures"]
    assert "hyper-parameters given with the study" in page.text["figures"]
    assert "Nothing is searched" in page.text["plan"]
    assert "no_search" in page.text["yaml"]
    assert "trials" not in page.text["yaml"]


async def test_its_parts_of_a_search_are_empty(client: httpx.AsyncClient, context: Context) -> None:
    study_id = await seeding.submitted(context, search=GIVEN)

    for part in ("trials", "trials.csv", "search", "curves", "curves?rung=1"):
        assert (await client.get(f"/ui/studies/{study_id}/{part}")).status_code == 200, part
    for chart in ("curves", "history"):
        answer = await client.get(f"/ui/studies/{study_id}/charts/{chart}.csv")
        assert answer.status_code == 404
        assert "nothing is to be drawn" in answer.text


async def test_it_stands_beside_one_with_a_search(
    client: httpx.AsyncClient, context: Context
) -> None:
    given = await seeding.submitted(context, search=GIVEN, name="given")
    searched = await seeding.simulating(context, name="searched")

    page = await get(client, f"/ui/compare?study={given}&study={searched}")

    assert any("no search" in text for text in page.text.values())


async def test_the_list_counts_no_trials_of_it(client: httpx.AsyncClient, context: Context) -> None:
    study_id = await seeding.submitted(context, search=GIVEN, promotion="manual")
    async with context.database.session() as session:
        study = await session.get_one(Study, study_id)
        study.state = "awaiting_approval"

    page = await get(client, "/")

    assert "not started" in page.text[f"row-{study_id}"]
    assert "trials" not in page.text[f"row-{study_id}"]
