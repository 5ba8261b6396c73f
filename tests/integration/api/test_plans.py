import pytest
from sqlalchemy import text

from service.plans import service
from service.studies import service as studies
from tan_core.errors import TooHardError
from tests.fixtures.api import make_spec, register_table

MECHANISM = {
    "num_examples": 50_000,
    "expected_batch_size": 4096,
    "noise_multiplier": 3.0,
    "steps": 2500,
}


class TestPlans:
    async def test_a_study_on_registered_data_uses_its_size(self, client):
        plan = (await client.post("/plans", json=make_spec())).json()
        assert plan["reference"]["num_examples"] == 1295
        assert plan["privacy"]["epsilon"] <= 3.0

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "size", [{"num_examples": 50_000}, {"dataset": {"num_examples": 50_000}}], ids=str
    )
    async def test_unregistered_data_needs_only_its_size(self, client, size):
        spec = make_spec() | {"dataset": "not-there"} | size
        response = await client.post("/plans", json=spec)
        assert response.status_code == 200, response.text
        assert response.json()["reference"]["num_examples"] == 50_000

    @pytest.mark.slow
    async def test_a_cap_on_batches_is_planned_where_no_budget_names_a_relation(self, client):
        spec = make_spec(num_examples=50_000, train={"batch_size": 4096, "max_batch_size": 4500})

        response = await client.post("/plans", json=spec)

        plan = response.json()
        assert response.status_code == 200, response.text
        assert plan["reference"]["max_batch_size"] == 4500
        assert plan["privacy"]["neighboring_relation"] == "zero_out"

    @pytest.mark.parametrize("route", ["/plans", "/studies"])
    async def test_a_cap_is_refused_by_field_where_a_rényi_filter_admits(
        self, client, tmp_path, route
    ):
        await register_table(
            client,
            tmp_path,
            epsilon=10.0,
            delta=1e-3,
            waiver="me: mine",
            neighboring_relation="zero_out",
            admission="renyi_filter",
        )
        spec = make_spec(dataset="table", train={"batch_size": 16})

        whole = await client.post(route, json=spec)
        spec["train"]["max_batch_size"] = 24
        cut = await client.post(route, json=spec)

        assert whole.is_success, whole.text
        assert cut.status_code == 422
        (error,) = cut.json()["errors"]
        assert (error["path"], error["value"]) == ("train.max_batch_size", 24)
        assert "leave it out" in error["message"]

    @pytest.mark.parametrize("route", ["/plans", "/studies"])
    async def test_a_delta_above_that_of_the_budget_is_refused_before_it_is_submitted(
        self, client, tmp_path, route
    ):
        await register_table(client, tmp_path, epsilon=10.0, delta=1e-4, waiver="me: mine")
        spec = make_spec(dataset="table", train={"batch_size": 16})
        spec["privacy"]["delta"] = 1.01e-4

        above = await client.post(route, json=spec)
        spec["privacy"]["delta"] = 1e-4
        equal = await client.post(route, json=spec)

        assert equal.is_success, equal.text
        assert above.status_code == 422
        (error,) = above.json()["errors"]
        assert (error["path"], error["value"]) == ("privacy.delta", 1.01e-4)
        assert "ends at delta 0.0001" in error["message"]

    @pytest.mark.parametrize(
        ("body", "path"),
        [
            ({"mechanism": {**MECHANISM, "steps": 2501}, "delta": 1e-5}, "mechanism.steps"),
            (make_spec(train={"steps": 101}), "train.steps"),
        ],
        ids=["mechanism", "study"],
    )
    async def test_what_takes_accountants_too_long_is_refused_by_field(
        self, client, monkeypatch, body, path
    ):
        monkeypatch.setattr(service, "EFFORT_SECONDS", 0.0)

        response = await client.post("/plans", json=body)

        assert response.status_code == 422
        (error,) = response.json()["errors"]
        section, field = path.split(".")
        assert (error["path"], error["value"]) == (path, body[section][field])
        assert "it takes more than 0 s of processor time" in error["message"]

    @pytest.mark.parametrize(
        ("body", "is_told_of_rdp"),
        [
            ({"mechanism": {**MECHANISM, "steps": 2502}, "delta": 1e-5}, True),
            (
                {"mechanism": {**MECHANISM, "steps": 2502}, "delta": 1e-5, "accountant": "rdp"},
                False,
            ),
            (make_spec(num_examples=5000, train={"steps": 103}), True),
            (make_spec(num_examples=5000, train={"steps": 103, "max_batch_size": 300}), False),
            # The budget of digits is priced by PLD, whatever the study is promised by.
            (make_spec(train={"steps": 103}), False),
        ],
        ids=["mechanism", "by rdp", "no budget", "capped", "budget"],
    )
    async def test_another_accountant_is_named_where_it_would_help(
        self, client, monkeypatch, body, is_told_of_rdp
    ):
        monkeypatch.setattr(service, "EFFORT_SECONDS", 0.0)

        response = await client.post("/plans", json=body)

        (error,) = response.json()["errors"]
        assert "fewer steps, more noise" in error["message"]
        assert ("accountant rdp" in error["message"]) is is_told_of_rdp

    @pytest.mark.parametrize("route", ["/plans", "/studies"])
    @pytest.mark.parametrize(
        ("change", "path", "value"),
        [
            ({"privacy": {"epsilon": 1e-9}}, "privacy.epsilon", 1e-9),
            ({"train": {"batch_size": 10_000}}, "train.batch_size", 10_000),
            ({"train": {"noise_multiplier": 0.01}}, "train.noise_multiplier", 0.01),
        ],
        ids=["epsilon", "batch_size", "noise_multiplier"],
    )
    async def test_what_the_planner_refuses_is_told_with_its_value(
        self, client, route, change, path, value
    ):
        response = await client.post(route, json=make_spec(**change))

        assert response.status_code == 422
        (error,) = response.json()["errors"]
        assert (error["path"], error["value"]) == (path, value)
        assert response.json()["detail"] == f"{path}: {error['message']}"

    @pytest.mark.parametrize(
        "space", [{"train.steps": {"choices": [50, 100]}}, {"steps": {"low": 50, "high": 100}}]
    )
    async def test_a_key_of_the_space_is_told_with_its_value(self, client, space):
        spec = make_spec()
        spec["search"]["space"] = space

        response = await client.post("/plans", json=spec)

        ((key, written),) = space.items()
        (error,) = response.json()["errors"]
        assert (error["path"], error["value"]) == (f"search.space.{key}", str(written))

    async def test_what_no_accountant_can_hold_is_refused_by_field(self, client):
        hopeless = MECHANISM | {"noise_multiplier": 0.02, "steps": 10_000_000}

        response = await client.post("/plans", json={"mechanism": hopeless, "delta": 1e-5})

        assert response.status_code == 422
        (error,) = response.json()["errors"]
        assert (error["path"], error["value"]) == ("accountant", "pld")
        assert "points for 10,000,000 steps" in error["message"]
        assert error["message"].endswith("a larger delta or accountant rdp")

    async def test_a_run_that_costs_nothing_is_planned(self, client):
        free = {
            "num_examples": 10**9,
            "expected_batch_size": 64,
            "noise_multiplier": 50.0,
            "steps": 10,
        }
        plan = (await client.post("/plans", json={"mechanism": free, "delta": 0.1})).json()
        assert plan["privacy"]["epsilon"] == 0
        assert [each["steps"] for each in plan["step_candidates"]] == [10]

    @pytest.mark.slow
    async def test_a_mechanism_is_priced_as_published(self, client):
        response = await client.post("/plans", json={"mechanism": MECHANISM, "delta": 1e-5})
        plan = response.json()
        assert plan["privacy"]["epsilon"] == pytest.approx(6.58, abs=0.01)
        assert plan["privacy"]["epsilon_by_accountant"]["rdp"] == pytest.approx(7.10, abs=0.01)
        assert plan["simulations"][0]["noise_multiplier"] == 0.1875
        assert plan["cost"]["saving"] == 16.0

    @pytest.mark.parametrize(
        ("body", "path"),
        [
            ({"mechanism": MECHANISM}, "delta"),
            ({"mechanism": MECHANISM, "delta": 1e-5, "x": 1}, "x"),
            ({"mechanism": {**MECHANISM, "steps": 0}, "delta": 1e-5}, "mechanism.steps"),
            ({"mechanism": 7, "delta": 1e-5}, "mechanism"),
            (
                {"mechanism": {**MECHANISM, "expected_batch_size": 60_000}, "delta": 1e-5},
                "mechanism.expected_batch_size",
            ),
            (
                {"mechanism": {**MECHANISM, "expected_batch_size": 0.5}, "delta": 1e-5},
                "mechanism.expected_batch_size",
            ),
            ({"mechanism": MECHANISM, "delta": 1e-5, "rungs": [64, 8192]}, "rungs"),
            ({"mechanism": MECHANISM, "delta": 1e-5, "rungs": [256, 64]}, "rungs"),
            (make_spec(dataset={"num_examples": 0}), "dataset.num_examples"),
            (make_spec(dataset={"num_examples": 100, "x": 1}), "dataset.x"),
            (make_spec(num_examples="many"), "num_examples"),
            (make_spec(num_examples=100), "train.batch_size"),
            ({}, "name"),
        ],
        ids=str,
    )
    async def test_a_malformed_request_names_its_field(self, client, body, path):
        response = await client.post("/plans", json=body)
        assert response.status_code == 422, response.text
        assert path in [error["path"] for error in response.json()["errors"]], response.text

    async def test_nothing_is_stored(self, client, database):
        await client.post("/plans", json=make_spec())
        async with database.session() as session:
            assert await session.scalar(text("SELECT count(*) FROM study")) == 0
            assert await session.scalar(text("SELECT count(*) FROM ledger_reservation")) == 0

    @pytest.mark.parametrize(
        ("content", "status"),
        [("{", 400), ("[]", 422), ("[" * 100_000, 400), ("", 400)],
        ids=["cut", "list", "deep", "empty"],
    )
    async def test_what_is_no_mapping_is_refused(self, client, content, status):
        response = await client.post(
            "/plans", content=content, headers={"Content-Type": "application/json"}
        )
        assert response.status_code == status

    async def test_odd_values_come_back_as_text(self, client):
        body = '{"name": "\\ud800", "privacy": {"epsilon": NaN, "delta": 1e400}}'
        response = await client.post(
            "/plans", content=body, headers={"Content-Type": "application/json"}
        )
        assert response.status_code == 422
        assert "errors" in response.json()


