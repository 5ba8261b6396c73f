"""What awaits a person stands in the navigation of whoever may approve it, and in its row of the list."""

import pytest
from sqlalchemy import update

from service.db.tables import Study
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import Page


@pytest.fixture
async def waiting(app):
    return await seeding.awaiting_approval(app.state.context)


async def _page(caller, path: str) -> Page:
    response = await caller.get(path)
    assert response.status_code == 200, response.text
    return Page(response.text)


def _link(page: Page) -> dict:
    return next((a for a in page.all("a") if a.get("id") == "awaiting"), {})


@pytest.mark.parametrize("path", ["/", "/ui/plan", "/ui/datasets", "/ui/calibration", "/ui/new"])
async def test_every_page_says_how_many_await_approval(admin, waiting, path):
    page = await _page(admin, path)

    assert page.text["awaiting"] == "1 to approve"
    assert _link(page)["href"] == "/?state=awaiting_approval"
    assert "hidden" not in _link(page)


async def test_the_link_leads_to_them_and_their_row_to_the_choice(admin, waiting):
    page = await _page(admin, "/?state=awaiting_approval")

    hrefs = {a.get("href") for a in page.all("a")}
    assert f"/ui/studies/{waiting}#prediction-head" in hrefs
    study = await _page(admin, f"/ui/studies/{waiting}")
    assert "prediction-head" in study.text


async def test_a_study_without_candidates_is_approved_above(admin, app, waiting):
    async with app.state.context.database.session() as session:
        await session.execute(update(Study).values(promotion=None))

    page = await _page(admin, "/")

    assert f"/ui/studies/{waiting}#actions" in {a.get("href") for a in page.all("a")}
    assert "actions" in (await _page(admin, f"/ui/studies/{waiting}")).text


@pytest.mark.parametrize("column", ["promote_requested", "cancel_requested"])
async def test_what_was_decided_awaits_nobody(admin, app, waiting, column):
    async with app.state.context.database.session() as session:
        await session.execute(update(Study).values({column: True}))

    page = await _page(admin, "/")

    assert "hidden" in _link(page)
    assert not [a for a in page.all("a") if "#prediction-head" in (a.get("href") or "")]


async def test_whoever_may_not_approve_it_is_told_of_none(admin, waiting):
    for scopes, tenant, shown in (
        (["approve"], "local", "1 to approve"),
        (["approve"], "umbrella", None),
        (["submit"], "local", None),
        (["audit"], "local", None),
    ):
        caller = await admin.befriend(scopes, tenant=tenant)
        page = await _page(caller, "/")
        is_shown = _link(page).get("hidden", "absent") == "absent" and bool(_link(page))
        assert (page.text["awaiting"] if is_shown else None) == shown
        offers = [a for a in page.all("a") if "#prediction-head" in (a.get("href") or "")]
        assert bool(offers) == (shown is not None)
