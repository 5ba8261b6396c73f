"""From the list to the statement with a keyboard alone, and to every control of every page."""

import pytest
from playwright.async_api import Dialog, Locator, Page, expect

from tests.browser.conftest import Service, Tab
from tests.browser.test_pages import complete, seeded
from tests.integration.dashboard import seeding

pytestmark = pytest.mark.browser

MOST_STOPS = 120
MOST_CONTROLS = 1000


async def go_to(page: Page, target: Locator) -> None:
    """Press Tab until the target is focused, and see that it shows."""
    for _ in range(MOST_STOPS):
        await page.keyboard.press("Tab")
        if await target.count() == 1 and await target.evaluate("e => e === document.activeElement"):
            break
    await expect(target).to_be_focused()
    assert await target.evaluate("e => getComputedStyle(e).outlineStyle") != "none"


async def press(page: Page, target: Locator, key: str = "Enter") -> None:
    await go_to(page, target)
    await page.keyboard.press(key)


async def test_a_study_is_written_watched_approved_and_its_statement_read(
    service: Service, tab: Tab
) -> None:
    await seeding.ensure_digits(service.context.database)
    text = seeding.DIGITS.read_text().replace("promotion: automatic", "promotion: manual")

    async with tab.open("/") as page:
        page.on("dialog", Dialog.accept)
        await press(page, page.get_by_role("link", name="New study"))
        editor = page.get_by_role("textbox", name="study.yaml")
        await go_to(page, editor)
        await page.keyboard.press("ControlOrMeta+a")
        await page.keyboard.insert_text(text)
        # Tab leaves the editor, as it leaves any field: nobody is caught in it.
        await press(page, page.get_by_role("button", name="Check"))
        await expect(page.locator("#verdict")).to_contain_text("It fits", timeout=90_000)
        await page.keyboard.press("Shift+Tab")
        await press(page, page.get_by_role("button", name="Submit"))
        await page.wait_for_url("**/ui/studies/s-*", timeout=90_000)
        study_id = page.url.rpartition("/")[2]

        await expect(page.locator("#connection")).to_have_text("Live")
        await seeding.begin_search(service.context, study_id)
        await expect(page.locator("#progress")).to_contain_text("12 of 12 trials", timeout=60_000)
        await press(page, page.locator("#order-best"))
        await page.wait_for_url("**/ui/studies/*order=best")
        await seeding.ask_approval(service.context, study_id)
        approve = page.get_by_role("button", name="Approve the private run")
        await expect(approve).to_be_visible(timeout=60_000)
        await press(page, approve)
        await expect(page.get_by_role("button", name="Approved")).to_be_disabled()

        await seeding.begin_private_run(service.context, study_id)
        await expect(page.locator("#progress")).to_contain_text("140 of 300 steps", timeout=60_000)
        await seeding.complete(service.context, study_id)
        statement = page.get_by_role("link", name="Privacy statement")
        await expect(statement).to_be_visible(timeout=60_000)
        await press(page, statement)
        await page.wait_for_url(f"**/ui/studies/{study_id}/statement")
        await press(page, page.get_by_role("link", name="JSON", exact=True))
        await page.wait_for_url(f"{service.url}/studies/{study_id}/statement")
        await expect(page.get_by_text("epsilon")).to_be_visible()
    assert tab.complaints == []


async def test_from_the_table_to_a_trial_and_on_to_the_next(service: Service, tab: Tab) -> None:
    study_id = await seeding.completed(service.context)

    async with tab.open(f"/ui/studies/{study_id}") as page:
        await press(page, page.get_by_role("link", name="Trials", exact=True))
        await press(page, page.get_by_role("link", name="Details of trial 3"))
        await page.wait_for_url("**/trials/3")
        await press(page, page.get_by_role("link", name="Trial 4"))
        await page.wait_for_url("**/trials/4")
        await expect(page.get_by_role("heading", name="Trial 4", exact=True)).to_be_visible()
        await press(page, page.get_by_role("link", name="digits-eps3"))
        await page.wait_for_url(f"**/ui/studies/{study_id}")
    assert tab.complaints == []


