"""Releases outside of the service: charged before they are made, whole or not at all."""

import asyncio
import bisect
import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import httpx
import psycopg
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from sqlalchemy import text

from service.db.session import Database
from service.ledger import renyi, repository
from service.ledger.schemas import Head
from service.ledger.service import Ledger
from service.publication.keys import signing_key
from service.publication.published import Published
from service.publication.signing import sign
from service.settings import Settings
from service.statements.export_check import verify_export
from service.statements.ledger_check import Known, check_ledger
from tan_core.accounting import gdp_epsilon
from tan_core.mechanism import MAX_STEPS, Mechanism
from tests.fixtures.api import make_spec, register_table
from tests.fixtures.postgres import DatabaseUrls
from tests.support.world import World

SCOPE = "dataset:digits"
DATASET = "/datasets/digits"
LEDGER = f"{DATASET}/ledger"
DELTA = 1e-3
HISTOGRAM = {"noise_multiplier": 4.0, "reason": "histogram of ages"}
TRAINED = {
    "noise_multiplier": 1.1, "steps": 200, "sampling_rate": 0.02, "reason": "a model of team b",
}  # fmt: skip
RACERS = 8


async def charge(
    client: httpx.AsyncClient,
    asked: dict[str, Any],
    *,
    dataset: str = DATASET,
    key: str | None = None,
) -> dict[str, Any]:
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = await client.post(f"{dataset}/ledger/releases", json=asked, headers=headers)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def account(client: httpx.AsyncClient, dataset: str = DATASET) -> dict[str, Any]:
    return (await client.get(f"{dataset}/ledger", params={"entries": 10_000})).json()


def gaussian(sigma: float, delta: float = DELTA) -> float:
    """Epsilon of one Gaussian mechanism by Balle and Wang (2018), theorem 8, rounded down to five decimals."""
    normal = NormalDist()

    def excess(epsilon: float) -> float:
        a, b = 1 / (2 * sigma), epsilon * sigma
        return normal.cdf(a - b) - math.exp(epsilon) * normal.cdf(-a - b) - delta

    above = bisect.bisect_left(range(10**6), 0.0, key=lambda step: -excess(step * 1e-5))
    return (above - 1) * 1e-5


def by_dp_accounting(events: Sequence[dict[str, Any]], delta: float = DELTA) -> float:
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for event in events:
        q, sigma = (float.fromhex(event[name]) for name in ("sampling_rate", "noise_multiplier"))
        step = PoissonSampledDpEvent(q, GaussianDpEvent(sigma))
        accountant.compose(SelfComposedDpEvent(step, event["steps"]))
    return accountant.get_epsilon(delta)


