"""Every page, over the real application and database."""

import gzip
import json
import re
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.context import Context
from service.dashboard.listing import STUDIES_PER_PAGE
from service.dashboard.trials_table import TRIALS_PER_PAGE
from service.db.session import Database
from tan_core.accounting import SEARCH_NOTES, SearchAccounting
from tests.fixtures.postgres import DatabaseUrls
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import Page, get

UNACCOUNTED = SEARCH_NOTES[SearchAccounting.DECLARED_UNACCOUNTED]


@pytest.fixture
async def every_page(context: Context) -> list[str]:
    """One page of each kind, of studies in every state."""
    ids = [
        await seeding.submitted(context, name="queued"),
        await seeding.simulating(context, name="simulating"),
        await seeding.awaiting_approval(context, name="waiting"),
        await seeding.training(context, name="training"),
        await seeding.completed(context, name="completed"),
        await seeding.failed(context, "every trial diverged", name="failed"),
    ]
    lists = ["/", "/ui/datasets", "/ui/datasets/digits", "/ui/calibration"]
    return [*lists, *(f"/ui/studies/{id_}" for id_ in ids)]


def _actions(page: Page) -> list[str]:
    return [a["id"] or "" for a in page.all("button") if "hx-post" in a]


class TestEveryPage:
    async def test_nothing_on_it_needs_more_than_a_strict_policy(
        self, client: httpx.AsyncClient, every_page: list[str]
    ) -> None:
        for path in every_page:
            response = await client.get(path)
            policy = response.headers["content-security-policy"]
            assert "default-src 'self'" in policy
            assert "unsafe" not in policy
            for tag, attributes in Page(response.text).elements:
                assert "style" not in attributes
                assert not [name for name in attributes if name.startswith("on")]
                assert tag != "style"
                assert tag != "script" or (attributes.get("src") or "").startswith("/ui/static/")

    async def test_it_can_be_read_without_seeing_it(
        self, client: httpx.AsyncClient, every_page: list[str]
    ) -> None:
        for path in [*every_page, "/ui/studies/s-none"]:
            page = await get(client, path, status=404 if path.endswith("none") else 200)
            ids = [a["id"] for _, a in page.elements if "id" in a]
            assert len(ids) == len(set(ids))
            assert [len(page.all(tag)) for tag in ("main", "h1", "header", "footer")] == [1] * 4
            assert page.all("html")[0]["lang"] == "en"
            assert all(a.get("aria-label") for a in page.all("nav"))
            assert all("scope" in a for a in page.all("th"))
            assert all(a.get("aria-label") for a in page.all("progress"))
            assert all(a.get("aria-label") or a.get("aria-hidden") for a in page.all("svg"))
            labels = [a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a]
            assert set(labels) <= set(ids)

    async def test_parts_that_are_exchanged_can_be_found_again(
        self, client: httpx.AsyncClient, every_page: list[str]
    ) -> None:
        for path in every_page:
            page = await get(client, path)
            (main,) = page.all("main")
            is_over = "/ui/studies/" in path and not any(
                a.get("id") == "stream" for a in page.all("div")
            )
            assert main["hx-get"] == ""
            assert (main["hx-trigger"] == "refresh from:body") is is_over
            assert main["hx-select"] == "#main"

    @pytest.mark.slow
    async def test_links_lead_somewhere(
        self, client: httpx.AsyncClient, every_page: list[str]
    ) -> None:
        links = {
            attributes["href"] or ""
            for path in every_page
            for tag, attributes in (await get(client, path)).elements
            if tag in ("a", "link") and (attributes.get("href") or "").startswith("/")
        }
        # The example's weights are not on storage.
        for link in sorted(links - {link for link in links if link.endswith("/model")}):
            assert (await client.get(link)).status_code == 200, link

    async def test_epsilon_never_stands_without_how_the_search_was_accounted(
        self, client: httpx.AsyncClient, every_page: list[str]
    ) -> None:
        for path in every_page:
            assert UNACCOUNTED in (await client.get(path)).text

    async def test_links_keep_the_prefix_of_a_proxy(
        self, app: FastAPI, every_page: list[str]
    ) -> None:
        transport = httpx.ASGITransport(app, root_path="/tan")
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for path in every_page:
                page = Page((await client.get(f"/tan{path}")).text)
                for _, attributes in page.elements:
                    for name in ("href", "src", "hx-post"):
                        target = attributes.get(name) or ""
                        assert not target.startswith("/") or target.startswith("/tan/")