async def test_the_focus_stays_on_what_was_pressed(service: Service, tab: Tab) -> None:
    await seeding.ensure_digits(service.context.database)

    async with tab.open("/ui/new") as page:
        check = page.get_by_role("button", name="Check")
        await press(page, check)
        await expect(page.locator("#verdict")).to_contain_text("It fits", timeout=90_000)

        await expect(check).to_be_focused()
    assert tab.complaints == []


async def test_a_refusal_is_closed_and_leaves_one_where_one_was(service: Service, tab: Tab) -> None:
    study_id = await seeding.completed(service.context)

    async with tab.open(f"/ui/studies/{study_id}") as page:
        tags = page.get_by_role("textbox", name="Tags to add")
        refusal = page.get_by_role("alert").filter(has_text="tags.0")
        for key in ("Escape", "Enter"):
            await go_to(page, tags)
            await page.keyboard.type("a<b")
            await page.keyboard.press("Enter")
            await expect(refusal).to_be_visible()
            if key == "Enter":
                await refusal.get_by_role("button", name="Close").focus()
            await page.keyboard.press(key)

            await expect(refusal).to_be_hidden()
            await expect(tags).to_be_focused()
            await tags.fill("")


async def test_what_is_done_with_the_chosen_covers_no_focused_row(
    service: Service, tab: Tab
) -> None:
    for number in range(10):
        await seeding.submitted(service.context, name=f"study-{number}")

    async with tab.open("/") as page:
        await page.set_viewport_size({"width": 1280, "height": 500})
        await page.get_by_role("checkbox", name="study-9").check()
        bar = page.get_by_role("group", name="With the chosen studies")
        await expect(bar).to_be_visible()
        for number in reversed(range(9)):
            row = page.get_by_role("checkbox", name=f"study-{number}")
            await go_to(page, row)
            focused, above = await row.bounding_box(), await bar.bounding_box()
            assert focused is not None
            assert above is not None
            assert focused["y"] + focused["height"] <= above["y"]
    assert tab.complaints == []


WALKED = """() => {
  const selector = "a[href], button:enabled, input:enabled, select, textarea, summary, [tabindex='0']";
  window.walked = new Set();
  window.faint = [];
  const isInSight = (at) => {
    const { top, bottom } = at.getBoundingClientRect();
    if (bottom <= 0 || top >= innerHeight) return false;
    for (let above = at; above; above = above.parentElement) {
      if (getComputedStyle(above).clipPath !== "none") return false;
    }
    return true;
  };
  window.note = () => {
    const at = document.activeElement;
    if (at === document.body || walked.has(at)) return false;
    walked.add(at);
    if (getComputedStyle(at).outlineStyle === "none" || !isInSight(at)) faint.push(at.outerHTML.slice(0, 120));
    return true;
  };
  window.missed = () => [...document.querySelectorAll(selector)]
    .filter((each) => each.type !== "hidden" && each.checkVisibility() && !walked.has(each))
    .map((each) => each.outerHTML.slice(0, 120));
}"""


@pytest.mark.parametrize("width", [1280, pytest.param(640, id="1280 at 200 %")])
async def test_every_control_of_every_page_is_reached_seen_and_left_again(
    service: Service, tab: Tab, width: int
) -> None:
    paths = await seeded(service)
    paths |= {"list": "/", "editor": "/ui/new", "nowhere": "/ui/nowhere"}

    for name, path in paths.items():
        async with tab.open(path, width=width) as page:
            await complete(page, name)
            await page.evaluate(WALKED)
            for _ in range(MOST_CONTROLS):
                await page.keyboard.press("Tab")
                if not await page.evaluate("note()"):
                    break
            assert await page.evaluate("missed()") == [], name
            assert await page.evaluate("faint") == [], name
