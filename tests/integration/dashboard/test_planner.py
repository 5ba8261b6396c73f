"""The planner, over the real application and database."""

from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest

from service.context import Context
from service.dashboard.planner_form import PlannerForm
from service.dashboard.warm_up import warm_up
from tan_core.planner.sketch import sketch
from tests.fixtures.postgres import DatabaseUrls
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import get

DIALS = "epsilon=3&delta=1e-5&num_examples=1149&batch_size=256&steps=300&model=mlp"


async def plan_of(client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    response = await client.post("/plans", json=body)
    assert response.status_code == 200, response.text
    return response.json()


class TestSketch:
    @pytest.mark.slow
    async def test_is_within_a_thousandth_of_the_plan(self, client: httpx.AsyncClient) -> None:
        page = await get(client, f"/ui/plan?{DIALS}")
        form, _ = PlannerForm.read(dict(parse_qsl(DIALS)))
        plan = await plan_of(client, form.body())

        sigma, _, _, rate, _, epochs, overcharge, eta = page.data["sketch-figures"]
        assert sigma == pytest.approx(plan["reference"]["noise_multiplier"], rel=1e-3)
        assert rate == plan["reference"]["sampling_rate"]
        assert epochs == pytest.approx(rate * 300)
        assert overcharge == pytest.approx(plan["privacy"]["overcharge"], rel=2e-3)
        assert eta == pytest.approx(plan["privacy"]["signal_to_noise"], rel=2e-3)

    async def test_the_first_visitor_finds_the_answer_ready(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await warm_up(context)
        known = sketch.cache_info().misses

        await get(client, "/ui/plan")

        assert sketch.cache_info().misses == known

    async def test_the_address_holds_every_dial(self, client: httpx.AsyncClient) -> None:
        page = await get(client, f"/ui/plan?{DIALS}&trials=40")

        shown = {a["name"]: a["value"] for a in page.all("input") if a.get("name")}
        assert shown["trials"] == "40"
        assert float(shown["delta"] or 0) == 1e-5
        (link,) = [a["hx-get"] or "" for a in page.all("div") if a.get("id") == "certified"]
        assert "trials=40" in link
        assert "certified=true" in link

    async def test_what_is_left_of_the_budget_is_the_ledgers(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.training(context)

        page = await get(client, f"/ui/plan?{DIALS}&dataset=digits")

        account = (await client.get("/datasets/digits/ledger")).json()
        assert page.data["budget-left"] == [
            account["remaining_epsilon"], account["scope"]["epsilon"], account["scope"]["delta"],
        ]  # fmt: skip
        assert "a study of a larger ε may fit" in page.text["budget-left"]
        dataset = await get(client, "/ui/datasets/digits")
        assert "a study of a larger ε may fit" in dataset.text["budget"]

    async def test_the_plan_says_whether_the_budget_would_admit_it_now(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.training(context)
        address = f"/ui/plan?{DIALS}&dataset=digits&accounting=declared_unaccounted&certified=true"

        fits = await get(client, address)
        await client.put("/datasets/digits/caps/*", json={"epsilon": 0})
        frozen = await get(client, address)

        assert "It fits the budget of digits now" in fits.text["budget-fit"]
        assert "It would be refused now." in frozen.text["budget-fit"]
        assert "which admits nothing" in frozen.text["budget-fit"]

    async def test_each_chart_has_its_numbers_as_csv(self, client: httpx.AsyncClient) -> None:
        page = await get(client, f"/ui/plan?{DIALS}")
        links = [a["href"] or "" for a in page.all("a") if ".csv" in (a.get("href") or "")]

        texts = [(await client.get(link)).text for link in links]

        assert texts[0].startswith("noise_multiplier,sampling_rate,epsilon")
        assert texts[1].startswith("expected_batch_size,private_run_examples")
        batches = [row.split(",") for row in texts[1].split()[1:]]
        assert ["256", "76800"] in [row[:2] for row in batches]

    @pytest.mark.parametrize(
        ("query", "path", "words"),
        [
            ("epsilon=0", "epsilon", "greater than 0"),
            ("delta=1e-30", "delta", "0.0000000001"),
            ("batch_size=many", "batch_size", "integer"),
            ("steps=&trials=8", "steps", "is empty; a number is needed"),
            ("batch_size=2000&num_examples=1000", "train.batch_size", "1000 training examples"),
            ("dataset=nowhere", "dataset", "no dataset of this name"),
            ("model=resnet-9000", "model", "wrn-16-4"),
        ],
    )
    async def test_what_cannot_be_planned_is_said_by_its_field(
        self, client: httpx.AsyncClient, query: str, path: str, words: str
    ) -> None:
        page = await get(client, f"/ui/plan?{query}", status=422)

        assert path in page.text["answer"]
        assert words in page.text["answer"]

    async def test_a_part_is_answered_so_that_it_is_exchanged(
        self, client: httpx.AsyncClient
    ) -> None:
        response = await client.get("/ui/plan?epsilon=0", headers={"HX-Request": "true"})

        assert response.status_code == 200
        assert "This cannot be planned" in response.text


class TestPlan:
    async def test_is_the_one_of_the_api(self, client: httpx.AsyncClient) -> None:
        page = await get(client, f"/ui/plan?{DIALS}&certified=true")
        form, _ = PlannerForm.read(dict(parse_qsl(DIALS)))
        plan = await plan_of(client, form.body())

        run, privacy, cost = plan["reference"], plan["privacy"], plan["cost"]
        assert page.data["plan-figures"] == [
            run["expected_batch_size"], run["noise_multiplier"], run["steps"], run["sampling_rate"],
            privacy["target_epsilon"], privacy["delta"], privacy["epsilon_reserved"],
            cost["private_run_examples"], cost["search_examples"], cost["finals_examples"],
            cost["saving"],
        ]  # fmt: skip
        voices = privacy["epsilon_by_accountant"]
        assert page.data["plan-privacy"] == [
            privacy["delta"], privacy["epsilon"], voices["rdp"], voices["prv"],
            privacy["epsilon_tan"],
        ]  # fmt: skip
        figures = page.data["plan-modes"]
        assert plan["search_privacy"]["epsilon"] in figures
        assert "spare steps included" in page.text["plan-modes"]
        reservation = plan["reservation"]
        assert (
            f"Reserved in the ledger are {reservation['steps']} steps: the {run['steps']} planned, whose ε is "
            f"promised, and {reservation['slack_steps']} to spare"
        ) in page.text["plan-reserved"]

    async def test_of_registered_data_is_checked_against_it(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.submitted(context)

        refused = await get(client, f"/ui/plan?{DIALS}&dataset=digits&certified=true")
        allowed = await get(
            client,
            f"/ui/plan?{DIALS}&dataset=digits&accounting=declared_unaccounted&certified=true",
        )

        assert "search.dataset" in refused.text["certified"]
        assert "NOT accounted" in allowed.text["plan-privacy"]
        assert "dataset: digits" in allowed.text["yaml"]

    async def test_reserves_nothing_of_public_data(
        self, client: httpx.AsyncClient, context: Context, database_urls: DatabaseUrls
    ) -> None:
        await seeding.ensure_digits(context.database)
        seeding.make_public(database_urls)

        page = await get(
            client, f"/ui/plan?{DIALS}&dataset=digits&accounting=public_proxy&certified=true"
        )

        assert page.text["plan-reserved"] == "Nothing is reserved or charged: the data are public."
        assert "ε reserved" not in page.text["plan-figures"]
        checked = await client.post("/ui/new", data={"yaml": page.text["yaml"], "action": "check"})
        assert "Nothing is reserved or charged: digits is public." in checked.text

    async def test_without_a_search_there_is_nothing_of_one(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.submitted(context)

        page = await get(
            client, f"/ui/plan?{DIALS}&dataset=digits&accounting=no_search&certified=true"
        )

        assert "hyper-parameters given with the study" in page.text["plan-privacy"]
        assert not {"plan-simulations", "plan-modes"} & page.text.keys()
        assert "search" not in page.text["plan-figures"]
        assert "space" not in page.text["yaml"]

    @pytest.mark.parametrize("mode", ["declared_unaccounted", "no_search"])
    async def test_becomes_a_study_that_the_api_takes(
        self, client: httpx.AsyncClient, context: Context, mode: str
    ) -> None:
        await seeding.submitted(context)
        page = await get(client, f"/ui/plan?{DIALS}&dataset=digits&accounting={mode}")

        response = await client.post(
            "/studies", content=page.text["yaml"], headers={"Content-Type": "application/yaml"}
        )

        assert response.status_code == 201, response.text
