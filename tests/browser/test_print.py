"""Every page on paper: nothing cut off, nothing to click, charts as wide as the sheet."""

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Service, Tab
from tests.browser.test_pages import complete, seeded
from tests.integration.dashboard import rich, seeding

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
            if name == "dataset":  # "reserve" is one word, on one line
                kinds = await page.eval_on_selector_all(
                    "#journal .badge", "all => all.map(each => each.getBoundingClientRect().height)"
                )
                assert 0 < max(kinds) < 25
            assert (await page.pdf()).startswith(b"%PDF")


async def test_charts_of_a_dark_screen_are_drawn_for_paper(service: Service, tab: Tab) -> None:
    study_id = await seeding.training(service.context)
    await rich.report_steps(service.context, study_id)
    marker = "#run-speed .u-marker[style]"
    colour = "getComputedStyle(document.querySelector('%s')).borderTopColor"

    async with tab.open(f"/ui/studies/{study_id}", scheme="dark") as page:
        await expect(page.locator("#run-speed canvas")).to_have_count(1)
        on_screen = await page.evaluate(colour % marker)
        await page.emulate_media(media="print")

        await expect(page.locator(marker)).to_have_css("border-top-color", "rgb(11, 95, 110)")
        await page.emulate_media(media="screen")
        await expect(page.locator(marker)).to_have_css("border-top-color", on_screen)
