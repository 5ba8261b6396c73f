"""The journal on a dataset's page: every entry of it can be reached, by kind, by study, page by page."""

import csv
import io
from typing import Any

import httpx
import pytest

from service.context import Context
from service.dashboard.privacy import ENTRIES_PER_PAGE, KINDS
from service.ledger.service import Ledger
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import Page, get

PAGE = "/ui/datasets/digits"
MANY = ENTRIES_PER_PAGE + 10


@pytest.fixture
async def studies(context: Context) -> list[str]:
    """Two studies, the second one charged in many steps."""
    first = await seeding.completed(context)
    second = await seeding.submitted(context, name="second")
    ledger = Ledger()
    async with context.database.session() as session:
        await ledger.acquire(session, second, epoch=1)
        for number in range(MANY):
            await ledger.begin_segment(
                session, second, epoch=1, start_step=number, num_steps=1, request_id=f"q{number}"
            )
    return [first, second]


async def entries(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    return (await client.get("/datasets/digits/ledger?entries=10000")).json()["entries"][::-1]


def shown(page: Page) -> list[str]:
    """Hashes of the entries that the page lists."""
    return [
        a["title"] or ""
        for tag, a in page.elements
        if tag == "td" and len(a.get("title") or "") == 64
    ]


async def test_charges_of_steps_are_left_out_unless_they_are_asked_for(
    client: httpx.AsyncClient, studies: list[str]
) -> None:
    everything = await entries(client)

    page = await get(client, PAGE)

    usual = [one["hash"] for one in everything if one["kind"] not in ("begin", "end")]
    assert shown(page) == usual
    assert f"{len(usual)} of {len(everything)} entries are listed" in page.text["journal"]
    assert "without what begins and ends each charge" in page.text["journal"]
    ticked = [a["value"] for a in page.all("input") if a.get("name") == "kind" and "checked" in a]
    assert ticked == [kind for kind in KINDS if kind not in ("begin", "end")]


async def test_every_entry_is_on_one_page_or_another(
    client: httpx.AsyncClient, studies: list[str]
) -> None:
    query = "&".join(f"kind={kind}" for kind in KINDS)
    address: str | None = f"{PAGE}?{query}"
    found: list[str] = []
    while address:
        page = await get(client, address)
        part = shown(page)
        assert len(part) <= ENTRIES_PER_PAGE
        found += part
        older = [a["href"] for a in page.all("a") if a.get("rel") == "next"]
        address = older[0] if older else None
    assert found == [one["hash"] for one in await entries(client)]


async def test_one_study_alone(client: httpx.AsyncClient, studies: list[str]) -> None:
    page = await get(client, f"{PAGE}?kind=reserve&kind=begin&study={studies[0]}")

    assert shown(page) == [
        one["hash"]
        for one in await entries(client)
        if one["reservation_id"] == studies[0] and one["kind"] in ("reserve", "begin")
    ]
    nothing = await get(client, f"{PAGE}?study=s-none")
    assert shown(nothing) == []
    assert "No entry fits" in nothing.text["journal"]


async def test_what_is_listed_can_be_had_as_csv(
    client: httpx.AsyncClient, studies: list[str]
) -> None:
    page = await get(client, f"{PAGE}?kind=begin&study={studies[1]}")
    (address,) = [a["href"] or "" for a in page.all("a") if "journal.csv" in (a.get("href") or "")]

    rows = list(csv.DictReader(io.StringIO((await client.get(address)).text)))

    assert len(rows) == MANY
    known = {one["hash"]: one for one in await entries(client)}
    assert all(known[row["hash"]]["body"] == row["body"] for row in rows)
    assert [int(row["entry"]) for row in rows] == sorted(int(row["entry"]) for row in rows)


@pytest.mark.parametrize("query", ["kind=none", "before=0", "study=a%00b"])
async def test_what_is_no_filter_is_refused_by_its_name(
    client: httpx.AsyncClient, context: Context, query: str
) -> None:
    await seeding.submitted(context)
    response = await client.get(f"{PAGE}?{query}")
    assert response.status_code == 422
    assert query.partition("=")[0] in response.text
