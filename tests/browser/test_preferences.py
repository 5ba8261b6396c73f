"""Pages as their readers' systems ask for them: other colours, larger letters, more room between them."""

import pytest

from service.db.tables import Study
from tests.browser.axe import violations
from tests.browser.conftest import Service, Tab
from tests.browser.test_pages import OVERFLOW, state
from tests.integration.dashboard import seeding

pytestmark = pytest.mark.browser

LARGE = 24
"""Pixels of the reader's usual letters; browsers come with 16."""
SPACED = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("* { line-height: 1.5 !important; letter-spacing: 0.12em !important; word-spacing: 0.16em !important; }"
    + "p { margin-bottom: 2em !important; }");
  document.adoptedStyleSheets = [sheet];
  document.querySelectorAll("details").forEach((each) => (each.open = true));
}"""
"""As much room as a reader may ask for (WCAG 1.4.12)."""

OPENED = "document.querySelectorAll('details').forEach((each) => (each.open = true))"
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


async def test_letters_have_the_size_that_the_reader_chose(service: Service, tab: Tab) -> None:
    async with tab.open("/ui/plan", width=640) as page:
        size = "parseFloat(getComputedStyle(document.querySelector('main p')).fontSize)"
        usual = await page.evaluate(size)
        browser = await page.context.new_cdp_session(page)
        await browser.send("Page.setFontSizes", {"fontSizes": {"standard": LARGE}})

        assert await page.evaluate(size) > 1.4 * usual
        assert await page.evaluate(OVERFLOW) <= 0
    assert tab.complaints == []


async def test_with_more_room_between_letters_nothing_sticks_out(
    service: Service, tab: Tab
) -> None:
    study_id = await seeding.completed(service.context)
    await state(service, study_id)

    for path in ("/", "/ui/datasets/digits", f"/ui/studies/{study_id}/statement"):
        async with tab.open(path, width=320) as page:
            await page.evaluate(SPACED)

            assert await page.evaluate(OVERFLOW) <= 0, path


async def test_what_is_pressed_is_large_enough_for_a_finger(service: Service, tab: Tab) -> None:
    study_id = await seeding.completed(service.context)
    async with service.context.database.session() as session:
        (await session.get_one(Study, study_id)).tags = ["one", "two"]

    for path in ("/", f"/ui/studies/{study_id}"):
        async with tab.open(path, width=360) as page:
            await page.evaluate(OPENED)
            assert await violations(page) == [], path


async def test_on_a_phone_a_long_name_runs_below_no_box(service: Service, tab: Tab) -> None:
    await seeding.submitted(service.context, name="x" * 60)

    async with tab.open("/", width=320) as page:
        name = await page.locator("tbody th a").first.bounding_box()
        box = await page.locator("tbody input[type=checkbox]").bounding_box()
        assert name is not None
        assert box is not None
        assert name["x"] + name["width"] <= box["x"]