class TestBudget:
    """Whether the budget would admit the study now, as its submission is then told."""

    async def test_what_is_foreseen_is_what_submitting_says(self, client, tmp_path):
        await register_table(client, tmp_path, epsilon=2.5, delta=1e-5, waiver="me: mine")
        spec = make_spec(dataset="table", train={"batch_size": 16, "steps": 50})
        spec["privacy"]["epsilon"] = 2.0

        first = (await client.post("/plans", json=spec)).json()["budget"]
        assert (await client.post("/studies", json=spec)).status_code == 201
        second = (await client.post("/plans", json=spec)).json()["budget"]
        refused = await client.post("/studies", json=spec)

        ((one,), (other,)) = first["limits"], second["limits"]
        account = (await client.get("/datasets/table/ledger")).json()
        assert (first["fits"], one["committed_epsilon"], one["epsilon"]) == (True, 0.0, 2.5)
        assert one["composed_epsilon"] == other["committed_epsilon"] == account["committed_epsilon"]
        assert refused.status_code == 409
        instead = f"About ε {second['fitting_epsilon']:g} would still fit."
        assert second["fits"] is False
        assert refused.json()["detail"] == f"{second['refusal']}. {instead}"
        assert second["missing_epsilon"] == other["composed_epsilon"] - 2.5
        assert second["entry"] == account["head"]

        spec["privacy"]["epsilon"] = second["fitting_epsilon"]
        assert 0 < second["fitting_epsilon"] < 2
        assert (await client.post("/studies", json=spec)).status_code == 201

    async def test_a_refusal_stands_where_what_would_fit_is_not_computed(
        self, client, tmp_path, monkeypatch
    ):
        async def stopped(*_):
            raise TooHardError("pld was stopped")

        await register_table(client, tmp_path, epsilon=2.5, delta=1e-5, waiver="me: mine")
        spec = make_spec(dataset="table", train={"batch_size": 16, "steps": 50})
        refusal = (await client.post("/plans", json=spec)).json()["budget"]["refusal"]
        monkeypatch.setattr(studies, "budget_now", stopped)

        refused = await client.post("/studies", json=spec)

        assert (refused.status_code, refused.json()["detail"]) == (409, refusal)

    async def test_a_charged_search_is_foreseen_whole(self, client, tmp_path):
        await register_table(client, tmp_path, epsilon=3.0, delta=1e-5)
        spec = make_spec(dataset="table", train={"batch_size": 16, "steps": 20})
        spec["search"]["accounting"] = "accounted"

        plan = (await client.post("/plans", json=spec)).json()

        reserved = pytest.approx(plan["privacy"]["epsilon_reserved"], abs=1e-4)
        assert plan["budget"]["study_epsilon"] == reserved
        assert plan["budget"]["fits"] is True

    async def test_a_cap_of_whoever_asks_counts(self, client, tmp_path):
        await register_table(client, tmp_path, epsilon=10.0, delta=1e-5, waiver="me: mine")
        for tenant, epsilon in (("local", 0.5), ("other", 0.1)):
            cap = await client.put(f"/datasets/table/caps/{tenant}", json={"epsilon": epsilon})
            assert cap.is_success, cap.text
        spec = make_spec(dataset="table", train={"batch_size": 16, "steps": 50})

        budget = (await client.post("/plans", json=spec)).json()["budget"]

        assert {each["tenant"]: each["fits"] for each in budget["limits"]} == {
            None: True,
            "local": False,
        }
        assert "the cap of tenant local" in budget["refusal"]

    async def test_there_is_none_of_data_without_a_budget(self, client, tmp_path):
        await register_table(client, tmp_path, public=True)
        public = make_spec(dataset="table", train={"batch_size": 16, "steps": 50})
        public["search"]["accounting"] = "public_proxy"
        unregistered = make_spec(dataset="not-there", num_examples=2000)
        for spec in (public, unregistered, {"mechanism": MECHANISM, "delta": 1e-5}):
            response = await client.post("/plans", json=spec)
            assert response.status_code == 200, response.text
            assert "budget" not in response.json()