class TestCharge:
    async def test_it_costs_what_a_gaussian_mechanism_does_and_never_waits(
        self, client: httpx.AsyncClient
    ) -> None:
        made = await charge(client, HISTOGRAM)

        assert made["epsilon"] == pytest.approx(gaussian(4.0), rel=1e-2)
        assert made["epsilon"] >= gaussian(4.0)
        assert (made["epsilon_before"], made["epsilon_after"]) == (0.0, made["epsilon"])
        assert made["remaining_epsilon"] == 100 - made["epsilon"]
        told = await account(client)
        assert told["charged_epsilon"] == told["committed_epsilon"] == made["epsilon"]
        [held] = told["reservations"]
        assert held["reservation_id"] == held["study_id"] == made["id"]
        assert (held["reserved_steps"], held["charged_steps"], held["state"]) == (1, 1, "closed")
        assert held["reason"] == HISTOGRAM["reason"]
        entries = told["entries"]
        assert [one["kind"] for one in entries] == [
            "open", "reserve", "acquire", "begin", "attest", "release",
        ]  # fmt: skip
        attested = json.loads(entries[4]["body"])
        assert attested["actor"] == "token:local"
        assert attested["note"] == {
            "outside_release": {
                "reason": HISTOGRAM["reason"],
                "mechanism": Mechanism.from_json(made["mechanism"]).fingerprint,
            }
        }
        assert made["entry"] == {name: entries[5][name] for name in ("seq", "hash")}
        assert (await client.get(f"{LEDGER}/verify")).json()["is_valid"]

    async def test_it_composes_with_studies_before_and_after(
        self, client: httpx.AsyncClient
    ) -> None:
        await client.post("/studies", json=make_spec())
        made = await charge(client, TRAINED)
        await client.post("/studies", json=make_spec(name="later"))

        told = await account(client)
        events = [json.loads(held["event"]) for held in told["reservations"]]
        assert events[1] == made["mechanism"]
        for said, of in (
            (made["epsilon"], events[1:2]),
            (made["epsilon_before"], events[:1]),
            (made["epsilon_after"], events[:2]),
            (told["committed_epsilon"], events),
            (told["charged_epsilon"], events[1:2]),
        ):
            assert said == pytest.approx(by_dp_accounting(of), rel=2e-3)

    async def test_a_study_is_refused_for_what_was_released(
        self, client: httpx.AsyncClient
    ) -> None:
        await client.put(f"{DATASET}/caps/*", json={"epsilon": 4.0})
        await charge(client, {"noise_multiplier": 1.0, "reason": "sums"})
        refused = await client.post("/studies", json=make_spec())

        assert (refused.status_code, refused.json()["type"]) == (409, "/problems/over-budget")
        assert "together with what is committed (3." in refused.json()["detail"]

    async def test_a_replaced_unit_moves_it_twice_as_far(
        self, client: httpx.AsyncClient, tmp_path: Path
    ) -> None:
        await register_table(
            client, tmp_path, epsilon=9.0, delta=DELTA, neighboring_relation="replace_one"
        )
        made = await charge(client, HISTOGRAM, dataset="/datasets/table")
        assert made["epsilon"] == pytest.approx(gaussian(2.0), rel=1e-2)
        shuffled = {**TRAINED, "sampling": "unamplified", "noise_multiplier": 40.0}
        made = await charge(client, shuffled, dataset="/datasets/table")
        assert made["epsilon"] >= 0.99 * gaussian(40 / 2 / (200 * 0.02) ** 0.5)

    async def test_the_past_is_priced_again_by_whoever_has_a_price_for_it(
        self, client: httpx.AsyncClient, tmp_path: Path
    ) -> None:
        """No Rényi bound is known of sampled batches here: whoever asks for one by name is told so."""
        await register_table(
            client, tmp_path, epsilon=9.0, delta=DELTA, neighboring_relation="replace_one"
        )
        await charge(client, {**TRAINED, "noise_multiplier": 40.0}, dataset="/datasets/table")
        address = "/datasets/table/ledger/evaluations"
        priced = (await client.post(address)).json()["items"]
        assert [item["accountant"] for item in priced] == ["pld", "pld"]
        refused = await client.post(address, json={"accountants": ["pld", "rdp"]})
        assert refused.status_code == 422
        assert [error["path"] for error in refused.json()["errors"]] == ["accountants"]
        page = (await client.get("/ui/datasets/table")).text
        assert "by PLD from where something is held" in page
        assert "Rényi bound</td>" not in page

    async def test_releases_of_shuffled_batches_add_up(
        self, client: httpx.AsyncClient, tmp_path: Path
    ) -> None:
        """A hundredth of an epoch each: every one of them may have a unit in it, and one epoch would have it once."""
        await register_table(
            client, tmp_path, epsilon=9.0, delta=DELTA, neighboring_relation="zero_out"
        )
        table, times = "/datasets/table", 9
        asked = {
            "noise_multiplier": 6.0, "sampling_rate": 0.01, "sampling": "unamplified", "reason": "of some",
        }  # fmt: skip
        for _ in range(times):
            made = await charge(client, asked, dataset=table)

        true = gaussian(6.0 / times**0.5)
        told = await account(client, table)
        for said in (made["epsilon_after"], told["committed_epsilon"], told["charged_epsilon"]):
            assert said == pytest.approx(true, rel=1e-2)
        checks = verify_export((await client.get(f"{table}/ledger/export")).json())
        assert [one for one in checks if one.is_bad] == []

    async def test_a_dry_run_says_the_same_and_charges_nothing(
        self, client: httpx.AsyncClient
    ) -> None:
        before = await account(client)
        answer = await client.post(f"{LEDGER}/releases", json=HISTOGRAM, params={"dry_run": True})
        assert answer.status_code == 200
        assert await account(client) == before
        made = await charge(client, HISTOGRAM)
        assert answer.json() == {**made, "id": None, "entry": None}

    async def test_it_is_marked_outside_of_the_database_before_it_is_answered(
        self, client: httpx.AsyncClient, settings: Settings
    ) -> None:
        """A backup of before would forget it, and it may be out by then."""
        made = await charge(client, HISTOGRAM)
        assert Published(settings.home_path).marks()[SCOPE] == Head(**made["entry"])

    async def test_the_audit_says_which(self, client: httpx.AsyncClient) -> None:
        made = await charge(client, HISTOGRAM)
        await client.post(f"{LEDGER}/releases", json={**HISTOGRAM, "noise_multiplier": 0.02})
        rows = (await client.get("/audit")).json()["items"]
        assert [(row["target"], row["status"]) for row in rows] == [
            ("digits", 409),
            (f"digits/{made['id']}", 201),
        ]


