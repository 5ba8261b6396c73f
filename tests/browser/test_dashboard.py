"""The dashboard as someone uses it."""

import re

import pytest
from playwright.async_api import Browser, Dialog, expect

from service.db.session import Database
from service.db.tables import Study
from tests.browser.conftest import SCHEMES, Service, Tab, at_widths, point_at_the_first
from tests.integration.dashboard import seeding

pytestmark = pytest.mark.browser

CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = ([r, g, b, a], below) =>
    [r, g, b].map((c, i) => (c * a + below[i] * (255 - a)) / 255);
  const ground = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      layers.unshift(colour);
      if (colour[3] === 255) break;
    }
    return layers.reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((c) =>
      c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (...colours) => {
    const [low, high] = colours.map(luminance).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const faint = [];
  const walker = document.createTreeWalker(document.querySelector("body"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.checkVisibility()) continue;
    if (node.closest("script, noscript")) continue;
    const below = ground(node);
    const ratio = contrast(over(rgba(getComputedStyle(node).color), below), below);
    if (ratio < 4.5) faint.push(`${ratio.toFixed(2)} ${node.className} ${node.textContent.trim()}`);
  }
  const fields = "select, textarea, input:not([type=checkbox], [type=range], [type=file])";
  for (const field of document.querySelectorAll(fields)) {
    if (!field.checkVisibility()) continue;
    const [within, around] = [ground(field), ground(field.parentElement)];
    const edge = contrast(over(rgba(getComputedStyle(field).borderTopColor), around), around);
    if (edge < 3) faint.push(`${edge.toFixed(2)} edge of ${field.name}`);
    const hint = contrast(over(rgba(getComputedStyle(field, "::placeholder").color), within), within);
    if (field.placeholder && hint < 4.5) faint.push(`${hint.toFixed(2)} ${field.placeholder}`);
  }
  return faint;
}"""
"""Words, and edges of fields, that are hard to see (WCAG 1.4.3, 1.4.11)."""
OPENED = "document.querySelectorAll('details').forEach(each => (each.open = true))"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class TestWatching:
    async def test_a_trial_appears_by_itself(self, service: Service, tab: Tab) -> None:
        study_id = await seeding.simulating(service.context, trials=3)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await expect(page.locator("#connection")).to_have_text("Live")
            await seeding.report_trial(service.context, study_id, 3, 0.9876)

            await expect(page.locator("#trials")).to_contain_text("98.8 %")
            await expect(page.locator("#progress")).to_contain_text("4 of 12 trials")
            await expect(page.locator("#figures")).to_contain_text("98.8 %")
            await expect(page).to_have_title("33 % · digits-eps3 · TAN Search")
        assert tab.complaints == []

    async def test_the_page_comes_to_rest_with_the_study(self, service: Service, tab: Tab) -> None:
        study_id = await seeding.training(service.context)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await expect(page.locator("#connection")).to_have_text("Live")
            await seeding.end(service.context, study_id, "cancelled")

            await expect(page.locator("#meta")).to_contain_text("cancelled")
            await expect(page.locator("#connection")).to_be_hidden()
            await expect(page.locator("button[hx-post]")).to_have_count(0)
            # A refresh that was due before the end may still come, at most a second after.
            await page.wait_for_timeout(1500)
            requests: list[str] = []
            page.on("request", lambda request: requests.append(request.url))
            await page.wait_for_timeout(2500)
            assert requests == []
        assert tab.complaints == []

    async def test_it_goes_on_after_the_service_was_restarted(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await seeding.simulating(service.context, trials=3)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await expect(page.locator("#connection")).to_have_text("Live")
            await service.stop()
            await expect(page.locator("#connection")).not_to_have_text("Live")
            await service.start()
            await seeding.report_trial(service.context, study_id, 3, 0.9876)

            await expect(page.locator("#trials")).to_contain_text("98.8 %", timeout=30_000)
            await expect(page.locator("#connection")).to_have_text("Live", timeout=30_000)

    async def test_the_first_study_appears_in_the_list(self, service: Service, tab: Tab) -> None:
        async with tab.open("/") as page:
            await expect(page.get_by_role("heading", name="No study yet")).to_be_visible()
            await seeding.submitted(service.context, name="the-first")

            await expect(page.get_by_role("link", name="the-first")).to_be_visible()
        assert tab.complaints == []

    async def test_opened_details_and_focus_survive_news(self, service: Service, tab: Tab) -> None:
        study_id = await seeding.simulating(service.context, trials=3)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await expect(page.locator("#connection")).to_have_text("Live")
            await page.get_by_text("The plan as JSON").click()
            await page.locator("#order-best").focus()
            await seeding.report_trial(service.context, study_id, 3, 0.9876)
            await expect(page.locator("#trials")).to_contain_text("98.8 %")

            assert await page.evaluate("document.activeElement.id") == "order-best"
            await expect(page.get_by_label("plan", exact=True)).to_be_visible()


class TestActing:
    async def test_cancelling_asks_first(self, service: Service, tab: Tab) -> None:
        study_id = await seeding.simulating(service.context)
        asked: list[str] = []

        async def answer(dialog: Dialog) -> None:
            asked.append(dialog.message)
            await (dialog.accept() if len(asked) == 2 else dialog.dismiss())

        async with tab.open(f"/ui/studies/{study_id}") as page:
            page.on("dialog", answer)
            await page.get_by_role("button", name="Cancel").click()
            assert not await _is_cancelling(service, study_id)
            await page.get_by_role("button", name="Cancel").click()

            await expect(page.get_by_role("button", name="Cancelling")).to_be_disabled()
            assert await _is_cancelling(service, study_id)
        assert "charged stay charged" in asked[0]
        assert tab.complaints == []

    async def test_approving_promotes(self, service: Service, tab: Tab) -> None:
        study_id = await seeding.awaiting_approval(service.context)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            page.on("dialog", Dialog.accept)
            await page.get_by_role("button", name="Approve the private run").click()

            await expect(page.get_by_role("button", name="Approved")).to_be_disabled()
        async with service.context.database.session() as session:
            assert (await session.get_one(Study, study_id)).promote_requested

    async def test_another_trial_is_chosen(self, service: Service, tab: Tab) -> None:
        study_id = await seeding.awaiting_approval(service.context)
        asked: list[str] = []

        async def accept(dialog: Dialog) -> None:
            asked.append(dialog.message)
            await dialog.accept()

        async with tab.open(f"/ui/studies/{study_id}") as page:
            page.on("dialog", accept)
            candidates = page.get_by_role("region", name="Candidates for the private run")
            proposed, other = [
                (await row.inner_text()).split()[1]
                for row in (await candidates.get_by_role("rowheader").all())[:2]
            ]
            await candidates.get_by_role("button", name=f"Choose trial {other}").click()

            chosen = candidates.get_by_role("button", name=f"Chosen trial {other}")
            await expect(chosen).to_be_disabled()
            await expect(page.locator(f"#choose-{proposed}")).to_be_disabled()
        (question,) = asked
        assert question.startswith(f"Train the private run with trial {other}? It spends ε ")
        async with service.context.database.session() as session:
            study = await session.get_one(Study, study_id)
            assert (study.promote_requested, study.promoted_trial) == (True, int(other))
        assert tab.complaints == []

    async def test_a_refusal_is_shown_in_the_services_words(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await seeding.simulating(service.context)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            page.on("dialog", Dialog.accept)
            await expect(page.locator("#connection")).to_have_text("Live")
            async with service.context.database.session() as session:
                (await session.get_one(Study, study_id)).state = "failed"  # the page does not know
            await page.get_by_role("button", name="Cancel").click()

            await expect(page.get_by_role("alert")).to_contain_text("there is nothing to cancel")
            await expect(page.locator("#meta")).to_contain_text("failed")

    async def test_a_keyboard_is_enough(self, service: Service, tab: Tab) -> None:
        study_id = await seeding.completed(service.context, name="by-keyboard")

        async with tab.open("/") as page:
            await page.keyboard.press("Tab")
            await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
            await page.keyboard.press("Enter")
            link = page.get_by_role("link", name="by-keyboard")
            for _ in range(40):  # past the filters
                await page.keyboard.press("Tab")
                if await link.evaluate("link => link === document.activeElement"):
                    break
            await expect(link).to_be_focused()
            await page.keyboard.press("Enter")

            await page.wait_for_url(f"**/ui/studies/{study_id}")


async def test_without_scripts_a_page_says_what_does_nothing(
    service: Service, browser: Browser
) -> None:
    running = await seeding.simulating(service.context)
    done = await seeding.completed(service.context, name="done")

    context = await browser.new_context(java_script_enabled=False, base_url=service.url)
    page = await context.new_page()
    said = page.locator(".page-head noscript p")
    await page.goto(f"/ui/studies/{running}")
    await expect(said).to_contain_text("this page stands still, and its buttons do nothing")
    await page.goto(f"/ui/studies/{done}")
    await expect(said).to_contain_text(
        "Without scripts the buttons here do nothing: act by tan-cli"
    )
    await page.goto("/")
    await page.get_by_role("checkbox", name="Choose done").check()
    await expect(page.locator(".bulk noscript span")).to_be_visible()
    await context.close()


class TestLooking:
    async def test_hostile_text_runs_nothing(
        self, service: Service, owner: Database, tab: Tab
    ) -> None:
        study_id = await seeding.simulating(service.context)
        await seeding.rename(owner, study_id, seeding.HOSTILE)
        dialogs: list[str] = []

        for path in ("/", f"/ui/studies/{study_id}", "/ui/datasets/digits"):
            async with tab.open(path) as page:
                page.on("dialog", lambda dialog: dialogs.append(dialog.message))
                await expect(page.get_by_text(seeding.HOSTILE).first).to_be_visible()

        assert dialogs == []
        assert tab.complaints == []

    @SCHEMES
    async def test_text_can_be_read_and_nothing_sticks_out(
        self, service: Service, tab: Tab, scheme: str, widths: tuple[int, ...]
    ) -> None:
        running = await seeding.simulating(service.context, name="running")
        failed = await seeding.failed(service.context, "every trial diverged", name="failed")
        waiting = await seeding.awaiting_approval(service.context, name="waiting")
        await seeding.calibrated(service.context, 10)
        paths = [
            "/",
            "/ui/datasets",
            "/ui/datasets/digits",
            "/ui/calibration",
            "/ui/studies/s-none",
            "/ui/new",
            "/ui/register",
            "/ui/plan",
            "/ui/sign-in",
        ]
        paths += [f"/ui/studies/{id_}" for id_ in (running, failed, waiting)]

        for path in paths:
            async with tab.open(path, width=widths[0], scheme=scheme) as page:
                async for width in at_widths(page, widths):
                    assert await page.evaluate(OVERFLOW) <= 0, (path, width)
                await page.evaluate(OPENED)
                async for width in at_widths(page, widths):
                    assert await page.evaluate(CONTRAST) == [], (path, width)

    @pytest.mark.parametrize("width", [1280, 1440])
    async def test_no_column_of_the_list_is_cut_off(
        self, service: Service, tab: Tab, width: int
    ) -> None:
        given = {"accounting": "no_search", "trials": 0, "space": {}, "rungs": "auto"}
        await seeding.completed(service.context)
        await seeding.submitted(service.context, search=given)

        async with tab.open("/", width=width) as page:
            sideways = "box => box.scrollWidth - box.clientWidth"
            assert await page.locator(".chooser > .scroll").evaluate(sideways) == 0
            box = await page.locator(".privacy .badge.warn").bounding_box()
            assert box is not None
            assert box["height"] < 30, "one line"

    async def test_how_predictions_held_is_drawn_and_leads_to_each_study(
        self, service: Service, tab: Tab
    ) -> None:
        await seeding.calibrated(service.context, 12)

        async with tab.open("/") as page:
            await page.get_by_role("link", name="Calibration").click()

            await expect(
                page.get_by_role("heading", name="How often intervals held")
            ).to_be_visible()
            plot = page.get_by_role("img", name="Predicted over reached test accuracy of 12 runs")
            frame = await plot.bounding_box()
            dots = await page.locator("path.predicted").bounding_box()
            assert frame is not None
            assert dots is not None
            assert (
                frame["x"] <= dots["x"] <= dots["x"] + dots["width"] <= frame["x"] + frame["width"]
            )
            assert dots["height"] > 20  # predictions differ
            await point_at_the_first(page, ".square .points")
            await expect(page.locator(".tip")).to_contain_text(re.compile("predicted .* reached"))
            await page.get_by_role("link", name="calibrated", exact=True).click()
            await expect(page.get_by_role("heading", name="Prediction")).to_be_visible()
        assert tab.complaints == []


async def _is_cancelling(service: Service, study_id: str) -> bool:
    async with service.context.database.session() as session:
        return (await session.get_one(Study, study_id)).cancel_requested
