"""Answers that are slow, and clicks that do not wait for them: what was asked last is what is shown."""

import asyncio
import contextlib
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Error, Page, Request, Route, expect

from tests.browser.conftest import Service, Tab
from tests.browser.test_study import searching, settled
from tests.integration.dashboard import seeding

pytestmark = pytest.mark.browser


class Held:
    """Holds back the answers to requests that fit, as they were when they were asked for."""

    def __init__(self, fits: Callable[[Request], bool]) -> None:
        self._fits = fits
        self.asked = asyncio.Event()
        self._free = asyncio.Event()

    async def install(self, page: Page) -> None:
        await page.route("**/*", self._route)

    async def let_go(self, page: Page) -> None:
        """And wait until what comes of them is shown."""
        self._free.set()
        await page.wait_for_timeout(700)

    async def _route(self, route: Route, request: Request) -> None:
        if self._free.is_set() or not self._fits(request):
            await route.continue_()
            return
        answer = await route.fetch()
        self.asked.set()
        await self._free.wait()
        with contextlib.suppress(Error):  # the page may have given it up
            await route.fulfill(response=answer)


def refreshes(request: Request) -> bool:
    """Whether the page asks by itself."""
    has_filter = "name_contains" in request.url or "trial_state" in request.url
    return "hx-request" in request.headers and not has_filter


def fields(url: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(url).query)


class TestStudies:
    async def test_a_heading_is_clicked_before_the_filters_answer_has_come(
        self, service: Service, tab: Tab
    ) -> None:
        for name in ("omega-2", "omega-1", "alpha"):
            await seeding.submitted(service.context, name=name)
        held = Held(lambda one: "name_contains" in one.url and "sort=name" not in one.url)

        async with tab.open("/") as page:
            await held.install(page)
            await page.get_by_role("searchbox", name="Name").fill("omeg")
            await held.asked.wait()
            await page.get_by_role("button", name="Study", exact=True).click()

            rows = page.locator("#studies tbody tr")
            await expect(rows).to_have_count(2)
            await held.let_go(page)
            assert [await row.get_by_role("link").first.inner_text() for row in await rows.all()] == ["omega-1", "omega-2"]  # fmt: skip
            asked = fields(page.url)
            assert (asked["name_contains"], asked["sort"]) == (["omeg"], ["name"])
            await expect(page.get_by_label("Order")).to_have_value("name")
            await page.get_by_role("button", name="Study").click()
            await expect(rows.first).to_contain_text("omega-2")
        assert tab.complaints == []

    async def test_a_refresh_that_was_under_way_does_not_undo_a_filter(
        self, service: Service, tab: Tab
    ) -> None:
        for name in ("omega", "alpha"):
            await seeding.submitted(service.context, name=name)
        held = Held(refreshes)

        async with tab.open("/") as page:
            await held.install(page)
            await held.asked.wait()
            await page.get_by_role("searchbox", name="Name").fill("omeg")
            rows = page.locator("#studies tbody tr")
            await expect(rows).to_have_count(1)
            await held.let_go(page)
            assert await rows.count() == 1
        assert tab.complaints == []


class TestTrials:
    async def test_a_heading_is_clicked_before_the_filters_answer_has_come(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await searching(service.context)
        held = Held(lambda one: "trial_state" in one.url and "order=param" not in one.url)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await settled(page)
            await held.install(page)
            await page.locator("#tick-completed").check()
            await held.asked.wait()
            await page.locator(r"#sort-param\.learning_rate").click()

            await expect(page.locator("th[aria-sort=ascending]")).to_contain_text("learning_rate")
            await held.let_go(page)
            await expect(page.locator("#tick-completed")).to_be_checked()
            states = await page.locator("#trials tbody .chip").all_inner_texts()
            assert set(states) == {"completed"}
            assert fields(page.url) == {
                "trial_state": ["completed"], "order": ["param.learning_rate"],
            }  # fmt: skip
        assert tab.complaints == []

    async def test_news_that_were_under_way_do_not_undo_a_filter(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await searching(service.context)
        held = Held(refreshes)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await settled(page)
            await expect(page.locator("#connection")).to_have_text("Live")
            await held.install(page)
            await seeding.report_trial(service.context, study_id, 60, 0.9876)
            await held.asked.wait()
            await page.locator("#tick-pruned").check()
            await expect(page.locator("#trials tbody .chip", has_text="completed")).to_have_count(0)
            await held.let_go(page)

            await expect(page.locator("#tick-pruned")).to_be_checked()
            await expect(page.locator("#trials tbody .chip", has_text="completed")).to_have_count(0)
        assert tab.complaints == []


class TestWaiting:
    """What is seen until an answer has come."""

    async def test_what_was_asked_for_is_seen_to_be_under_way(
        self, service: Service, tab: Tab
    ) -> None:
        await seeding.submitted(service.context, name="alpha")
        line = "getComputedStyle(document.body, '::before').content !== 'none'"

        async with tab.open("/") as page:
            assert not await page.evaluate(line)
            answer = Held(lambda request: "name_contains=omega" in request.url)
            await answer.install(page)
            await page.get_by_role("searchbox", name="Name").fill("omega")
            await answer.asked.wait()

            assert await page.evaluate(line)
            await answer.let_go(page)
            await expect(page.get_by_text("No study fits these filters")).to_be_visible()
            assert not await page.evaluate(line)

    async def test_charts_that_have_not_come_yet_ask_for_a_moment(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await searching(service.context)

        async with tab.open("/") as page:
            answer = Held(lambda request: request.url.endswith("/search"))
            await answer.install(page)
            await page.goto(f"/ui/studies/{study_id}")
            await answer.asked.wait()

            said = "getComputedStyle(document.querySelector('#search'), '::before').content"
            assert "A moment" in await page.evaluate(said)
            await answer.let_go(page)
            await settled(page)
            assert await page.evaluate(said) == "none"