class TestRefusal:
    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"noise_multiplier": None}, "noise_multiplier"),
            ({"noise_multiplier": 0}, "noise_multiplier"),
            ({"steps": 0}, "steps"),
            ({"steps": 10**9, "sampling_rate": 0.5, "noise_multiplier": 1.0}, "steps"),
            ({"sampling_rate": 1.5}, "sampling_rate"),
            ({"sampling_rate": 1e-300}, "sampling_rate"),
            ({"sampling": "unamplified"}, "sampling"),
            ({"sampling": "shuffled"}, "sampling"),
            ({"epsilon": 1.0}, "epsilon"),
            ({"rho": 0.1}, "rho"),
            ({"reason": None}, "reason"),
            ({"reason": " "}, "reason"),
            ({"reason": "two\nlines"}, "reason"),
            ({"reason": "turned \u202e around"}, "reason"),
            ({"reason": "half \ud83d of a sign"}, "reason"),
            ({"reason": "x" * 501}, "reason"),
            ({"tenant": "*"}, "tenant"),
        ],
    )
    async def test_what_cannot_be_charged_is_refused_by_field(
        self, client: httpx.AsyncClient, changes: dict[str, Any], field: str
    ) -> None:
        content = json.dumps({k: v for k, v in {**HISTOGRAM, **changes}.items() if v is not None})
        answer = await client.post(
            f"{LEDGER}/releases", content=content, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 422, answer.text
        assert [each["path"] for each in answer.json()["errors"]] == [field]
        assert (await account(client))["head"]["seq"] == 1

    async def test_over_the_budget_nothing_is_left_behind(
        self, client: httpx.AsyncClient, database: Database
    ) -> None:
        before = await account(client)
        for sigma in (0.02, 0.001):
            asked = {**HISTOGRAM, "noise_multiplier": sigma}
            answer = await client.post(
                f"{LEDGER}/releases", json=asked, headers={"Idempotency-Key": "k"}
            )
            assert (answer.status_code, answer.json()["type"]) == (409, "/problems/over-budget")
        assert "of 100 at delta 0.001" in answer.json()["detail"]
        assert await account(client) == before
        async with database.session() as session:
            assert await session.scalar(text("SELECT count(*) FROM idempotency_key")) == 0
        await charge(client, HISTOGRAM, key="k")

    async def test_a_cap_of_its_tenant_holds(self, client: httpx.AsyncClient) -> None:
        await client.put(f"{DATASET}/caps/team-b", json={"epsilon": 1.0})
        once = {**HISTOGRAM, "tenant": "team-b"}
        made = await charge(client, once)
        assert (made["tenant"], made["warnings"]) == ("team-b", [])
        refused = await client.post(f"{LEDGER}/releases", json={**once, "steps": 4})
        assert refused.status_code == 409
        assert "over the cap of tenant team-b" in refused.json()["detail"]
        await charge(client, {**HISTOGRAM, "steps": 4})
        [warning] = (await charge(client, {**HISTOGRAM, "tenant": "tem-b"}))["warnings"]
        assert "'tem-b'" in warning

    async def test_a_filter_admits_by_its_divergences(
        self, client: httpx.AsyncClient, tmp_path: Path
    ) -> None:
        await register_table(client, tmp_path, epsilon=2.0, delta=DELTA, admission="renyi_filter")
        table = "/datasets/table"
        made = await charge(client, HISTOGRAM, dataset=table)
        told = await account(client, table)
        order = told["scope"]["filter_order"]
        mechanism = Mechanism.from_json(made["mechanism"])
        assert made["epsilon"] == renyi.epsilon([mechanism], order=order, delta=DELTA)
        assert made["accountant"] == "rdp"
        assert told["committed_epsilon"] == made["epsilon"] > gaussian(4.0)
        much = {**HISTOGRAM, "noise_multiplier": 0.7}
        refused = await client.post(f"{table}/ledger/releases", json=much)
        assert (refused.status_code, refused.json()["type"]) == (409, "/problems/over-budget")

    @pytest.mark.parametrize("admission", ["renyi_filter", "pld"])
    async def test_more_steps_than_one_mechanism_holds_are_told_like_any_others(
        self, client: httpx.AsyncClient, tmp_path: Path, admission: str
    ) -> None:
        await register_table(client, tmp_path, epsilon=200.0, delta=DELTA, admission=admission)
        table = "/datasets/table"
        huge = {**HISTOGRAM, "noise_multiplier": 10_000.0, "steps": MAX_STEPS}
        made = [await charge(client, huge, dataset=table) for _ in range(3)]
        told = await account(client, table)
        assert [one["epsilon_before"] for one in made[1:]] == [
            one["epsilon_after"] for one in made[:-1]
        ]
        assert told["committed_epsilon"] == told["charged_epsilon"] == made[-1]["epsilon_after"]
        if admission == "pld":  # all steps together are one Gaussian mechanism of less noise
            whole = 10_000.0 / math.sqrt(3 * MAX_STEPS)
            assert told["committed_epsilon"] == pytest.approx(
                gdp_epsilon(mu=1 / whole, delta=DELTA), rel=1e-3
            )
        burndown = (await client.get(f"{table}/ledger/burndown")).json()
        assert burndown["points"][-1]["committed_epsilon"] >= gaussian(1.0)
        assert (await client.get("/metrics")).status_code == 200
        exported = (await client.get(f"{table}/ledger/export")).json()
        assert [one for one in verify_export(exported) if one.is_bad] == []

    async def test_public_data_has_no_budget_to_charge(
        self, client: httpx.AsyncClient, tmp_path: Path
    ) -> None:
        await register_table(client, tmp_path, public=True)
        for name in ("table", "none"):
            answer = await client.post(f"/datasets/{name}/ledger/releases", json=HISTOGRAM)
            assert answer.status_code == 404


class TestRepetition:
    async def test_a_key_charges_once_however_often_it_is_sent(
        self, client: httpx.AsyncClient
    ) -> None:
        sent = [
            client.post(f"{LEDGER}/releases", json=HISTOGRAM, headers={"Idempotency-Key": "k"})
            for _ in range(RACERS)
        ]
        answers = await asyncio.gather(*sent)
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.text for answer in answers}) == 1
        assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1

        await charge(client, TRAINED)
        again = await client.post(
            f"{LEDGER}/releases", json=HISTOGRAM, headers={"Idempotency-Key": "k"}
        )
        assert again.text == answers[0].text  # what was so then, not what is now
        assert len((await account(client))["reservations"]) == 2
        other = await client.post(
            f"{LEDGER}/releases", json=TRAINED, headers={"Idempotency-Key": "k"}
        )
        assert other.status_code == 422

    async def test_without_a_key_it_is_another_release(self, client: httpx.AsyncClient) -> None:
        first, second = [await charge(client, HISTOGRAM) for _ in range(2)]
        assert first["id"] != second["id"]
        assert second["epsilon_before"] == first["epsilon_after"] < second["epsilon_after"]

    async def test_a_key_that_was_forgotten_charges_again(
        self, client: httpx.AsyncClient, database: Database
    ) -> None:
        first = await charge(client, HISTOGRAM, key="k")
        async with database.session() as session:
            await session.execute(text("DELETE FROM idempotency_key"))
        second = await charge(client, HISTOGRAM, key="k")
        assert second["id"] != first["id"]
        assert len((await account(client))["reservations"]) == 2

    async def test_of_many_at_once_so_many_are_charged_as_fit(
        self, client: httpx.AsyncClient
    ) -> None:
        most = 3
        limit = (gaussian(4 / most**0.5) + gaussian(4 / (most + 1) ** 0.5)) / 2
        await client.put(f"{DATASET}/caps/*", json={"epsilon": limit})
        answers = await asyncio.gather(
            *(client.post(f"{LEDGER}/releases", json=HISTOGRAM) for _ in range(RACERS))
        )
        assert sorted(each.status_code for each in answers) == [201] * most + [409] * (
            RACERS - most
        )
        told = await account(client)
        assert len(told["reservations"]) == most
        assert told["charged_epsilon"] <= limit
        assert (await client.get(f"{LEDGER}/verify")).json()["is_valid"]


