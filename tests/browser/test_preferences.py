"""Pages as their readers' systems ask for them: other colours, larger letters, more room between them."""

import pytest

from tests.browser.conftest import Service, Tab
from tests.integration.dashboard import seeding

pytestmark = pytest.mark.browser

PAINTED = """([selector, part]) => {
  const style = getComputedStyle(document.querySelector(selector), part || null);
  return style.backgroundColor;
}"""


async def test_in_the_systems_colours_marks_are_seen_and_the_page_is_named(
    service: Service, tab: Tab
) -> None:
    study_id = await seeding.completed(service.context)

    async with tab.open(f"/ui/studies/{study_id}") as page:
        await page.emulate_media(forced_colors="active")
        ground = await page.evaluate(PAINTED, ["body", ""])
        for selector, part in (
            ("#meta .chip", "::before"), (".key .k-predicted", ""),
            ("#progress progress", ""), ("#progress progress", "::-webkit-progress-value"),
        ):  # fmt: skip
            assert await page.evaluate(PAINTED, [selector, part]) != ground, selector

        await page.goto("/")
        edges = await page.locator("nav[aria-label=Main] a").evaluate_all(
            "all => all.map(each => [each.ariaCurrent, getComputedStyle(each).borderBottomColor])"
        )
        assert {colour for current, colour in edges if not current} == {ground}
        assert {colour for current, colour in edges if current} != {ground}
    assert tab.complaints == []
