"""Ten thousand trials in one study: little is sent, little is drawn, and the page answers."""

import io
import json
from typing import Any

import pytest
from PIL import Image
from playwright.async_api import Page, expect

from tests.browser.conftest import Service, Tab
from tests.browser.test_study import searching, settled

pytestmark = pytest.mark.browser

TRIALS = 10_000
MOST_BYTES = 150_000
"""Of everything that the page asks for, as it comes over the line."""
MOST_ELEMENTS = 5_000
MOST_POINTS = 3_000
"""Of a chart."""


async def received(page: Page) -> int:
    """Bytes of the page and of all that it asked for, headers included."""
    entries = "performance.getEntries().filter(e => e.transferSize).map(e => e.transferSize)"
    return sum(await page.evaluate(entries))


async def drawn(page: Page) -> dict[str, Any]:
    return json.loads(await page.locator("#history [data-lines]").get_attribute("data-lines") or "")


async def test_the_page_is_light_and_answers(service: Service, tab: Tab) -> None:
    study_id = await searching(service.context, TRIALS)

    async with tab.open(f"/ui/studies/{study_id}") as page:
        rows = page.locator("#trials tbody tr")
        await expect(rows).to_have_count(50)
        await expect(page.locator("#trials")).to_contain_text("Page 1 of 200, 10,000 trials")
        await settled(page)

        assert await received(page) <= MOST_BYTES
        assert await page.evaluate("document.querySelectorAll('*').length") <= MOST_ELEMENTS
        history = await drawn(page)
        assert 100 < len(history["data"][0]) <= MOST_POINTS
        assert history["data"][0][-1] > TRIALS - 100  # the last ones are among them
        paths = await page.eval_on_selector_all(
            "#search path", "all => all.map(each => each.getAttribute('d').split('M').length)"
        )
        assert max(paths) <= MOST_POINTS

        await page.locator("#tick-completed").check()
        await expect(page.locator("#trials")).not_to_contain_text("10,000 trials")
        await page.locator(r"#sort-param\.learning_rate").click()
        await expect(page.locator("th[aria-sort=ascending]")).to_contain_text("learning_rate")
        await page.locator("#trials-next").click()
        await expect(page.locator("#trials")).to_contain_text("Page 2 of")
        await expect(rows).to_have_count(50)
    assert tab.complaints == []


async def test_what_lies_below_the_first_view_is_laid_out_when_it_is_reached(
    service: Service, tab: Tab
) -> None:
    study_id = await searching(service.context, 400)
    is_laid_out = "e => e.checkVisibility({ contentVisibilityAuto: true })"

    async with tab.open(f"/ui/studies/{study_id}") as page:
        await settled(page)
        last = page.locator("#trials tbody tr").last
        await page.evaluate("scrollTo(0, 0)")
        await page.wait_for_function("() => document.fonts.status === 'loaded'")
        assert not await last.evaluate(is_laid_out)

        await page.get_by_role("navigation", name="On this page").get_by_text("Trials").click()
        await expect(page.locator("#trials tbody tr").first).to_be_in_viewport()
        assert await page.locator("#trials tbody tr").first.evaluate(is_laid_out)


async def test_what_lies_below_a_table_that_scrolls_is_hinted_at(
    service: Service, tab: Tab
) -> None:
    study_id = await searching(service.context, 60)

    async with tab.open(f"/ui/studies/{study_id}") as page:
        region = page.locator("#trials-scroll")
        await settled(page)

        async def lower_edge() -> object:
            picture = Image.open(io.BytesIO(await region.screenshot())).convert("RGB")
            return picture.getpixel((1, picture.height - 2))

        before = await lower_edge()
        await region.evaluate("each => each.scrollTo(0, each.scrollHeight)")
        assert before != await lower_edge()
    assert tab.complaints == []
