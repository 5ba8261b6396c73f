"""The list of studies: its filters, and what is done to many at once."""

import csv
import io
import re

import httpx
import pytest

from service.context import Context
from service.studies.schemas import StudyOrder
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import get

BULK = "/ui/studies/bulk"


async def _shown(client: httpx.AsyncClient, path: str) -> list[str]:
    page = await get(client, path)
    return re.findall(r"'id': 'row-([\w-]+)'", str(page.all("tr")))


class TestFilters:
    async def test_the_list_is_the_apis_for_the_same_filters(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        first = await seeding.submitted(context, name="alpha")
        await seeding.copies(context, first, 3)
        await seeding.failed(context, "lost", name="omega")
        await client.patch(f"/studies/{first}", json={"tags": ["paper"]}, headers={"If-Match": "*"})

        orders = [f"sort={order.value}" for order in StudyOrder]
        filters = ("name_contains=LPH", "state=failed", "tag=paper", "model=mlp", "model=timm:none")
        for query in (*filters, *orders):
            items = (await client.get(f"/studies?{query}")).json()["items"]
            assert await _shown(client, f"/?{query}") == [item["id"] for item in items], query

    async def test_one_model_is_found_among_others(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.submitted(context, name="alpha")
        linear = await seeding.submitted(context, name="beta", model={"name": "linear"})

        assert await _shown(client, "/?model=linear") == [linear]
        assert (await client.get("/studies?model=linear")).json()["items"][0]["model"] == "linear"
        assert await _shown(client, "/?model=line") == []

    async def test_a_csv_has_every_study_that_fits_and_not_a_page_of_them(
        self, client: httpx.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = await seeding.completed(context, name="alpha")
        await seeding.copies(context, first, 30)
        await seeding.failed(context, "lost", name="omega")
        await client.patch(
            f"/studies/{first}", json={"tags": ["paper", "fig:2"]}, headers={"If-Match": "*"}
        )
        monkeypatch.setattr("service.dashboard.listing.MOST_AT_ONCE", 7)
        page = await get(client, "/?name_contains=alpha&sort=name")
        (address,) = {a["href"] for a in page.all("a") if "studies.csv" in str(a.get("href"))}

        answer = await client.get(address or "")

        assert answer.status_code == 200, answer.text
        rows = list(csv.DictReader(io.StringIO(answer.text)))
        listed = "/studies?name_contains=alpha&sort=name&limit=200"
        items = (await client.get(listed)).json()["items"]
        assert [row["id"] for row in rows] == [item["id"] for item in items]
        (known,) = [row for row in rows if row["id"] == first]
        (item,) = [item for item in items if item["id"] == first]
        assert (known["tags"], known["model"]) == ("paper fig:2", "mlp")
        for name in ("epsilon", "delta", "test_accuracy", "predicted_low", "best_accuracy"):
            assert float(known[name]) == item[name]
        assert known["search_note"] == item["search_note"]
        assert (await client.get("/ui/studies.csv?state=odd")).status_code == 422

    async def test_no_epsilon_stands_without_its_neighbours_and_no_score_without_what_it_is(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        waiting = await seeding.submitted(context, name="alpha")
        page = await get(client, "/")
        assert "neighbours: add or remove one" in page.text[f"row-{waiting}"]
        assert "of-trials" not in page.text

        await seeding.completed(context)

        page = await get(client, "/")
        assert "which is not private" in page.text["of-trials"]

    async def test_the_next_page_keeps_the_filters(
        self, client: httpx.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = await seeding.submitted(context, name="alpha")
        await seeding.copies(context, first, 30)
        page = await get(client, "/?name_contains=alpha&sort=name")
        assert page.text["total"] == "31 studies fit"

        (following,) = [a["href"] for a in page.all("a") if a.get("rel") == "next"]
        rest = await _shown(client, following or "")

        items = (await client.get("/studies?name_contains=alpha&sort=name&limit=200")).json()[
            "items"
        ]
        assert rest == [item["id"] for item in items[25:]]
        assert (await get(client, following or "")).text["total"] == "31 studies fit"
        assert (await get(client, "/")).text["total"] == "31 studies"
        assert "total" not in (await get(client, "/?model=mlp")).text
        monkeypatch.setattr("service.studies.repository.MOST_COUNTED", 30)
        assert (await get(client, "/")).text["total"] == "more than 1,000 studies"
        assert (await get(client, "/?name_contains=alpha-29")).text["total"] == "1 study fits"

    async def test_a_filter_that_is_none_is_refused_in_its_place(
        self, client: httpx.AsyncClient
    ) -> None:
        page = await get(client, "/?state=odd", status=422)

        assert "state" in page.text["studies"]


class TestBulk:
    async def test_each_is_done_or_named_with_its_reason(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        queued = await seeding.submitted(context, name="queued")
        done = await seeding.completed(context, name="done")

        both = {"action": "cancel", "study": [queued, done, "s-none"]}
        answer = await client.post(BULK, data=both)

        assert answer.status_code == 409
        detail = answer.json()["detail"]
        assert detail.startswith("1 of 3 done")
        assert f"{done}: " in detail
        assert "s-none: there is no study" in detail
        row = await get(client, "/")
        assert "cancelled by a user" in row.text[f"row-{queued}"]

    async def test_archived_ones_come_back(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        done = await seeding.completed(context, name="done")

        for action, shown in (("archive", []), ("unarchive", [done])):
            answer = await client.post(BULK, data={"action": action, "study": [done]})
            assert answer.status_code == 204
            assert await _shown(client, "/") == shown

    async def test_tags_are_added_to_each_and_taken_away(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        ids = [await seeding.submitted(context, name=name) for name in ("one", "other")]
        await client.patch(f"/studies/{ids[0]}", json={"tags": ["old"]}, headers={"If-Match": "*"})

        for action, tags, left in (
            ("tag", "paper, fig:2", [["old", "paper", "fig:2"], ["paper", "fig:2"]]),
            ("tag", "paper", [["old", "paper", "fig:2"], ["paper", "fig:2"]]),
            ("untag", "paper old", [["fig:2"], ["fig:2"]]),
        ):
            answer = await client.post(BULK, data={"action": action, "study": ids, "tags": tags})
            assert answer.status_code == 204
            views = [(await client.get(f"/studies/{study_id}")).json() for study_id in ids]
            assert [view["tags"] for view in views] == left
        assert "fig:2" in (await get(client, f"/ui/studies/{ids[0]}")).text["tagging"]

    async def test_a_tag_that_is_none_is_refused_once_with_what_it_may_be(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.submitted(context)

        answer = await client.post(BULK, data={"action": "tag", "study": study_id, "tags": "a<b"})
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("tags.0: expected letters, digits")
        empty = await client.post(BULK, data={"action": "tag", "study": study_id, "tags": " , "})
        assert "tags: write at least one tag" in empty.json()["detail"]

    async def test_an_unknown_action_and_nothing_chosen_are_refused(
        self, client: httpx.AsyncClient
    ) -> None:
        for data in ({"action": "delete", "study": ["s-1"]}, {"action": "cancel"}):
            assert (await client.post(BULK, data=data)).status_code == 422

    async def test_another_sites_page_changes_nothing(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        queued = await seeding.submitted(context, name="queued")

        answer = await client.post(
            BULK,
            data={"action": "cancel", "study": [queued]},
            headers={"Origin": "https://elsewhere.test"},
        )

        assert answer.status_code == 403
