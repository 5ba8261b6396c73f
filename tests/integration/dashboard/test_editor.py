"""A study is written, checked and submitted in the browser."""

import re
from urllib.parse import quote

import httpx
import pytest

from service.context import Context
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import Page, get

STUDY = seeding.DIGITS.read_text()


async def _post(client: httpx.AsyncClient, text: str, action: str) -> httpx.Response:
    return await client.post("/ui/new", data={"yaml": text, "action": action})


class TestWriting:
    async def test_it_begins_with_a_first_study(self, client: httpx.AsyncClient) -> None:
        page = await get(client, "/ui/new")

        assert "dataset: digits" in page.text["yaml"]

    async def test_it_begins_with_what_the_planner_wrote(self, client: httpx.AsyncClient) -> None:
        page = await get(client, f"/ui/new?yaml={quote('name: <planned>')}")

        assert page.text["yaml"] == "name: <planned>"

    async def test_it_begins_with_another_study(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.submitted(context, name="pattern")
        text = (await get(client, f"/ui/new?like={study_id}")).text["yaml"]

        again = await _post(client, text, "submit")

        address = again.headers["HX-Redirect"].removeprefix("/ui")
        first, second = [
            (await client.get(each)).json() for each in (f"/studies/{study_id}", address)
        ]
        assert first["id"] != second["id"]
        assert first["spec"] == second["spec"]

    async def test_one_trial_alone_is_a_study_that_is_taken(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.submitted(context, name="pattern")
        await seeding.report_trial(context, study_id, 0, 0.9)
        trial = (await client.get(f"/studies/{study_id}/trials")).json()["items"][0]
        leads_here = await get(client, f"/ui/studies/{study_id}/trials/0")
        page = await get(client, f"/ui/new?like={study_id}&trial=0")

        again = await _post(client, page.text["yaml"], "submit")

        first = (await client.get(f"/studies/{study_id}")).json()
        address = again.headers["HX-Redirect"].removeprefix("/ui")
        alone = (await client.get(address)).json()
        assert f"/ui/new?like={study_id}&trial=0" in {a.get("href") for a in leads_here.all("a")}
        assert (alone["name"], alone["spec"]["search"]["trials"]) == ("pattern-trial-0", 1)
        assert alone["spec"]["search"]["space"] == trial["params"]
        assert alone["plan"]["reference"] == first["plan"]["reference"]
        for now, then in zip(
            alone["plan"]["simulations"], first["plan"]["simulations"], strict=True
        ):
            assert now["expected_batch_size"] == then["expected_batch_size"]
            assert now["noise_multiplier"] == then["noise_multiplier"]

    async def test_an_unknown_trial_is_none(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.submitted(context)
        page = await get(client, f"/ui/new?like={study_id}&trial=3", status=404)
        assert "has no trial 3" in page.text["main"]

    async def test_an_unknown_study_is_no_pattern(self, client: httpx.AsyncClient) -> None:
        await get(client, "/ui/new?like=s-none", status=404)


class TestChecking:
    async def test_it_says_what_the_plan_is_and_stores_nothing(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.ensure_digits(context.database)
        planned = await client.post(
            "/plans", content=STUDY, headers={"Content-Type": "application/yaml"}
        )

        answer = await _post(client, STUDY, "check")

        assert answer.status_code == 200
        shown = Page(answer.text).data["verdict"]
        reference = planned.json()["reference"]
        for name in ("expected_batch_size", "noise_multiplier", "steps"):
            assert reference[name] in shown
        assert planned.json()["privacy"]["epsilon"] in shown
        assert (await client.get("/studies")).json()["items"] == []

    async def test_it_says_whether_the_budget_would_admit_it_now(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.ensure_digits(context.database)

        fits = Page((await _post(client, STUDY, "check")).text)
        await client.put("/datasets/digits/caps/*", json={"epsilon": 1.5})
        over = Page((await _post(client, STUDY, "check")).text)

        assert fits.text["verdict-head"] == "It fits"
        assert "It fits the budget of digits now" in fits.text["budget-fit"]
        assert over.text["verdict-head"] == "Over budget"
        assert "Over the cap of all tenants together in digits now" in over.text["budget-fit"]
        assert "would still fit" in over.text["budget-fit"]

    async def test_a_fault_is_named_with_its_line(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.ensure_digits(context.database)
        broken = STUDY.replace("epsilon: 3.0", "epsilon: -3.0")
        line = 1 + broken[: broken.index("epsilon: -3.0")].count("\n")

        answer = await _post(client, broken, "check")

        assert answer.status_code == 422
        page = Page(answer.text)
        assert "privacy.epsilon" in page.text["verdict"]
        assert [a["data-line"] for a in page.all("button") if "data-line" in a] == [str(line)]
        assert page.text["yaml"].strip() == broken.strip()

    async def test_a_value_is_told_once(self, client: httpx.AsyncClient, context: Context) -> None:
        await seeding.ensure_digits(context.database)
        text = re.sub(r"rungs: .*", "rungs: [64, 1000000]", STUDY)

        page = Page((await _post(client, text, "check")).text)

        assert page.text["verdict"].count("got 1000000") == 1
        assert page.text["verdict"].count("1000000") == 1

    async def test_text_that_is_no_study_is_refused_in_words(
        self, client: httpx.AsyncClient
    ) -> None:
        for text in ("", "[1, 2]", "name: a\nname: b", "name: [\x00"):
            assert (await _post(client, text, "submit")).status_code == 422

    @pytest.mark.slow
    async def test_over_budget_is_a_refusal_too(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.ensure_digits(context.database)
        greedy = STUDY.replace("epsilon: 3.0", "epsilon: 900.0")

        answer = await _post(client, greedy, "submit")

        assert answer.status_code == 422
        assert "budget" in Page(answer.text).text["verdict"]
        assert (await client.get("/studies")).json()["items"] == []
