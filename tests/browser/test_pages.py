"""The planner, the comparison and the pages of datasets, as someone uses them."""

import json
import re
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, expect

from service.db.tables import Study
from service.statements.verify import SCHEMA
from tests.browser.axe import violations
from tests.browser.conftest import SCHEMES, Service, Tab, at_widths, point_at_the_first
from tests.integration.dashboard import rich, seeding

pytestmark = pytest.mark.browser

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LAY_OUT = (
    "document.querySelectorAll('.later').forEach(e => (e.style.contentVisibility = 'visible'))"
)
STATEMENT = Path(__file__).parents[1] / "unit/service/cli/statement.json"
CHARTS = {
    "comparison": ("spending", "updates"),
    "evaluated study": ("history", "run-spending", "run-steps", "run-updates"),
    "trial": ("learning",),
    "compared trials": ("curves-0", "curves-1", "curves-2"),
}
"""Figures that scripts draw, by the page."""
ASKED_FOR_LATER = {"statement": "#verdict table", "planner": "#plan-privacy"}
"""What a page shows once it has been computed, by the page."""
DIGITS = (
    "dataset=digits&accounting=declared_unaccounted&epsilon=3&batch_size=256&steps=300&model=mlp"
)


async def complete(page: Page, name: str) -> None:
    """Wait for the charts of a page, and lay out what is far below too."""
    for chart in CHARTS.get(name, ()):
        await expect(page.locator(f"#{chart} canvas")).to_have_count(1)
    if (late := ASKED_FOR_LATER.get(name)) is not None:
        await expect(page.locator(late)).to_have_count(1, timeout=60_000)
    await page.evaluate(LAY_OUT)


async def seeded(service: Service) -> dict[str, str]:
    """Addresses of pages with something on them, by what they are."""
    ids = [
        await seeding.evaluated(service.context, name="narrow"),
        await seeding.training(service.context, name="wide"),
    ]
    searched = await seeding.simulating(service.context, trials=0, **rich.spec_changes(20))
    await rich.fill(service.context, searched, 20)
    for id_ in ids:
        await rich.report_steps(service.context, id_)
    await state(service, ids[0])
    return {
        "statement": f"/ui/studies/{ids[0]}/statement",
        "audit": "/ui/audit",
        "planner": f"/ui/plan?{DIGITS}",
        "refused plan": "/ui/plan?epsilon=0&delta=7",
        "comparison": "/ui/compare?" + "&".join(f"study={id_}" for id_ in ids),
        "evaluated study": f"/ui/studies/{ids[0]}",
        "trial": f"/ui/studies/{searched}/trials/0",
        "compared trials": f"/ui/studies/{searched}/trials/compare?"
        + "&".join(f"trial={i}" for i in range(6)),
        "refused trials": f"/ui/studies/{searched}/trials/compare?trial=0",
        "refused comparison": "/ui/compare?study=s-none",
        "dataset": "/ui/datasets/digits",
        "datasets": "/ui/datasets",
        "calibration": "/ui/calibration",
    }


async def state(service: Service, study_id: str) -> None:
    """Give a study a statement that a person may read."""
    async with service.context.database.session() as session:
        study = await session.get_one(Study, study_id)
        study.statement = {**json.loads(STATEMENT.read_text()), "ledger": None}


