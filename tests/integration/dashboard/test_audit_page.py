"""The page of the audit."""

import httpx
import pytest

from service.context import Context
from service.dashboard.audit import EVENTS_PER_PAGE
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import Page, get


def rows(page: Page) -> int:
    return len([a for tag, a in page.elements if tag == "tr"]) - 1


async def test_nothing_yet(client: httpx.AsyncClient) -> None:
    assert "Nobody has asked for a change" in (await get(client, "/ui/audit")).text["audit"]


async def test_who_asked_for_what(client: httpx.AsyncClient, context: Context) -> None:
    study_id = await seeding.awaiting_approval(context)
    await client.post(f"/studies/{study_id}/promote")
    await client.post(f"/studies/{study_id}/cancel")

    page = await get(client, f"/ui/audit?target={study_id}&action=promote&since=2026-01-01")

    assert rows(page) == 1
    assert f"{study_id}/trials/" in page.text["audit"]
    fields = {a.get("name"): a.get("value") for a in page.all("input")}
    assert fields == {"target": study_id, "action": "promote", "actor": "", "since": "2026-01-01"}
    href = f"/audit?target={study_id}&action=promote&since=2026-01-01"
    assert href in [a.get("href") for a in page.all("a")]
    assert f"/ui/studies/{study_id}" in [a.get("href") for a in page.all("a")]
    nothing = await get(client, "/ui/audit?actor=nobody")
    assert "Nothing fits" in nothing.text["audit"]


async def test_page_by_page(client: httpx.AsyncClient) -> None:
    for _ in range(EVENTS_PER_PAGE + 2):
        await client.post("/studies/s-1/cancel")

    first = await get(client, "/ui/audit?target=s-1")
    # Of what was refused there may be no page.
    assert "/ui/studies/s-1" not in [a.get("href") for a in first.all("a")]
    (older,) = [a["href"] or "" for a in first.all("a") if a.get("rel") == "next"]
    last = await get(client, older)

    assert (rows(first), rows(last)) == (EVENTS_PER_PAGE, 2)
    assert not [a for a in last.all("a") if a.get("rel") == "next"]


@pytest.mark.parametrize("query", ["since=yesterday", "cursor=x", "target=a%00b"])
async def test_what_is_no_filter_is_said(client: httpx.AsyncClient, query: str) -> None:
    page = await get(client, f"/ui/audit?{query}", status=422)
    assert query.partition("=")[0] in page.text["audit"]
