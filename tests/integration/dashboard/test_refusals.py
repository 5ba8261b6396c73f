"""What cannot be shown is said on a page: which field, which value, and what there is instead."""

from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from service.app import create_app
from service.context import Context
from service.db.session import Database
from service.problems import MEDIA_TYPE
from service.settings import Settings
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import Page, get


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("trial_state=bogus", ("trial_state.0: ", "'running'", "got 'bogus'")),
        ("order=bogus", ("order: order is number", "got 'bogus'")),
        ("rung=9", ("rung: ", "got '9'")),
        ("trials=0", ("trials: ", "got '0'")),
        ("low.learning_rate=much", ("low.learning_rate: ", "got 'much'")),
        ("high.learning_rate=inf", ("high.learning_rate: ", "got ")),
        ("one_of.a%20b=1", ("one_of.a b", "letters, digits")),
        ("one_of.optimizer=%00", ("one_of.optimizer",)),
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


@pytest.mark.parametrize("path", ["/ui", "/ui/", "/ui/studies"])
async def test_the_dashboard_is_found_without_its_first_page(
    client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.headers["Location"]) == (307, "/")


@pytest.mark.parametrize("token", [None, "t"], ids=["nobody is asked for a token", "a token"])
async def test_a_database_that_is_away_is_said_to_who_looks_and_to_scripts(
    tmp_path: Path, token: str | None
) -> None:
    database = Database("postgresql://nobody@127.0.0.1:9/none")
    settings = Settings(home=tmp_path, api_token=SecretStr(token) if token else None)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    transport = httpx.ASGITransport(create_app(settings, database), root_path="/tan")
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers
    ) as client:
        for path in ("/tan/", "/tan/ui/studies/s-0", "/tan/ui/datasets", "/tan/ui/calibration.csv"):
            answer = await client.get(path)
            assert answer.status_code == 503
            assert answer.headers["content-type"].startswith("text/html")
            assert answer.headers["retry-after"] == "1"
            assert answer.headers["cache-control"] == "no-store"
            assert "default-src 'self'" in answer.headers["content-security-policy"]
            page = Page(answer.text)
            assert "the database does not answer" in page.text["main"]
            assert "127.0.0.1" not in answer.text
            (again,) = [each for each in page.all("section") if "data-reload" in each]
            assert (again["hx-get"], again["hx-trigger"]) == ("", "every 3s")
            assert page.all("a")[1]["href"] == "/tan/"

            problem = await client.get(path, headers={"HX-Request": "true"})
            assert problem.status_code == 503
            assert problem.json()["detail"].startswith("the database does not answer")
        assert (await client.get("/tan/studies")).json()["status"] == 503
        sent = await client.post(
            "/tan/ui/sign-in", headers={"Accept": "text/html"}, data={"token": "t"}
        )
        assert "data-reload" not in sent.text
    await database.close()


async def test_what_no_page_expected_is_said_on_a_page(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("service.dashboard.listing.read_filters", fail)

    page = await get(client, "/", status=500)

    assert "The service failed" in page.text["main"]
    assert "its log has the details under" in page.text["main"]
    assert "secret" not in page.text["main"]


BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def test_a_browser_at_an_address_of_nothing_sees_a_page_and_a_program_a_problem(
    client: httpx.AsyncClient,
) -> None:
    seen = await client.get("/studeis/s-1", headers=BROWSER)
    assert (seen.status_code, seen.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "there is nothing at /studeis/s-1" in Page(seen.text).text["main"]
    assert "Accept" in seen.headers["vary"].split(", ")
    for headers in ({}, {"Accept": "application/json"}, {**BROWSER, "HX-Request": "true"}):
        told = await client.get("/studeis/s-1", headers=headers)
        assert (told.status_code, told.headers["content-type"]) == (404, MEDIA_TYPE)


@pytest.mark.parametrize("path", ["/studies/s-none", "/datasets/none", "/studies?limit=0"])
async def test_the_api_answers_a_browser_as_everybody_else(
    client: httpx.AsyncClient, path: str
) -> None:
    told = await client.get(path, headers=BROWSER)
    assert told.headers["content-type"] == MEDIA_TYPE
