"""Signing in to the dashboard, as someone does it."""

import re

import httpx
import pytest
from playwright.async_api import Dialog, Page, expect

from service.db.tables import Study
from tests.browser.axe import violations
from tests.browser.conftest import Service, Tab
from tests.integration.dashboard import seeding

pytestmark = pytest.mark.browser


async def make_token(service: Service, *scopes: str, bearer: str = "") -> str:
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        response = await client.post(
            "/tokens",
            json={"name": "somebody", "scopes": list(scopes)},
            headers={"Authorization": f"Bearer {bearer}"} if bearer else {},
        )
    assert response.status_code == 201, response.text
    return response.json()["token"]


async def sign_in(page: Page, token: str) -> None:
    await page.get_by_label("API token").fill(token)
    await page.get_by_role("button", name="Sign in").click()


async def test_a_page_is_shown_after_signing_in_and_no_longer_after_signing_out(
    service: Service, tab: Tab
) -> None:
    study_id = await seeding.awaiting_approval(service.context)
    admin = await make_token(service, "admin")

    async with tab.open(f"/ui/studies/{study_id}") as page:
        await expect(page.get_by_label("API token")).to_be_focused()
        await sign_in(page, "tan_of_nobody")
        await expect(page.get_by_role("alert")).to_be_visible()
        told = re.compile("This token is not known here")
        await expect(page.get_by_label("API token")).to_have_accessible_description(told)
        assert await violations(page) == []
        await sign_in(page, admin)

        await expect(page).to_have_url(f"{service.url}/ui/studies/{study_id}")
        page.on("dialog", Dialog.accept)
        await page.get_by_role("button", name="Approve the private run").click()
        await expect(page.get_by_role("button", name="Approved")).to_be_disabled()

        await page.get_by_role("button", name="Sign out").click()
        await page.goto(f"/ui/studies/{study_id}")
        await expect(page.get_by_label("API token")).to_be_visible()
    async with service.context.database.session() as session:
        assert (await session.get_one(Study, study_id)).promote_requested


async def test_a_page_that_is_looked_at_leads_to_the_form_when_its_session_ends(
    service: Service, tab: Tab
) -> None:
    study_id = await seeding.simulating(service.context)
    admin = await make_token(service, "admin")
    reader = await make_token(service, "read", bearer=admin)

    async with tab.open(f"/ui/studies/{study_id}") as page:
        await sign_in(page, reader)
        await expect(page.locator("#connection")).to_have_text("Live")
        async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
            gone = await client.delete(
                f"/tokens/{reader.split('_')[1]}", headers={"Authorization": f"Bearer {admin}"}
            )
        assert gone.is_success, gone.text

        await expect(page.get_by_label("API token")).to_be_visible(timeout=20_000)
        await sign_in(page, admin)
        await expect(page).to_have_url(f"{service.url}/ui/studies/{study_id}")


async def test_who_may_only_read_is_told_what_is_missing(service: Service, tab: Tab) -> None:
    study_id = await seeding.simulating(service.context)
    admin = await make_token(service, "admin")
    reader = await make_token(service, "read", bearer=admin)

    async with tab.open("/") as page:
        await sign_in(page, reader)
        await page.goto(f"/ui/studies/{study_id}")

        await expect(page.locator("#who")).to_contain_text("read")
        await expect(page.locator("#may-not")).to_contain_text("with the scope submit")
        await expect(page.get_by_role("button", name="Cancel")).to_have_count(0)


async def test_a_session_that_ends_takes_nothing_written_along(service: Service, tab: Tab) -> None:
    admin = await make_token(service, "admin")

    async with tab.open("/ui/new") as page:
        await sign_in(page, admin)
        await page.get_by_role("textbox", name="study.yaml").fill("name: an hour of work")
        await page.context.clear_cookies()
        await page.get_by_role("button", name="Check").click()
        await sign_in(page, admin)

        await expect(page).to_have_url(re.compile("/ui/new"))
        await expect(page.get_by_role("textbox", name="study.yaml")).to_have_value(
            "name: an hour of work"
        )
        await page.reload()
        await expect(page.get_by_role("textbox", name="study.yaml")).not_to_have_value(
            "name: an hour of work"
        )


async def test_who_signs_in_again_is_on_the_page_that_was_left(service: Service, tab: Tab) -> None:
    study_id = await seeding.completed(service.context)
    admin = await make_token(service, "admin")

    async with tab.open(f"/ui/studies/{study_id}") as page:
        await sign_in(page, admin)
        await page.get_by_text("Note", exact=True).click()
        await page.get_by_label("Note on this study").fill("half a note")
        await page.context.clear_cookies()
        await page.locator("#order-best").click()  # a part of the page with an address of its own
        await sign_in(page, admin)

        await expect(page).to_have_url(f"{service.url}/ui/studies/{study_id}")
        await expect(page.get_by_label("Note on this study")).to_have_value("half a note")


async def test_a_page_of_before_another_sign_in_says_so_once_and_then_works(
    service: Service, tab: Tab
) -> None:
    study_id = await seeding.training(service.context)
    admin = await make_token(service, "admin")
    other = await make_token(service, "submit", bearer=admin)

    async with tab.open(f"/ui/studies/{study_id}") as page:
        await sign_in(page, admin)
        await page.get_by_text("Note", exact=True).click()
        note = page.get_by_role("textbox", name="Note on this study")
        await note.fill("half written")
        elsewhere = await page.context.new_page()
        await elsewhere.goto("/ui/sign-in")
        await sign_in(elsewhere, other)
        await expect(elsewhere.get_by_role("heading", name="Studies")).to_be_visible()

        await page.get_by_role("button", name="Save").click()
        said = page.get_by_role("alert")
        await expect(said).to_contain_text("has signed in here since this page was loaded")
        await expect(note).to_have_value("half written")
        await expect(page.locator("#who")).to_contain_text("submit")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".said-of-it")).to_have_text("half written")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("API token")).to_be_visible()
    assert [each for each in tab.complaints if "403" not in each] == []
