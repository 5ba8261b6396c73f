"""Accuracy by class on a study's page: the API's numbers, for eyes and for screen readers."""

import copy
import re

import httpx

from service.context import Context
from service.studies import repository
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import get


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


async def test_every_class_and_group_has_its_numbers_of_the_api_in_a_table(
    client: httpx.AsyncClient, context: Context
) -> None:
    study_id = await seeding.evaluated(context, baseline=True)
    told = (await client.get(f"/studies/{study_id}")).json()["run"]["evaluation"]

    page = await get(client, f"/ui/studies/{study_id}")

    shown = squeezed(page.text["evaluation"])
    assert squeezed("not covered by ε") in shown
    assert squeezed(told["note"]) in shown
    for part in (*told["classes"], *told["groups"]):
        private, baseline = part["private"], part["baseline"]
        apart = f"{100 * (private['accuracy'] - baseline['accuracy']):+.1f}".replace("-", "−")
        assert (
            squeezed(
                f"{part['name']} {private['num']} {100 * private['accuracy']:.1f} % "
                f"[{100 * private['low']:.1f}, {100 * private['high']:.1f}] "
                f"{100 * baseline['accuracy']:.1f} % "
                f"[{100 * baseline['low']:.1f}, {100 * baseline['high']:.1f}] {apart}"
            )
            in shown
        )
    for caption in ("Test accuracy by class", "Test accuracy by hand"):
        assert squeezed(caption) in shown
    assert all(a.get("scope") in ("row", "col") for a in page.all("th"))


async def test_without_a_baseline_there_is_no_column_of_it(
    client: httpx.AsyncClient, context: Context
) -> None:
    study_id = await seeding.evaluated(context, baseline=False)

    page = await get(client, f"/ui/studies/{study_id}")

    assert "Without privacy" not in page.text["evaluation"]
    assert "left" in page.text["evaluation"]


async def test_a_study_that_asked_for_none_has_no_section(
    client: httpx.AsyncClient, context: Context
) -> None:
    page = await get(client, f"/ui/studies/{await seeding.completed(context)}")

    assert page.text.get("evaluation", "").strip() == ""


async def test_a_group_of_empty_cells_has_a_name(
    client: httpx.AsyncClient, context: Context
) -> None:
    study_id = await seeding.evaluated(context)
    async with context.database.session() as session:
        run = await repository.run_of(session, study_id, "private")
        assert run is not None
        assert run.result is not None
        told = copy.deepcopy(run.result)
        for one in ("private", "baseline"):
            told["evaluation"][one]["groups"][0]["name"] = ""
        run.result = told

    page = await get(client, f"/ui/studies/{study_id}")

    assert "(empty)" in page.text["evaluation"]