class TestPlanning:
    async def test_a_slider_moves_its_field_the_answer_and_the_address(
        self, service: Service, tab: Tab
    ) -> None:
        async with tab.open("/ui/plan") as page:
            noise = page.locator("#sketch-figures data").first
            before = float(await noise.get_attribute("value") or 0)
            slider = page.get_by_role("slider", name="Target ε, slider")

            await slider.focus()
            for _ in range(30):
                await page.keyboard.press("ArrowLeft")

            await expect(page.locator("#epsilon")).to_have_value("3.98")
            await expect(page).to_have_url(re.compile(r"epsilon=3\.98"))
            await expect(page.locator("#sketch-figures")).to_contain_text("keeps ε 3.98")
            assert float(await noise.get_attribute("value") or 0) > before
        assert tab.complaints == []

    async def test_a_field_moves_its_slider(self, service: Service, tab: Tab) -> None:
        async with tab.open("/ui/plan") as page:
            await page.locator("#steps").fill("1000")

            await expect(page.get_by_role("slider", name="Steps S, slider")).to_have_value("3")
            await expect(page.locator("#sketch-figures")).to_contain_text("epochs")

    async def test_chosen_data_says_its_own_size(self, service: Service, tab: Tab) -> None:
        await seeding.submitted(service.context)

        async with tab.open("/ui/plan?batch_size=256&steps=300") as page:
            await expect(page.locator("#num_examples")).to_be_visible()
            await page.locator("#dataset").select_option("digits")

            await expect(page.locator("#num_examples")).to_have_count(0)
            await expect(page.locator("#sketch-figures")).to_contain_text("1,295 examples")
            assert page.url.count("dataset=digits") == 1
        assert tab.complaints == []

    async def test_the_accountants_answer_by_themselves_and_it_becomes_a_study(
        self, service: Service, tab: Tab
    ) -> None:
        await seeding.submitted(service.context)

        async with tab.open(f"/ui/plan?{DIGITS}") as page:
            await expect(page.locator("#plan-privacy")).to_contain_text("PRV", timeout=60_000)
            await page.get_by_role("button", name="Edit and submit").click()

            await expect(page.locator("textarea")).to_contain_text("dataset: digits")
        assert tab.complaints == []

    async def test_every_dial_is_in_sight_in_a_low_window(self, service: Service, tab: Tab) -> None:
        async with tab.open("/ui/plan") as page:
            await page.set_viewport_size({"width": 1280, "height": 600})
            await expect(page.locator("#sketch-figures")).to_be_visible()
            await page.locator("#wall-head").evaluate("head => head.scrollIntoView()")
            button = page.get_by_role("button", name="Plan", exact=True)
            await button.focus()

            await expect(button).to_be_in_viewport(ratio=1)
            await expect(page.locator("#wall-head")).to_be_in_viewport()
        assert tab.complaints == []

    async def test_what_cannot_be_planned_is_said_while_one_types(
        self, service: Service, tab: Tab
    ) -> None:
        async with tab.open("/ui/plan") as page:
            await page.locator("#batch_size").fill("60000")

            await expect(page.get_by_role("alert").last).to_contain_text("50000 training examples")
            await page.locator("#batch_size").fill("600")
            await expect(page.locator("#sketch-figures")).to_be_visible()
            await page.locator("#steps").fill("")
            await expect(page.get_by_role("alert").last).to_contain_text("steps: is empty")
            await expect(page.locator("#steps")).to_have_value("")
        assert tab.complaints == []


