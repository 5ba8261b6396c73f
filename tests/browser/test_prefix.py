"""The dashboard behind a proxy that gives it one prefix of all paths: nothing leaves the prefix."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Dialog, Page, Request, Response, expect

from service.db.session import Database
from service.db.tables import Study
from tests.browser.conftest import Service, Tab
from tests.browser.test_sign_in import make_token, sign_in
from tests.integration.dashboard import seeding

pytestmark = pytest.mark.browser

PREFIX = "/tan"


@pytest.fixture
async def below(database: Database, tmp_path: Path) -> AsyncIterator[Service]:
    service = Service(database, tmp_path, prefix=PREFIX)
    await service.start()
    service.url += PREFIX
    yield service
    await service.stop()


class Traffic:
    """Where a page's requests went, and which were refused."""

    def __init__(self, page: Page) -> None:
        self.strays: list[str] = []
        self.refused: list[str] = []
        page.on("request", self._sent)
        page.on("response", self._answered)

    def _sent(self, request: Request) -> None:
        if not urlsplit(request.url).path.startswith(f"{PREFIX}/"):
            self.strays.append(request.url)

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.refused.append(f"{response.status} {response.url}")


async def test_a_study_is_found_watched_and_approved(browser: Browser, below: Service) -> None:
    study_id = await seeding.awaiting_approval(below.context, name="waiting")
    admin = await make_token(below, "admin")
    tab = Tab(browser, below.url)

    async with tab.open(f"{PREFIX}/ui/sign-in") as page:
        traffic = Traffic(page)
        await sign_in(page, admin)
        await expect(page).to_have_url(f"{below.url}/")
        assert [each["path"] for each in await page.context.cookies()] == [PREFIX]

        await page.get_by_role("link", name="waiting", exact=True).click()
        await expect(page).to_have_url(f"{below.url}/ui/studies/{study_id}")
        await expect(page.locator("#connection")).to_have_text("Live")
        await expect(page.locator("#history canvas")).to_be_visible()
        await page.locator(r"#sort-number").click()
        await expect(page).to_have_url(f"{below.url}/ui/studies/{study_id}?order=number")

        page.on("dialog", Dialog.accept)
        await page.get_by_role("button", name="Approve the private run").click()
        await expect(page.get_by_role("button", name="Approved")).to_be_disabled()
        menu = page.get_by_role("navigation", name="Main")
        await menu.get_by_role("link", name="Plan").click()
        await page.locator("#steps").fill("1000")
        await expect(page.locator("#sketch-figures")).to_contain_text("epochs")
        for name in ("Datasets", "Calibration", "Studies"):
            await menu.get_by_role("link", name=name).click()
            await expect(page.get_by_role("heading", level=1)).to_have_text(name)
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("API token")).to_be_visible()

    assert traffic.strays == []
    assert traffic.refused == []
    assert tab.complaints == []
    async with below.context.database.session() as session:
        assert (await session.get_one(Study, study_id)).promote_requested
