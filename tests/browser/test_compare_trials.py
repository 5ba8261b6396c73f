"""Trials are ticked in a study's table and stand side by side, by keyboard and while the search goes on."""

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Service, Tab
from tests.browser.test_study import searching
from tests.integration.dashboard import seeding

pytestmark = pytest.mark.browser


async def test_a_keyboard_ticks_and_compares(service: Service, tab: Tab) -> None:
    study_id = await searching(service.context, 20)

    async with tab.open(f"/ui/studies/{study_id}") as page:
        chosen = page.get_by_role("group", name="With the chosen trials")
        await expect(page.locator("#trials tbody tr")).to_have_count(20)
        await expect(chosen).to_be_hidden()
        for number in (12, 7):
            await page.get_by_role("checkbox", name=f"Choose trial {number}", exact=True).focus()
            await page.keyboard.press("Space")

        await seeding.report_trial(service.context, study_id, 20, 0.97)
        await expect(page.locator("#trials tbody tr")).to_have_count(21)
        await expect(page.locator("#trials tbody input:checked")).to_have_count(2)
        await chosen.get_by_role("button", name="Compare").focus()
        await page.keyboard.press("Enter")

        await page.wait_for_url(f"**/ui/studies/{study_id}/trials/compare?trial=12&trial=7")
        await expect(page.get_by_role("heading", level=1)).to_have_text("2 trials compared")
        await expect(page.locator("#curves-0 canvas")).to_have_count(1)
        await expect(page.locator("#params .differs").first).to_be_visible()

        await page.get_by_role("spinbutton", name="Another trial").fill("20")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/compare?trial=12&trial=7&trial=20")
        await expect(page.locator("#results thead th")).to_have_count(3)
    assert tab.complaints == []


async def test_one_alone_leads_back_to_the_table(service: Service, tab: Tab) -> None:
    study_id = await searching(service.context, 5)

    async with tab.open(f"/ui/studies/{study_id}/trials/compare?trial=3") as page:
        await expect(page.get_by_role("alert").filter(visible=True)).to_contain_text(
            "2 to 6 trials"
        )
        await page.get_by_role("link", name="Choose among the trials of wide").click()

        await expect(page.locator("#trials-head")).to_be_in_viewport()
