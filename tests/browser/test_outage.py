"""The database is away while someone looks: pages say so, try again, and come back by themselves."""

import contextlib
from collections.abc import Iterator

import psycopg
import pytest
from playwright.async_api import Dialog, expect
from psycopg import sql

from tests.browser.axe import violations
from tests.browser.conftest import Service, Tab
from tests.fixtures.postgres import DatabaseUrls, Server
from tests.integration.dashboard import seeding

pytestmark = pytest.mark.browser


@contextlib.contextmanager
def away(server: Server, urls: DatabaseUrls) -> Iterator[None]:
    """The database ends its connections and takes no new ones."""
    with psycopg.connect(server.postgres.url_superuser, autocommit=True) as connection:
        allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        name = sql.Identifier(urls.name)
        connection.execute(allow.format(name, sql.SQL("false")))
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [urls.name]
        )
        try:
            yield
        finally:
            connection.execute(allow.format(name, sql.SQL("true")))


async def test_a_page_says_so_and_comes_by_itself(
    service: Service, tab: Tab, postgres_server: Server, database_urls: DatabaseUrls
) -> None:
    study_id = await seeding.completed(service.context, name="patient")

    async with tab.open("/") as page:
        for path, heading in ((f"/ui/studies/{study_id}", "patient"), ("/", "Studies")):
            with away(postgres_server, database_urls):
                answer = await page.goto(path)
                assert answer is not None
                assert answer.status == 503
                said = page.get_by_role("heading", name="Not available right now")
                await expect(said).to_be_visible()
                await expect(page.get_by_text("the database does not answer")).to_be_visible()
                assert await violations(page) == []

            shown = page.get_by_role("heading", name=heading, exact=True)
            await expect(shown).to_be_visible(timeout=20_000)


async def test_an_open_page_says_so_and_refuses_in_the_services_words(
    service: Service, tab: Tab, postgres_server: Server, database_urls: DatabaseUrls
) -> None:
    for name in ("one", "two"):
        await seeding.submitted(service.context, name=name)

    async with tab.open("/") as page:
        page.on("dialog", Dialog.accept)
        with away(postgres_server, database_urls):
            connection = page.locator("#connection")
            await expect(connection).to_have_text("The database does not answer; trying again")
            await expect(page.get_by_role("link", name="one")).to_be_visible()
            await page.get_by_role("button", name="Study", exact=True).click()
            await expect(page.get_by_role("alert")).to_contain_text("the database does not answer")
            await page.get_by_role("checkbox", name="Choose one").check()
            await page.get_by_role("button", name="Cancel").click()
            await expect(page.get_by_role("alert")).to_contain_text("the database does not answer")

        await expect(connection).to_be_hidden(timeout=20_000)
        await page.get_by_role("button", name="Study", exact=True).click()
        await expect(page.get_by_role("alert")).to_be_hidden()


async def test_what_was_refused_is_seen_where_one_acts(service: Service, tab: Tab) -> None:
    async with tab.open("/ui/new") as page:
        await page.set_viewport_size({"width": 1280, "height": 500})
        await page.route("**/ui/new", lambda route: route.abort())
        alert = page.get_by_role("alert")
        await page.get_by_role("button", name="Check").click()

        await expect(alert).to_contain_text("No connection to the service")
        await expect(alert).to_be_in_viewport(ratio=1)
        assert await violations(page) == []
        await alert.get_by_role("button", name="Close").click()
        await expect(page.locator("#refusal")).to_be_hidden()