class TestPrivacy:
    async def test_the_chain_is_verified_in_sight(self, service: Service, tab: Tab) -> None:
        await seeding.training(service.context)

        async with tab.open("/ui/datasets/digits") as page:
            await expect(page.locator("#chain")).to_contain_text("whole")
            await page.get_by_role("button", name="Verify again").click()
            await expect(page.locator("#chain")).to_contain_text("whole")
        assert tab.complaints == []

    async def test_a_dot_of_what_epsilon_bought_is_told_and_leads_to_its_study(
        self, service: Service, tab: Tab
    ) -> None:
        ids = [
            await seeding.completed(service.context, name=name, model={"name": name})
            for name in ("linear", "tanh-cnn")
        ]

        async with tab.open("/ui/datasets/digits") as page:
            place = await point_at_the_first(page, "#bought .points")
            await expect(page.locator(".tip")).to_have_text(re.compile("^linear: .* %$"))
            await page.mouse.click(*place)
            await page.wait_for_url(f"**/ui/studies/{ids[0]}")
        assert tab.complaints == []

    async def test_on_a_phone_no_box_of_evidence_scrolls_sideways(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await seeding.completed(service.context)
        await state(service, study_id)

        for path in ("/ui/datasets/digits", f"/ui/studies/{study_id}/statement"):
            async with tab.open(path, width=420) as page:
                scrolling = await page.evaluate(
                    """() => [...document.querySelectorAll(".scroll:not(.tall)")]
                    .filter(box => box.checkVisibility() && box.scrollWidth > box.clientWidth)
                    .map(box => [box.ariaLabel, box.scrollWidth, box.clientWidth])"""
                )
                assert scrolling == [], path

    async def test_the_journal_is_filtered_where_it_stands(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await seeding.training(service.context)

        async with tab.open("/ui/datasets/digits") as page:
            rows = page.locator("#journal tbody tr")
            await expect(rows).to_have_count(4)
            await page.get_by_role("checkbox", name="begin").check()

            await expect(rows).to_have_count(6)
            await expect(page).to_have_url(re.compile("kind=begin"))
            await page.get_by_role("searchbox", name="Study").fill("s-none")
            await expect(page.locator("#journal")).to_contain_text("No entry fits")
            await page.get_by_role("searchbox", name="Study").fill(study_id)
            await expect(rows).to_have_count(5)
            await page.evaluate("htmx.trigger(document.body, 'refresh')")
            await expect(rows).to_have_count(5)
        assert tab.complaints == []

    async def test_numbers_of_entries_take_no_room_from_what_they_say(
        self, service: Service, tab: Tab
    ) -> None:
        await seeding.training(service.context)

        async with tab.open("/ui/datasets/digits", width=1440) as page:
            number = await page.locator("#journal tbody th").first.bounding_box()
            assert number is not None
            assert number["width"] < 100

    async def test_a_statement_is_verified_while_it_is_read(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await seeding.completed(service.context)
        await state(service, study_id)

        async with tab.open(f"/ui/studies/{study_id}/statement") as page:
            await expect(page.locator("#meaning")).to_contain_text("at most 18.9 %")
            verdict = page.locator("#verdict")
            await expect(verdict).to_contain_text("signature", timeout=60_000)
        assert tab.complaints == []

    async def test_the_audit_is_filtered_where_it_stands(self, service: Service, tab: Tab) -> None:
        async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
            for study_id in ("s-1", "s-2"):
                await client.post(f"/studies/{study_id}/cancel")

        async with tab.open("/ui/audit") as page:
            rows = page.locator("#audit tbody tr")
            await expect(rows).to_have_count(2)
            await page.get_by_role("searchbox", name="Of").fill("s-2")

            await expect(rows).to_have_count(1)
            await expect(page).to_have_url(re.compile("target=s-2"))
        assert tab.complaints == []

    async def test_pricing_again_is_shown(self, service: Service, tab: Tab) -> None:
        await seeding.training(service.context)

        async with tab.open("/ui/datasets/digits") as page:
            rows = page.locator("#accountants tbody tr")
            await expect(rows).to_have_count(2)
            await page.get_by_role("button", name="Price again").click()

            await expect(rows).to_have_count(6)
            await expect(page.locator("#accountants")).to_contain_text("dp-accounting")
        assert tab.complaints == []

    async def test_private_runs_are_let_wait_and_let_go_again(
        self, service: Service, tab: Tab
    ) -> None:
        await seeding.training(service.context)
        asked: list[str] = []

        async with tab.open("/ui/datasets/digits") as page:
            page.once("dialog", lambda dialog: dialog.dismiss())
            await page.get_by_role("button", name="Require approval").click()
            await expect(page.locator("#approval")).to_contain_text("where its study says")
            page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept())[1])
            await page.get_by_role("button", name="Require approval").click()
            await expect(page.locator("#approval .badge")).to_contain_text("waits for approval")
            await page.get_by_role("button", name="Leave it to the studies").click()

            await expect(page.locator("#approval")).to_contain_text("where its study says")
            await expect(page.locator("#approval .badge")).to_have_count(0)
        assert [question[:24] for question in asked] == [
            "Let every private run on",
            "Let each study say wheth",
        ]
        assert tab.complaints == []

    async def test_a_chosen_file_is_verified(
        self, service: Service, tab: Tab, tmp_path: Path
    ) -> None:
        await seeding.training(service.context)
        file = tmp_path / "statement.json"
        file.write_text(json.dumps({"schema": SCHEMA, "events": []}))

        async with tab.open("/ui/datasets/digits") as page:
            await page.get_by_text("Verify a statement").click()
            await page.get_by_label("A file").set_input_files(file)

            await expect(page.locator("#verdict")).to_contain_text("does not hold")
            await expect(page.locator("#verdict")).to_contain_text("was not signed")
        assert tab.complaints == []


class TestLooking:
    @SCHEMES
    async def test_axe_finds_nothing_and_nothing_sticks_out(
        self, service: Service, tab: Tab, scheme: str, widths: tuple[int, ...]
    ) -> None:
        for name, path in (await seeded(service)).items():
            async with tab.open(path, width=widths[0], scheme=scheme) as page:
                await complete(page, name)
                async for width in at_widths(page, widths):
                    assert await page.evaluate(OVERFLOW) <= 0, (name, width)
                    assert await violations(page, scheme=scheme) == [], (name, width)

    async def test_on_a_phone_what_a_search_did_to_privacy_is_read_without_scrolling(
        self, service: Service, tab: Tab
    ) -> None:
        paths = await seeded(service)

        for name in ("comparison", "evaluated study", "dataset", "datasets", "calibration"):
            async with tab.open(paths[name], width=360) as page:
                note = page.locator(".badge.warn").filter(has_text="NOT accounted").first
                box = await note.bounding_box()
                assert box is not None
                assert box["x"] + box["width"] <= 360, name
        assert tab.complaints == []

    async def test_long_names_stick_out_of_no_comparison(self, service: Service, tab: Tab) -> None:
        names = [f"{'a-name-as-long-as-names-may-be-' * 3}"[:62] + f"-{end}" for end in "ab"]
        ids = [await seeding.completed(service.context, name=name) for name in names]

        async with tab.open(f"/ui/compare?study={ids[0]}&study={ids[1]}", width=320) as page:
            await complete(page, "comparison of no steps")
            assert await page.evaluate(OVERFLOW) <= 0

    async def test_a_long_name_takes_no_room_from_the_others(
        self, service: Service, tab: Tab
    ) -> None:
        ids = [await seeding.submitted(service.context, name=name) for name in ("short", "x" * 64)]

        async with tab.open(f"/ui/compare?study={ids[0]}&study={ids[1]}") as page:
            heads = page.locator("#results thead th")
            short, long = await heads.evaluate_all("all => all.map((each) => each.offsetWidth)")
            assert long < 1.5 * short
            cut = "all => all.map((each) => each.scrollWidth > each.clientWidth)"
            assert await heads.evaluate_all(cut) == [False, False]

    async def test_pages_with_nothing_on_them_are_clean_too(
        self, service: Service, tab: Tab
    ) -> None:
        for path in ("/ui/plan", "/ui/datasets", "/ui/calibration"):
            async with tab.open(path) as page:
                assert await violations(page) == [], path
        assert tab.complaints == []

    async def test_a_keyboard_is_enough_to_compare(self, service: Service, tab: Tab) -> None:
        paths = await seeded(service)

        async with tab.open(paths["comparison"]) as page:
            await page.get_by_text("Where they agree").focus()
            await page.keyboard.press("Enter")

            await expect(page.get_by_role("region", name="Where they agree")).to_be_visible()
        assert tab.complaints == []