class TestStudiesPage:
    async def test_an_empty_list_says_how_to_begin(self, client: httpx.AsyncClient) -> None:
        page = await get(client, "/")

        assert "tan-cli submit examples/digits.yaml" in page.text["studies"]

    async def test_pages_show_every_study_once_newest_first(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        newest = await seeding.submitted(context, name="many")
        await seeding.copies(context, newest, 60)

        seen: list[str] = []
        path: str | None = "/"
        while path:
            page = await get(client, path)
            found = re.findall(r"/ui/studies/([\w-]+)", json.dumps(page.all("a")))
            assert len(found) <= STUDIES_PER_PAGE
            seen += found
            path = next((a["href"] for a in page.all("a") if a.get("rel") == "next"), None)

        assert seen == [newest, *(f"s-copy-{number:04d}" for number in range(60))]

    async def test_a_broken_cursor_is_refused_in_words(self, client: httpx.AsyncClient) -> None:
        page = await get(client, "/?cursor=nonsense", status=422)

        assert "next_cursor" in page.text["main"]

    async def test_every_row_says_what_the_api_says(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.completed(context, name="done")
        await seeding.failed(context, "the cluster is gone", name="lost")

        page = await get(client, "/")
        items = (await client.get("/studies")).json()["items"]

        for item in items:
            study = (await client.get(f"/studies/{item['id']}")).json()
            predicted = (study["prediction"] or {}).get("accuracy")
            assert item["predicted_accuracy"] == predicted
            assert item["target_epsilon"] == study["spec"]["privacy"]["epsilon"]
        figures = ("best_accuracy", "predicted_accuracy", "test_accuracy", "epsilon", "delta")
        figures += ("target_epsilon",)
        shown = [item[name] for item in items for name in figures if item[name] is not None]
        assert page.data["studies"] == shown
        for item in items:
            assert item["state"] in page.text["studies"]
            assert (item["reason"] or "") in page.text["studies"]

    async def test_a_running_study_shows_how_far_it_is(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.simulating(context, trials=9)

        page = await get(client, "/")

        assert "9 of 12 trials" in page.text["studies"]


class TestStudyPage:
    async def test_it_says_when_the_study_was_submitted_to_who_cannot_hover(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.submitted(context)
        created = (await client.get(f"/studies/{study_id}")).json()["created_at"]

        page = await get(client, f"/ui/studies/{study_id}")

        assert f"{created[:10]} {created[11:16]} UTC" in page.text["meta"]

    async def test_a_note_is_written_there_and_stands_beside_others(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id, other = [await seeding.completed(context, name=name) for name in ("one", "two")]
        path = f"/ui/studies/{study_id}"
        form = {"note": " first line\r\n<b>second</b> ", "version": "0"}

        saved = await client.post(f"{path}/note", data=form)
        again = await client.post(f"{path}/note", data={**form, "note": "late"})

        assert (saved.status_code, again.status_code) == (204, 412)
        page = await get(client, path)
        assert "first line\n<b>second</b>" in page.text["note"]
        assert "first line" in page.text["note-text"]
        (written,) = [one for one in page.all("p") if one.get("class") == "said-of-it"]
        assert written["dir"] == "auto"  # notes are written from the right, too
        compared = await get(client, f"/ui/compare?study={study_id}&study={other}")
        assert "<b>second</b>" in compared.text["results"]
        cleared = await client.post(f"{path}/note", data={"version": "1"})
        assert cleared.status_code == 204
        assert (await client.get(f"/studies/{study_id}")).json()["note"] is None
        page = await get(client, f"/ui/compare?study={study_id}&study={other}")
        assert "Note" not in page.text["results"]

    async def test_a_model_comes_with_the_python_that_uses_it(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.completed(context, name="done")
        waiting = await seeding.awaiting_approval(context, name="waiting")

        page = await get(client, f"/ui/studies/{study_id}")

        compile(page.text["classify-code"], "classify.py", "exec")
        assert 'safe_open("done.safetensors"' in page.text["classify-code"]
        assert "classify-code" not in (await get(client, f"/ui/studies/{waiting}")).text

    async def test_its_figures_are_the_apis(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.completed(context)

        page = await get(client, f"/ui/studies/{study_id}")
        study = (await client.get(f"/studies/{study_id}")).json()

        privacy, run = study["privacy"], study["run"]
        assert page.data["figures"] == [
            privacy["epsilon"],
            privacy["delta"],
            run["test_accuracy"],
            run["num_test"],
            study["best_trial"]["value"],
        ]
        reference = study["plan"]["reference"]
        # What the plan does not have, as a cap on the batch, is not shown.
        shown = {value for value in reference.values() if not isinstance(value, str | None)}
        assert shown <= set(page.data["plan"])
        assert reference["precision"] in page.text["plan"]
        assert set(study["plan"]["privacy"]["epsilon_by_accountant"].values()) <= set(
            page.data["plan"]
        )
        assert {privacy["charged_steps"], privacy["reserved_steps"]} <= set(page.data["run"])
        assert privacy["ledger_entry"]["hash"] in page.text["run"]
        assert f"{run['step']} of {run['steps']} steps" in page.text["progress"]

    async def test_a_simulation_is_never_called_private(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        page = await get(client, f"/ui/studies/{await seeding.simulating(context)}")

        assert "not private" in page.text["plan"]
        assert "an estimate, never a guarantee" in page.text["plan"]
        assert "not private" in page.text["figures"]

    async def test_a_finished_study_offers_what_it_made_and_stops_listening(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.completed(context)

        page = await get(client, f"/ui/studies/{study_id}")

        hrefs = [a.get("href") for a in page.all("a")]
        assert f"/ui/studies/{study_id}/statement" in hrefs
        assert f"/studies/{study_id}/model" in hrefs
        assert not _actions(page)
        assert not [a for _, a in page.elements if "hx-sse:connect" in a]

    async def test_a_running_study_listens_from_where_the_page_was_made(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.simulating(context)

        page = await get(client, f"/ui/studies/{study_id}")

        (stream,) = [a for _, a in page.elements if "hx-sse:connect" in a]
        assert stream["hx-sse:connect"] == f"/studies/{study_id}/events?after=2"
        assert _actions(page) == ["pause", "finish", "cancel"]

    async def test_a_search_that_a_user_ends_says_so(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.simulating(context)
        before = await get(client, f"/ui/studies/{study_id}")
        assert (await client.post(f"/studies/{study_id}/finish")).status_code == 202

        page = await get(client, f"/ui/studies/{study_id}")

        assert "· ending early" in page.text["main"]
        assert "ending early" not in before.text["main"]
        (button,) = [a for tag, a in page.elements if tag == "button" and a.get("id") == "finish"]
        assert "disabled" in button

    async def test_only_a_study_that_waits_can_be_approved(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        waiting = await seeding.awaiting_approval(context, name="waiting")
        queued = await seeding.submitted(context, name="queued")

        first, second = [await get(client, f"/ui/studies/{id_}") for id_ in (waiting, queued)]

        standings = (await client.get(f"/studies/{waiting}")).json()["promotion"]["standings"]
        choices = [f"choose-{one['trial']}" for one in standings]
        assert _actions(first) == ["approve", "pause", "cancel", *choices]
        assert _actions(second) == ["pause", "cancel"]

    async def test_what_was_asked_for_cannot_be_asked_for_again(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.simulating(context)
        assert (await client.post(f"/studies/{study_id}/cancel")).status_code == 202

        page = await get(client, f"/ui/studies/{study_id}")

        (cancel,) = [a for a in page.all("button") if "hx-post" in a]
        assert "disabled" in cancel
        assert "Cancelling" in page.text["cancel"]

    async def test_a_study_that_ended_before_its_first_trial_waits_for_none(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.submitted(context)
        queued = await get(client, f"/ui/studies/{study_id}")
        await seeding.end(context, study_id, "cancelled")

        over = await get(client, f"/ui/studies/{study_id}")
        fragment = await get(client, f"/ui/studies/{study_id}/trials")

        assert "No trial yet" in queued.text["trials"]
        assert "No driver has started yet" in queued.text["attempts"]
        for shown in (over, fragment):
            assert "None: the study ended before its first trial began" in shown.text["trials"]
        assert "No driver was started" in over.text["attempts"]

    async def test_a_failed_study_says_why_and_what_to_do(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.failed(context, "gave up after 5 attempts: exit code 137")

        page = await get(client, f"/ui/studies/{study_id}")

        assert "gave up after 5 attempts: exit code 137" in page.text["failure"]
        assert "submit the study again" in page.text["failure"]

    async def test_hostile_text_is_only_text(
        self, client: httpx.AsyncClient, context: Context, owner: Database
    ) -> None:
        study_id = await seeding.simulating(context)
        await seeding.rename(owner, study_id, seeding.HOSTILE)

        for path in ("/", f"/ui/studies/{study_id}", "/ui/datasets/digits"):
            response = await client.get(path)
            assert seeding.HOSTILE not in response.text
            assert "&lt;script&gt;" in response.text
            assert all("src" in a for a in Page(response.text).all("script"))

    @pytest.mark.parametrize("path", ["/ui/studies/s-none", "/ui/datasets/none", "/ui/nothing/at"])
    async def test_an_unknown_address_is_a_page_too(
        self, client: httpx.AsyncClient, path: str
    ) -> None:
        page = await get(client, path, status=404)

        assert "Not found" in page.text["main"]

    async def test_an_unknown_name_is_escaped_in_its_refusal(
        self, client: httpx.AsyncClient
    ) -> None:
        response = await client.get("/ui/studies/%3Cscript%3Ealert(1)%3C%2Fscript%3E")

        assert response.status_code == 404
        assert "<script>alert" not in response.text


class TestTrials:
    async def test_a_long_search_is_shown_in_pages(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.simulating(context, trials=120)

        numbers = [await self._numbers(client, study_id, "number", page) for page in (1, 2, 3)]

        assert [len(shown) for shown in numbers] == [TRIALS_PER_PAGE, TRIALS_PER_PAGE, 20]
        assert [number for shown in numbers for number in shown] == list(range(120))

    async def test_the_best_come_first_and_those_without_a_score_last(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.simulating(context)
        best = (await client.get(f"/studies/{study_id}")).json()["best_trial"]["number"]

        numbers = await self._numbers(client, study_id, "best", 1)

        assert numbers[0] == best
        assert numbers[-1] == 2  # it diverged

    async def test_a_page_beyond_the_last_is_the_last(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.simulating(context)

        assert await self._numbers(client, study_id, "-number", 99) == list(range(11, -1, -1))

    @pytest.mark.parametrize(
        "query", ["order=odd", "trials=0", "trials=x", "order=rung.x", "rung=9", "trial_state=odd"]
    )
    async def test_a_query_that_means_nothing_is_refused(
        self, client: httpx.AsyncClient, context: Context, query: str
    ) -> None:
        study_id = await seeding.submitted(context)

        await get(client, f"/ui/studies/{study_id}?{query}", status=422)

    async def _numbers(
        self, client: httpx.AsyncClient, study_id: str, order: str, page: int
    ) -> list[int]:
        text = (await client.get(f"/ui/studies/{study_id}?order={order}&trials={page}")).text
        table = text[text.index('class="trials"') :]
        return [int(n) for n in re.findall(r'<th scope="row" class="num">(\d+)</th>', table)]


class TestDatasetPages:
    async def test_the_budget_is_the_apis_and_what_remains_is_not_rounded_up(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.training(context)

        page = await get(client, "/ui/datasets/digits")
        account: dict[str, Any] = (await client.get("/datasets/digits/ledger")).json()

        assert page.data["budget"] == [
            account["scope"]["epsilon"],
            account["scope"]["delta"],
            account["charged_epsilon"],
            account["committed_epsilon"],
            account["remaining_epsilon"],
        ]
        shown = [float(n) for n in re.findall(r"ε (\d[\d.]*)", page.text["budget"])]
        assert shown[1] >= account["charged_epsilon"]
        assert shown[2] >= account["committed_epsilon"]
        assert shown[3] <= account["remaining_epsilon"]

    async def test_the_journal_is_shown_newest_first(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.completed(context)

        page = await get(client, "/ui/datasets/digits")
        account = (await client.get("/datasets/digits/ledger")).json()

        entries = [each for each in account["entries"] if each["kind"] not in ("begin", "end")]
        hashes = [entry["hash"][:12] for entry in reversed(entries)]
        places = [page.text["journal"].index(hash_, 200) for hash_ in hashes]
        assert places == sorted(places)
        assert study_id in page.text["journal"]
        assert account["head"]["hash"] in page.text["journal"]

    async def test_public_data_has_no_budget_to_show(
        self, client: httpx.AsyncClient, context: Context, database_urls: DatabaseUrls
    ) -> None:
        await seeding.submitted(context)
        seeding.make_public(database_urls)

        for path in ("/ui/datasets", "/ui/datasets/digits"):
            assert "public data: no budget" in (await client.get(path)).text


class TestAssets:
    async def test_browsers_may_keep_them_for_ever(self, client: httpx.AsyncClient) -> None:
        page = await get(client, "/")
        addresses = [a["href"] or "" for a in page.all("link")] + [
            a["src"] or "" for a in page.all("script")
        ]

        for address in addresses:
            response = await client.get(address)
            assert response.status_code == 200
            assert "immutable" in response.headers["cache-control"]
            assert response.headers["x-content-type-options"] == "nosniff"

    async def test_they_are_compressed_for_who_takes_it(self, client: httpx.AsyncClient) -> None:
        address = "/ui/static/vendor/htmx/htmx.min.js"

        packed = await client.get(address, headers={"Accept-Encoding": "gzip"})
        plain = await client.get(address, headers={"Accept-Encoding": "identity"})

        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert packed.content == plain.content

    async def test_nothing_else_is_served(self, client: httpx.AsyncClient) -> None:
        for name in ("..%2fendpoints.py", "endpoints.py", "%2e%2e"):
            assert (await client.get(f"/ui/static/{name}")).status_code == 404

    async def test_a_page_is_light(self, client: httpx.AsyncClient, context: Context) -> None:
        study_id = await seeding.simulating(context, trials=500)

        page = await get(client, f"/ui/studies/{study_id}")
        parts = [a.get("src") or a.get("href") or "" for _, a in page.elements]
        parts = [f"/ui/studies/{study_id}", *(part for part in parts if "/ui/static/" in part)]
        sizes = [len(gzip.compress((await client.get(path)).content)) for path in parts]

        assert len(parts) > 4
        assert sum(sizes) < 150_000
