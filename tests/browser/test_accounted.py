"""The pages of a study whose search is charged, as they are laid out and drawn."""

import httpx
import pytest
from playwright.async_api import expect

from service.datasets.service import ensure_digits
from service.db.session import Database
from tests.browser.axe import violations
from tests.browser.conftest import Service, Tab, at_widths
from tests.browser.test_pages import LAY_OUT, OVERFLOW
from tests.integration.dashboard.charged import completed
from tests.support.world import World

pytestmark = pytest.mark.browser


async def test_its_pages_fit_are_accessible_and_draw_no_curve_of_a_trial(
    service: Service, tab: Tab, database: Database
) -> None:
    await ensure_digits(database)
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        study_id = await completed(World(client, service.context.settings, database))
    address = f"/ui/studies/{study_id}"

    for path in (address, f"{address}/trials/1", f"{address}/statement", "/ui/datasets/digits"):
        async with tab.open(path) as page:
            if path == address:
                await expect(page.locator("#history canvas")).to_have_count(1)
                await expect(page.locator("#trials-noise")).to_contain_text("±")
            await page.evaluate(LAY_OUT)
            assert await page.locator("#curves, #learning-head").count() == 0
            async for width in at_widths(page, (1280, 420)):
                assert await page.evaluate(OVERFLOW) == 0, f"{path} at {width}"
                assert await violations(page) == [], f"{path} at {width}"
    assert tab.complaints == []