class TestEvidence:
    async def test_it_is_in_every_figure(self, client: httpx.AsyncClient) -> None:
        made = await charge(client, TRAINED)

        last = (await client.get(f"{LEDGER}/burndown")).json()["points"][-1]
        assert last["by_study"].keys() == {made["id"]}
        assert last["charged_epsilon"] == last["committed_epsilon"] >= made["epsilon"]
        repriced = (
            await client.post(f"{LEDGER}/evaluations", json={"accountants": ["pld"]})
        ).json()
        assert [(one["reservation_id"], one.get("reason")) for one in repriced["items"]] == [
            (made["id"], TRAINED["reason"]),
            (None, None),
        ]
        assert {one["epsilon"] for one in repriced["items"]} == {made["epsilon"]}
        checks = {
            one.name: one for one in verify_export((await client.get(f"{LEDGER}/export")).json())
        }
        assert not any(one.is_bad for one in checks.values())
        assert checks["search"].detail == "none unaccounted"
        assert f"{made['epsilon']:.2f}"[:-1] in checks["epsilon charged"].detail

    async def test_a_statement_counts_it(
        self, client: httpx.AsyncClient, settings: Settings, database: Database
    ) -> None:
        world = World(client, settings, database)
        study_id = await world.trained()
        made = await charge(client, TRAINED)
        await world.tick(3)
        statement = (await client.get(f"/studies/{study_id}/statement")).json()

        [study, release] = (await account(client))["reservations"]
        ran = {**json.loads(study["event"]), "steps": study["charged_steps"]}
        assert statement["events"] == [ran]
        assert release["reservation_id"] == made["id"]
        expected = by_dp_accounting([ran, made["mechanism"]])
        assert statement["ledger"]["charged_epsilon"] == pytest.approx(expected, rel=2e-3)
        async with database.session() as session:
            known = Known(
                scope=await repository.scope(session, SCOPE),
                chain=await Ledger().verify_chain(session, SCOPE),
                reservations=await repository.reservations(session, SCOPE),
                entries=await repository.entries(session, SCOPE),
            )
        assert [one for one in check_ledger(statement, known) if not one.is_good] == []

    @pytest.mark.parametrize(
        ("table", "change", "found"),
        [
            ("ledger_entry", "body = replace(body, 'ages', 'rage') WHERE kind = 'attest'", 5),
            ("ledger_entry", "body = '{\"note\": 7}' WHERE kind = 'attest'", 5),
            ("ledger_entry", "body = replace(body, '\"num_steps\" : 1', '\"num_steps\" : 0')", 4),
            ("ledger_reservation", "charged_steps = 0", None),
            ("ledger_reservation", "tenant = 'other'", None),
        ],
    )
    async def test_a_row_that_was_edited_is_found(
        self,
        client: httpx.AsyncClient,
        database_urls: DatabaseUrls,
        table: str,
        change: str,
        found: int | None,
    ) -> None:
        await charge(client, HISTOGRAM)
        with psycopg.connect(database_urls.owner, autocommit=True) as connection:
            connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER".encode())
            connection.execute(f"UPDATE {table} SET {change}".encode())
        report = (await client.get(f"{LEDGER}/verify")).json()
        assert (report["is_valid"], report["first_bad_seq"]) == (False, found)
        assert (await client.get(LEDGER)).status_code == 200

    async def test_an_export_with_another_reason_is_found(
        self, client: httpx.AsyncClient, tmp_path: Path
    ) -> None:
        await charge(client, HISTOGRAM)
        document = (await client.get(f"{LEDGER}/export")).json()
        del document["signature"]
        document["reservations"][0]["reason"] = "nothing much"
        checks = {one.name: one for one in verify_export(sign(document, signing_key(tmp_path)))}
        assert "reason is 'nothing much'" in checks["hash chain"].detail
        assert checks["hash chain"].is_bad
