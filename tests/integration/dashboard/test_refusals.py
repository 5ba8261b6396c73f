"""What cannot be shown is said on a page: which field, which value, and what there is instead."""

import httpx
import pytest

from service.context import Context
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import get


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("trial_state=bogus", ("trial_state.0: ", "'running'", "got 'bogus'")),
        ("order=bogus", ("order: order is number", "got 'bogus'")),
        ("rung=9", ("rung: ", "got '9'")),
        ("trials=0", ("trials: ", "got '0'")),
    ],
)
async def test_a_table_that_is_none_names_its_field_and_value(
    client: httpx.AsyncClient, context: Context, query: str, said: tuple[str, ...]
) -> None:
    study_id = await seeding.submitted(context)

    page = await get(client, f"/ui/studies/{study_id}?{query}", status=422)

    for words in said:
        assert words in page.text["main"]
    assert "Value error" not in page.text["main"]


async def test_an_unknown_dataset_has_no_calibration(
    client: httpx.AsyncClient, context: Context
) -> None:
    await seeding.ensure_digits(context.database)

    page = await get(client, "/ui/calibration?dataset=typo", status=404)

    assert "there is no dataset 'typo'; registered: digits" in page.text["main"]
    await get(client, "/ui/calibration?dataset=digits")


@pytest.mark.parametrize(
    ("name", "said"),
    [("history", "nothing is to be drawn in 'history'"), ("typo", "there is no chart 'typo'")],
)
async def test_a_chart_that_is_not_drawn_yet_is_another_thing_than_none(
    client: httpx.AsyncClient, context: Context, name: str, said: str
) -> None:
    study_id = await seeding.submitted(context)

    page = await get(client, f"/ui/studies/{study_id}/charts/{name}.csv", status=404)

    assert said in page.text["main"]


@pytest.mark.parametrize("path", ["/ui", "/ui/"])
async def test_the_dashboard_is_found_without_its_first_page(
    client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.headers["Location"]) == (307, "/")
