"""Every page on paper: nothing cut off, nothing to click, charts as wide as the sheet."""

import pytest
from playwright.async_api import Page

from tests.browser.conftest import Service, Tab
from tests.browser.test_pages import complete, seeded

pytestmark = pytest.mark.browser

SHEET = 718
"""CSS pixels of A4 between its margins."""
BEYOND = """sheet => [...document.querySelectorAll("main *")].filter((each) => {
  const box = each.getBoundingClientRect();
  const isSeen = box.width && each.checkVisibility() && !each.closest(".unseen, .scroll pre, pre");
  return isSeen && box.right > sheet + 1;
}).map((each) => `${each.tagName} ${each.className.baseVal ?? each.className}`).slice(0, 5)"""


async def printed(page: Page) -> None:
    await page.emulate_media(media="print", color_scheme="light")
    await page.set_viewport_size({"width": SHEET, "height": 1000})


async def test_nothing_is_cut_off_and_nothing_asks_for_a_click(service: Service, tab: Tab) -> None:
    paths = await seeded(service)
    paths |= {"list": "/", "editor": "/ui/new"}
    paths["planner"] = paths.pop("planner")  # what it asks for is computed after it was left

    for name, path in paths.items():
        async with tab.open(path) as page:
            await complete(page, name)
            await printed(page)
            beyond = await page.evaluate(BEYOND, SHEET)
            assert beyond == [], name
            for each in await page.locator("main .button, main input[type=checkbox], nav").all():
                assert not await each.is_visible(), (name, await each.inner_text())
            if name == "evaluated study":
                widths = await page.eval_on_selector_all(
                    ".lines canvas", "all => all.map(each => each.getBoundingClientRect().width)"
                )
                assert len(widths) > 4
                assert 0 < max(widths) <= SHEET
            assert (await page.pdf()).startswith(b"%PDF")
