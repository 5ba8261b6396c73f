"""The pages of datasets, over the real application, database and ledger."""

import asyncio
import copy
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncSession

from service import text
from service.context import Context
from service.dashboard import privacy
from service.dashboard.privacy import LISTED
from service.dashboard.statement_check import checks_of
from service.datasets.service import ensure_digits
from service.db.session import Database
from service.ledger.schemas import Totals
from service.ledger.service import Ledger
from service.publication.keys import signing_key
from service.publication.signing import sign
from tan_core.accounting import SearchAccounting, price
from tan_core.mechanism import Mechanism
from tests.fixtures.postgres import DatabaseUrls
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import Page, get
from tests.support.many import copy_digits
from tests.support.world import World

LEDGER = "/datasets/digits/ledger"
STATEMENT = Path(__file__).parents[2] / "unit/service/cli/statement.json"


async def answer(client: httpx.AsyncClient, path: str) -> Any:
    response = await client.get(path)
    assert response.status_code == 200, response.text
    return response.json()


async def test_datasets_are_listed_by_name_page_by_page(
    client: httpx.AsyncClient,
    database: Database,
    database_urls: DatabaseUrls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(privacy, "DATASETS_PER_PAGE", 2)
    await ensure_digits(database)
    copy_digits(database_urls, ["a", "e.f"])

    def named(page: Page) -> list[str]:
        rows = [href or "" for each in page.all("a") if (href := each.get("href"))]
        return [href for href in rows if href.startswith("/ui/datasets/")]

    first = await get(client, "/ui/datasets")
    assert named(first) == ["/ui/datasets/a", "/ui/datasets/digits"]
    (following,) = [each["href"] for each in first.all("a") if each.get("rel") == "next"]
    assert following == "/ui/datasets?after=digits"
    assert "Charged and reserved ε" in first.text["datasets"]
    last = await get(client, following)
    assert named(last) == ["/ui/datasets/e.f"]
    buttons = {each["href"] for each in last.all("a") if "button" in (each.get("class") or "")}
    assert buttons == {"/ui/register", "/ui/datasets"}


async def test_a_budget_that_is_priced_for_long_does_not_hold_up_the_others(
    app: FastAPI,
    client: httpx.AsyncClient,
    context: Context,
    database_urls: DatabaseUrls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await seeding.training(context)
    copy_digits(database_urls, ["a"])
    account = await answer(client, LEDGER)
    totals = Ledger.totals

    async def slowly(ledger: Ledger, session: AsyncSession, scope_id: str) -> Totals:
        if scope_id == "dataset:digits":
            await asyncio.sleep(60)
        return await totals(ledger, session, scope_id)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "totals", slowly)
        patch.setattr(privacy, "PAGE_PATIENCE_SECONDS", 1.0)
        page = await get(client, "/ui/datasets")
    assert page.text["datasets"].count("being priced") == 1
    assert "0.000" in page.text["datasets"]
    await app.state.metrics.close()

    page = await get(client, "/ui/datasets")
    assert "being priced" not in page.text["datasets"]
    assert account["charged_epsilon"] in page.data["datasets"]


class TestFigures:
    async def test_the_budget_and_its_holders_are_the_apis(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.training(context)

        page = await get(client, "/ui/datasets/digits")
        account = await answer(client, LEDGER)
        burndown = await answer(client, f"{LEDGER}/burndown")

        assert page.data["budget"] == [
            account["scope"]["epsilon"], account["scope"]["delta"], account["charged_epsilon"],
            account["committed_epsilon"], account["remaining_epsilon"],
        ]  # fmt: skip
        charged, committed = (
            text.epsilon(account[f"{each}_epsilon"]) for each in ("charged", "committed")
        )
        (bar,) = [each for each in page.all("svg") if each.get("class") == "budget"]
        assert f" {charged} is charged and {committed} with" in (bar["aria-label"] or "")
        (held,) = account["reservations"]
        last = burndown["points"][-1]
        assert page.data["reservations"] == [
            held["reserved_steps"], held["charged_steps"], held["released_steps"],
            last["by_study"][study_id],
        ]  # fmt: skip
        assert account["charged_epsilon"] in page.data["accountants"]
        assert last["charged_epsilon"] in page.data["accountants"]

    async def test_what_accountants_said_is_kept_in_sight(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.training(context)
        repriced = await client.post(f"{LEDGER}/evaluations", json={"accountants": ["rdp"]})

        page = await get(client, "/ui/datasets/digits")

        said = [one["epsilon"] for one in repriced.json()["items"]]
        assert len(said) == 2
        assert set(said) <= set(page.data["accountants"])
        assert "dp-accounting" in page.text["accountants"]

    async def test_the_burn_down_is_downloaded_as_the_api_has_it(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.training(context)

        text = (await client.get("/ui/datasets/digits/burndown.csv")).text
        points = (await answer(client, f"{LEDGER}/burndown"))["points"]

        rows = [line.split(",") for line in text.split()]
        assert rows[0] == ["entry", "at", "charged_epsilon", "committed_epsilon"]
        assert [(int(row[0]), float(row[2]), float(row[3])) for row in rows[1:]] == [
            (p["seq"], p["charged_epsilon"], p["committed_epsilon"]) for p in points
        ]

    async def test_the_burn_down_is_drawn_over_time_where_that_is_asked(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.training(context)
        points = (await answer(client, f"{LEDGER}/burndown"))["points"]

        page = await get(client, "/ui/datasets/digits?over=time&kind=begin")

        (drawn,) = [
            json.loads(each["data-lines"] or "") for each in page.all("div") if "data-lines" in each
        ]
        moments = [datetime.fromisoformat(point["at"]).timestamp() for point in points]
        assert (drawn["x"], drawn["time"]) == ("Time (UTC)", True)
        assert drawn["data"][0] == pytest.approx(moments, abs=1e-3)
        links = [a.get("href") for a in page.all("a")]
        assert "/ui/datasets/digits?over=entries&kind=begin#burndown-head" in links
        kept = [one for one in page.all("input") if one.get("name") == "over"]
        assert [one["value"] for one in kept] == ["time"]  # filtering the journal keeps it
        assert (await client.get("/ui/datasets/digits?over=moon")).status_code == 422

    async def test_the_burn_down_ends_in_what_decides(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.training(context)
        account = await answer(client, LEDGER)

        page = await get(client, "/ui/datasets/digits")

        (drawn,) = [
            json.loads(each["data-lines"] or "") for each in page.all("div") if "data-lines" in each
        ]
        ends = {
            each["label"]: values[-1]
            for each, values in zip(drawn["series"], drawn["data"][1:], strict=True)
            if each["kind"] == "dots"
        }
        assert ends == {
            "charged now, by PLD": pytest.approx(account["charged_epsilon"], rel=1e-5),
            "charged and reserved now, by PLD": pytest.approx(account["committed_epsilon"], rel=1e-5),
        }  # fmt: skip
        assert "The dots at the end are by PLD, by which studies are admitted." in page.text["main"]

    async def test_caps_are_shown_with_what_counts_to_them_and_the_entry_that_set_them(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.submitted(context)
        put = {
            tenant: (
                await client.put(f"/datasets/digits/caps/{tenant}", json={"epsilon": epsilon})
            ).json()
            for tenant, epsilon in (("*", 1.5), ("local", 12.5), ("team-a", 2.0))
        }

        page = await get(client, "/ui/datasets/digits")

        used = (await answer(client, "/datasets/digits/ledger"))["committed_epsilon"]
        assert used > 1.5
        assert "team-a" in page.text["caps"]
        assert page.data["caps"] == [
            *(1.5, used, 0.0, put["*"]["seq"]),
            *(12.5, used, pytest.approx(12.5 - used), put["local"]["seq"]),
            *(2.0, 0.0, 2.0, put["team-a"]["seq"]),
        ]
        said = {a["aria-label"] for a in page.all("svg") if "Of the cap" in a.get("aria-label", "")}
        assert "Of the cap of team-a, 0.000 of 2 is charged or reserved" in said

    async def test_a_release_outside_is_named_by_its_reason_and_leads_nowhere(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await ensure_digits(context.database)
        reason = "sums <script>alert(1)</script> & [b]ages[/b]"
        asked = {"noise_multiplier": 4.0, "reason": reason}
        made = (await client.post(f"{LEDGER}/releases", json=asked)).json()
        await client.post(f"{LEDGER}/evaluations", json={"accountants": ["pld"]})

        page = await get(client, "/ui/datasets/digits")

        for part in ("reservations", "journal", "accountants"):
            assert f"outside of the service: {reason}" in page.text[part], part
        assert "not in its entry" not in page.text["reservations"]
        assert page.data["reservations"][:3] == [1, 1, 0]
        assert not any("outside-" in (each.get("href") or "") for each in page.all("a"))
        assert made["epsilon"] in page.data["accountants"]
        listed = await get(client, f"/ui/datasets/digits?study={made['id']}")
        assert "4 of 6 entries" in listed.text["journal"]
        assert reason in (await client.get("/ui/datasets/digits/journal.csv")).text.replace(
            '""', '"'
        )

    async def test_that_private_runs_wait_for_a_person_is_said_where_it_matters(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.submitted(context)
        dataset, study = "/ui/datasets/digits", f"/ui/studies/{study_id}"
        assert "where its study says" in (await get(client, dataset)).text["approval"]
        assert "approval" not in (await get(client, study)).text
        await client.put("/datasets/digits/approval", json={"approval": "required"})

        assert "every private run waits" in (await get(client, dataset)).text["approval"]
        assert "digits requires that a person" in (await get(client, study)).text["approval"]
        text = (await client.get(f"/ui/new?like={study_id}")).text
        checked = await client.post(
            "/ui/new", data={"yaml": Page(text).text["yaml"], "action": "check"}
        )
        assert "requires that a person approves" in Page(checked.text).text["verdict"]

    async def test_completed_studies_offer_their_statements(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.completed(context)

        page = await get(client, "/ui/datasets/digits")

        study = await answer(client, f"/studies/{study_id}")
        assert page.data["statements"] == [
            study["privacy"]["epsilon"],
            study["privacy"]["delta"],
            study["run"]["test_accuracy"],
        ]
        assert "bought" not in page.text  # one dot is no chart
        assert f"/studies/{study_id}/statement" in [a.get("href") for a in page.all("a")]
        assert "NOT accounted" in page.text["statements"]
        assert "PLD" in page.text["statements"]
        assert "All charged by then ε at δ 0.001" in page.text["statements"]
        assert "ε charged, by itself, at δ 0.001" in page.text["reservations"]

    async def test_what_epsilon_bought_is_drawn_by_model_and_downloaded(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        path = "/ui/datasets/digits"
        refused = await client.get(f"{path}/bought.csv")
        ids = [
            await seeding.completed(context, name="linear", model={"name": "linear"}),
            await seeding.completed(context, name="mlp"),
        ]

        page = await get(client, path)
        header, *rows = (await client.get(f"{path}/bought.csv")).text.splitlines()

        assert refused.status_code == 404
        marks = [a for a in page.all("path") if (a.get("class") or "").startswith("dots series-")]
        assert [(a["d"] or "").count("h0") for a in marks] == [1, 1]
        assert ",".join(ids) in [a.get("data-trials") for a in page.all("div")]
        assert "NOT accounted" in page.text["bought"]
        assert header == "study,model,metric,epsilon,delta,test_accuracy,search"
        told = {row.split(",")[0]: row.split(",") for row in rows}
        for id_ in ids:
            study = await answer(client, f"/studies/{id_}")
            row = told[study["name"]]
            assert row[1] == study["spec"]["model"]["name"]
            assert float(row[3]) == study["privacy"]["epsilon"]
            assert float(row[5]) == study["run"]["test_accuracy"]


class TestMuchData:
    async def test_of_many_statements_the_newest_are_listed_and_the_rest_is_told(
        self, client: httpx.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = await seeding.completed(context)
        await seeding.copies(context, first, 2)
        for listed, is_told in ((3, False), (2, True)):
            monkeypatch.setattr(privacy, "LISTED", listed)
            page = await get(client, "/ui/datasets/digits")
            assert ("Listed are the newest 2" in page.text["statements"]) is is_told
        (rest,) = [a["href"] for a in page.all("a") if "state=completed" in a.get("href", "")]
        studies = (await get(client, rest)).all("a")
        assert len([a for a in studies if a.get("href", "").startswith("/ui/studies/s")]) >= 3

    @pytest.mark.slow
    async def test_the_newest_reservations_are_listed_and_all_are_counted(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.submitted(context)
        async with context.database.session() as session:
            (held,) = (await Ledger().account(session, "dataset:digits")).reservations
            small = Mechanism.from_json(json.loads(held.event)).with_steps(1)
            for number in range(LISTED + 5):
                await Ledger().admit_and_reserve(
                    session, scope_id="dataset:digits", reservation_id=f"r-{number}",
                    study_id=f"s-{number}", mechanism=small, actor="test",
                )  # fmt: skip

        page = await get(client, "/ui/datasets/digits")

        assert f"the newest {LISTED} of {LISTED + 6}" in page.text["reservations"]
        assert f"r-{LISTED + 4}" in page.text["reservations"]


class TestChain:
    async def test_a_whole_journal_is_said_to_be_whole(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.training(context)

        part = (await client.get("/ui/datasets/digits/chain")).text

        report = await answer(client, f"{LEDGER}/verify")
        assert "whole" in part
        assert f'value="{report["num_entries"]}"' in part
        assert "<html" not in part

    async def test_there_is_none_for_public_data(
        self, client: httpx.AsyncClient, context: Context, database_urls: DatabaseUrls
    ) -> None:
        await seeding.submitted(context)
        seeding.make_public(database_urls)

        assert (await client.get("/ui/datasets/digits/chain")).status_code == 404
        page = await get(client, "/ui/datasets/digits")
        assert "public data" in page.text["budget"]
        assert "approval" not in page.text
        assert not [each for each in page.all("button") if each.get("hx-put")]


@pytest.fixture
async def statement(
    client: httpx.AsyncClient, context: Context, database: Database
) -> dict[str, Any]:
    """The signed statement of a study; another one has been charged on the same data before."""
    await ensure_digits(database)
    world = World(client, context.settings, database)
    run = Mechanism(sampling_rate=0.02, noise_multiplier=2.0, clip_norm=1.0, steps=100)
    async with database.session() as session:
        await Ledger().admit_and_reserve(
            session, scope_id="dataset:digits", reservation_id="before", study_id="before",
            mechanism=run, actor="test", search_accounting=SearchAccounting.DECLARED_UNACCOUNTED,
        )  # fmt: skip
        await Ledger().acquire(session, "before", epoch=1)
        await Ledger().begin_segment(
            session, "before", epoch=1, start_step=0, num_steps=60, request_id="q"
        )
    study_id = await world.trained()
    await world.tick(3)
    return await answer(client, f"/studies/{study_id}/statement")


def _weights(said: dict[str, Any]) -> None:
    said["weights"]["sha256"] = "ab" * 32


def _priced(said: dict[str, Any], mechanism: Mechanism) -> None:
    epsilon = price([mechanism], delta=said["privacy"]["delta"]).epsilon
    said["privacy"] |= {
        "epsilon": epsilon,
        "epsilon_by_accountant": {"pld": epsilon},
        "computed_again": {"epsilon": epsilon, "tolerance": 1e-3},
        "curve": [],
    }


def _mechanism(said: dict[str, Any]) -> None:
    """Half as much again of the noise, and every figure as it follows from that."""
    mechanism = Mechanism.from_json(said["events"][0])
    mechanism = replace(mechanism, noise_multiplier=1.5 * mechanism.noise_multiplier)
    said["events"] = [mechanism.to_json()]
    said["mechanisms"][0]["noise_multiplier"] = mechanism.noise_multiplier
    _priced(said, mechanism)


def _steps(said: dict[str, Any]) -> None:
    """A segment less, in all figures alike."""
    mechanism = Mechanism.from_json(said["events"][0]).with_steps(90)
    said["events"] = [mechanism.to_json()]
    said["mechanisms"][0]["steps"] = 90
    said["steps"] |= {"charged": 90, "released": 90}
    _priced(said, mechanism)


def _reserved(said: dict[str, Any]) -> None:
    said["steps"]["reserved"] += 1


def _charged(said: dict[str, Any]) -> None:
    said["ledger"]["charged_epsilon"] *= 0.9


def _silent(said: dict[str, Any]) -> None:
    """In the form of statements that were older than this journal."""
    kept = ("scope", "reservation", "entry", "budget")
    said["ledger"] = {name: said["ledger"][name] for name in kept}
    _data(said)


def _searches(said: dict[str, Any]) -> None:
    said["ledger"]["unaccounted_searches"] = 1


def _head(said: dict[str, Any]) -> None:
    said["ledger"]["head"]["hash"] = "0" * 64


def _entry(said: dict[str, Any]) -> None:
    """An entry that is there, and binds nothing."""
    said["ledger"]["entry"] = {"seq": 1, "hash": said["ledger"]["first"]}


def _study(said: dict[str, Any]) -> None:
    """Weights of one study as those of another."""
    said["study"]["id"] = "s-another"


def _budget(said: dict[str, Any]) -> None:
    said["ledger"]["budget"]["epsilon"] = 10.0


def _data(said: dict[str, Any]) -> None:
    said["dataset"]["sha256"] = "ab" * 32


def _number(said: dict[str, Any]) -> None:
    said["num_examples"]["value"] *= 10


def _public(said: dict[str, Any]) -> None:
    """As if nobody were in the data, and no budget had to pay."""
    said |= {"protects": False, "ledger": None}


def _assumptions(said: dict[str, Any]) -> None:
    """What no journal says."""
    said["assumptions"] = []
    said["pretraining"]["note"] = "weights start from a random initialisation of another kind"


def _waiver(said: dict[str, Any]) -> None:
    said["search"]["waiver"] = "somebody else: no reason"


FORGERIES: list[tuple[Callable[[dict[str, Any]], None], set[str]]] = [
    (_weights, {"weights"}),
    (_mechanism, {"reservation"}),
    (_steps, {"reservation", "weights"}),
    (_reserved, {"reservation"}),
    (_charged, {"charged by then"}),
    (_searches, {"charged by then"}),
    (_head, {"charged by then"}),
    (_entry, {"ledger entry", "weights"}),
    (_study, {"reservation", "weights"}),
    (_budget, {"budget"}),
    (_data, {"data"}),
    (_number, {"data"}),
    (_public, {"ledger"}),
    (_silent, {"charged by then", "data"}),
    (_waiver, {"data"}),
    (_assumptions, set()),
]
"""What is signed, and what of it the ledger contradicts; without the ledger all of it verifies."""


class TestVerifying:
    async def verdict(self, client: httpx.AsyncClient, text: str) -> str:
        response = await client.post(
            "/ui/statements/verify",
            content=urlencode({"statement": text}),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        assert response.status_code == 200, response.text
        return response.text

    @pytest.mark.slow
    async def test_a_statement_of_this_service_holds(
        self, client: httpx.AsyncClient, statement: dict[str, Any]
    ) -> None:
        said = await self.verdict(client, json.dumps(statement))

        assert "Everything holds." in said
        assert "is the one that was signed" in said
        account = await answer(client, LEDGER)
        assert account["charged_epsilon"] == statement["ledger"]["charged_epsilon"]
        assert statement["ledger"]["unaccounted_searches"] == 2
        shown = await get(client, "/ui/datasets/digits")
        assert text.epsilon(account["charged_epsilon"]) in shown.text["statements"]

    @pytest.mark.slow
    async def test_what_the_ledger_does_not_say_is_found_though_the_service_s_own_key_signed_it(
        self,
        client: httpx.AsyncClient,
        context: Context,
        statement: dict[str, Any],
        tmp_path: Path,
    ) -> None:
        first = (await answer(client, f"{LEDGER}?until=1"))["entries"][0]["hash"]
        for forge, bad in FORGERIES:
            said = copy.deepcopy({k: part for k, part in statement.items() if k != "signature"})
            said["ledger"]["first"] = first
            forge(said)
            (said["ledger"] or {}).pop("first", None)

            text = json.dumps(sign(said, signing_key(tmp_path)))

            checks = await checks_of(context, text)
            verdicts = {check.name: check.is_good for check in checks}
            # Of another study's id none is kept.
            assert verdicts.pop("issued") is (None if forge is _study else False)
            assert {name for name, is_good in verdicts.items() if is_good is False} == bad, (
                forge.__name__
            )

    async def test_text_that_is_no_utf_8_is_told(self, client: httpx.AsyncClient) -> None:
        said = json.loads(STATEMENT.read_text())
        said["privacy"]["accountant"] = "\ud800"

        assert "does not hold" in await self.verdict(client, json.dumps(said))

    @pytest.mark.slow
    async def test_a_smaller_epsilon_is_found(
        self, client: httpx.AsyncClient, statement: dict[str, Any]
    ) -> None:
        statement["privacy"]["epsilon"] /= 2

        said = await self.verdict(client, json.dumps(statement))

        assert "does not hold" in said
        assert "the document was changed" in said
        assert "computed again" in said

    @pytest.mark.slow
    async def test_numbers_that_could_hold_up_the_service_are_refused(
        self, client: httpx.AsyncClient, statement: dict[str, Any]
    ) -> None:
        statement["events"][0]["steps"] = 10**9

        said = await self.verdict(client, json.dumps(statement))

        assert "does not hold" in said
        assert "expected 1 to 10,000,000" in said

    @pytest.mark.slow
    async def test_a_stranger_s_key_is_named(
        self, client: httpx.AsyncClient, statement: dict[str, Any], tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()
        unsigned = {name: part for name, part in statement.items() if name != "signature"}

        said = await self.verdict(client, json.dumps(sign(unsigned, signing_key(other))))

        assert "does not hold" in said
        assert f"expected {statement['signature']['key_id']}" in said

    @pytest.mark.slow
    async def test_an_entry_that_the_ledger_does_not_hold_is_found(
        self, client: httpx.AsyncClient, statement: dict[str, Any], tmp_path: Path
    ) -> None:
        unsigned = {name: part for name, part in statement.items() if name != "signature"}
        unsigned["ledger"]["entry"]["hash"] = "0" * 64

        said = await self.verdict(client, json.dumps(sign(unsigned, signing_key(tmp_path))))

        assert "is no longer the signed one" in said

    @pytest.mark.parametrize("text", ["", "{", "[]", '"statement"', '{"schema": "other/1"}'])
    async def test_what_is_no_statement_is_said(self, client: httpx.AsyncClient, text: str) -> None:
        assert "does not hold" in await self.verdict(client, text)

    async def test_a_key_that_is_written_twice_is_found(
        self, client: httpx.AsyncClient, statement: dict[str, Any]
    ) -> None:
        """One of the two was signed; the other is what somebody reads."""
        said = await self.verdict(client, f'{{"privacy": {{}}, {json.dumps(statement)[1:]}')

        assert "is written twice" in said
        assert "does not hold" in said
