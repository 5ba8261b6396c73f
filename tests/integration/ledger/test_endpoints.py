"""Caps, evaluations, burn-down and keys over the API."""

import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from service import text
from service.db.session import Database
from service.ledger import repository, repricing
from service.ledger.errors import BudgetExceededError, WorthExceededError
from service.ledger.schemas import Entry
from service.ledger.service import Ledger
from service.publication import endpoints as publication
from service.publication.signing import sign
from service.statements.export_check import verify_export
from tan_core.accounting import price
from tan_core.mechanism import Mechanism
from tests.fixtures.api import make_spec

SCOPE = "dataset:digits"
LEDGER = "/datasets/digits/ledger"
RUN = Mechanism(sampling_rate=0.02, noise_multiplier=2.0, clip_norm=1.0, steps=100)
DELTA = 1e-3


async def charge(database: Database, name: str, steps: int) -> None:
    ledger = Ledger()
    async with database.session() as session:
        await ledger.admit_and_reserve(
            session, scope_id=SCOPE, reservation_id=name, study_id=name, mechanism=RUN, actor="test"
        )
        await ledger.acquire(session, name, epoch=1)
        await ledger.begin_segment(
            session, name, epoch=1, start_step=0, num_steps=steps, request_id="q"
        )


async def test_a_tenant_beyond_its_cap_is_refused_by_name(client: httpx.AsyncClient) -> None:
    cap = await client.put("/datasets/digits/caps/local", json={"epsilon": 2.0})
    assert cap.json() == {
        "tenant": "local", "epsilon": 2.0, "seq": 2, "committed_epsilon": 0.0, "warnings": [],
    }  # fmt: skip
    again = await client.put("/datasets/digits/caps/local", json={"epsilon": 2.0})
    assert again.json()["seq"] == 2
    refused = await client.post("/studies", json=make_spec())  # epsilon 3
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/over-budget")
    assert "the cap of tenant local in dataset:digits" in refused.json()["detail"]
    await client.put("/datasets/digits/caps/local", json={"epsilon": 50.0})
    assert (await client.post("/studies", json=make_spec())).status_code == 201
    listed = (await client.get("/datasets/digits/caps")).json()["items"]
    assert listed == [{"tenant": "local", "epsilon": 50.0, "seq": 3}]
    account = (await client.get(LEDGER)).json()
    assert account["caps"] == [{**listed[0], "committed_epsilon": account["committed_epsilon"]}]
    assert (await client.get(f"{LEDGER}/verify")).json()["is_valid"]


@pytest.mark.parametrize(
    ("tenant", "body"),
    [
        ("a", {"epsilon": 101.0}),
        ("a", {"epsilon": -1}),
        ("a b", {"epsilon": 1}),
        ("Local", {"epsilon": 1}),
    ],
)
async def test_a_cap_that_cannot_be_is_refused(
    client: httpx.AsyncClient, tenant: str, body: dict
) -> None:
    answer = await client.put(f"/datasets/digits/caps/{tenant}", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"]


async def test_a_cap_is_of_whoever_asked_as_all_else_in_the_journal(
    client: httpx.AsyncClient,
) -> None:
    submitted = await client.post("/studies", json=make_spec())
    assert submitted.status_code == 201
    await client.put("/datasets/digits/caps/local", json={"epsilon": 50.0})
    entries = (await client.get(LEDGER)).json()["entries"]
    actors = {entry["kind"]: json.loads(entry["body"])["actor"] for entry in entries}
    assert actors["cap"] == actors["reserve"] == "token:local"


async def test_a_cap_says_what_it_meets(client: httpx.AsyncClient, database: Database) -> None:
    await charge(database, "one", 60)
    committed = price([RUN], delta=DELTA).epsilon
    capped = (await client.put("/datasets/digits/caps/local", json={"epsilon": 0.1})).json()
    assert capped["committed_epsilon"] == committed
    [warning] = capped["warnings"]
    assert f"epsilon {text.epsilon(committed)} is committed already" in warning
    roomy = (await client.put("/datasets/digits/caps/local", json={"epsilon": 50.0})).json()
    assert roomy["warnings"] == []
    nobody = (await client.put("/datasets/digits/caps/tems", json={"epsilon": 1.0})).json()
    assert nobody["committed_epsilon"] == 0.0
    assert nobody["warnings"] == [
        "no token and no study is of tenant 'tems': until there is one, the cap holds nobody"
    ]


@pytest.mark.parametrize("tenant", ["local", "*"])
async def test_a_cap_of_nothing_freezes(
    client: httpx.AsyncClient, database: Database, tenant: str
) -> None:
    await charge(database, "one", 60)
    frozen = await client.put(f"/datasets/digits/caps/{tenant}", json={"epsilon": -0.0})
    assert (frozen.status_code, frozen.json()["epsilon"]) == (200, 0)
    refused = await client.post("/studies", json=make_spec())
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/over-budget")
    whose = "all tenants" if tenant == "*" else "tenant local"
    assert f"over the cap of {whose} in dataset:digits" in refused.json()["detail"]
    async with database.session() as session:  # what was reserved before goes on
        granted = await Ledger().begin_segment(
            session, "one", epoch=1, start_step=60, num_steps=40, request_id="more"
        )
    assert granted == (2, 40)
    assert (await client.get(f"{LEDGER}/verify")).json()["is_valid"]
    document = (await client.get(f"{LEDGER}/export")).json()
    assert not any(check.is_bad for check in verify_export(document))
    await client.put(f"/datasets/digits/caps/{tenant}", json={"epsilon": 90.0})
    assert (await client.post("/studies", json=make_spec())).status_code == 201


async def test_a_cap_of_all_is_of_all_together(
    client: httpx.AsyncClient, database: Database
) -> None:
    one = price([RUN], delta=DELTA).epsilon
    await client.put("/datasets/digits/caps/*", json={"epsilon": 1.2 * one})
    async with database.session() as session:
        for tenant in ("a", "b"):
            reserve = Ledger().admit_and_reserve(
                session, scope_id=SCOPE, reservation_id=tenant, study_id=tenant, mechanism=RUN,
                actor="test", tenant=tenant,
            )  # fmt: skip
            if tenant == "a":
                await reserve
            else:
                with pytest.raises(BudgetExceededError, match="the cap of all tenants") as refusal:
                    await reserve
    error = refusal.value
    assert (error.asked, error.committed) == (one, one)
    assert (
        f"together with what is committed ({text.epsilon(one)}) the epsilon of {text.epsilon(one)} that was asked "
        f"would be {text.epsilon(error.composed)}"
    ) in str(error)
    assert "compose to less than their sum" in str(error)


@pytest.mark.parametrize("whose", ["a", "*"])
async def test_the_database_itself_holds_to_a_cap(
    client: httpx.AsyncClient, database: Database, whose: str
) -> None:
    """Whatever a client says it has priced: nothing gets below a cap of 0, and little beyond another one."""
    many = RUN.with_steps(100_000)
    for epsilon, mechanism in ((0, RUN.with_steps(1)), (1.0, many)):
        await client.put(f"/datasets/digits/caps/{whose}", json={"epsilon": epsilon})
        async with database.session() as session:
            head = await repository.head(session, SCOPE)
            with pytest.raises(WorthExceededError):
                await repository.call(
                    session, "ledger_reserve", SCOPE, head.seq, "x", "s", "a",
                    json.dumps(mechanism.to_json()), mechanism.steps, "me",
                )  # fmt: skip


async def test_an_account_is_of_one_moment(
    client: httpx.AsyncClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where somebody writes while it is read, it says what held before: not a part of each."""
    await charge(database, "one", 60)
    number = itertools.count()
    for name in ("head", "reservations", "entries"):
        read = getattr(repository, name)

        async def and_then_write(*given: Any, _read: Any = read, **named: Any) -> Any:
            found = await _read(*given, **named)
            if (written := next(number)) < 6:
                async with database.session() as session:
                    await repository.call(
                        session, "ledger_attest_scope", SCOPE, f'{{"n": {written}}}', "me"
                    )
            return found

        monkeypatch.setattr(repository, name, and_then_write)
    account = (await client.get(LEDGER)).json()
    assert account["entries"][-1]["seq"] == account["head"]["seq"] == 4
    document = (await client.get(f"{LEDGER}/export")).json()
    assert next(number) > 5
    assert not any(check.is_bad for check in verify_export(document))


async def test_the_past_is_priced_again_once_for_each_version(
    client: httpx.AsyncClient, database: Database
) -> None:
    await charge(database, "one", 60)
    await charge(database, "two", 40)
    first = (await client.post(f"{LEDGER}/evaluations")).json()
    assert {(item["reservation_id"], item["accountant"]) for item in first["items"]} == {
        (name, accountant) for name in ("one", "two", None) for accountant in ("pld", "rdp")
    }
    assert all(item["before"] is None for item in first["items"])
    total = next(i for i in first["items"] if not i["reservation_id"] and i["accountant"] == "pld")
    assert total["epsilon"] == price([RUN], delta=DELTA).epsilon
    second = (await client.post(f"{LEDGER}/evaluations", json={"accountants": ["pld"]})).json()
    assert all(item["before"] == item["epsilon"] for item in second["items"])
    assert len((await client.get(f"{LEDGER}/evaluations")).json()["items"]) == 6


async def test_no_transaction_stands_still_while_the_past_is_priced(
    client: httpx.AsyncClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes longer than the database lets one, where there are many studies."""
    await charge(database, "one", 60)
    standing: list[int] = []

    def priced(*args: Any, **kwargs: Any) -> Any:
        standing.append(database.engine.pool.checkedout())  # pyright: ignore[reportAttributeAccessIssue]
        return price(*args, **kwargs)

    monkeypatch.setattr(repricing, "price", priced)
    assert (await client.post(f"{LEDGER}/evaluations")).status_code == 200
    assert standing == [0] * 4


async def test_what_is_charged_while_the_past_is_read_is_in_none_of_its_prices(
    client: httpx.AsyncClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the entry of a charge would be said to end at the epsilon of before it."""
    await charge(database, "one", 60)
    read = repository.reservations

    async def and_then_charge(*given: Any, **named: Any) -> Any:
        found = await read(*given, **named)
        async with database.session() as session:
            await Ledger().begin_segment(
                session, "one", epoch=1, start_step=60, num_steps=40, request_id="r"
            )
        return found

    monkeypatch.setattr(repository, "reservations", and_then_charge)
    priced = (await client.post(f"{LEDGER}/evaluations", json={"accountants": ["pld"]})).json()
    sixty = price([RUN.with_steps(60)], delta=DELTA).epsilon
    assert {(item["seq"], item["epsilon"]) for item in priced["items"]} == {(4, sixty)}


async def test_the_burndown_follows_the_journal(
    client: httpx.AsyncClient, database: Database
) -> None:
    await charge(database, "one", 60)
    before = (await client.get(f"{LEDGER}/burndown")).json()
    await charge(database, "two", 40)
    after = (await client.get(f"{LEDGER}/burndown")).json()
    assert [point["seq"] for point in after["points"]] == [1, 2, 4, 5, 7]
    assert after["points"][: len(before["points"])] == before["points"]
    last = after["points"][-1]
    bound = price([RUN], delta=DELTA).epsilon
    assert bound <= last["charged_epsilon"] <= 1.3 * bound
    assert last["committed_epsilon"] > last["charged_epsilon"]
    assert last["charged_epsilon"] < sum(last["by_study"].values())
    assert after["points"][0]["committed_epsilon"] == 0


async def test_an_export_is_verified_by_whoever_has_it(
    client: httpx.AsyncClient, database: Database
) -> None:
    await charge(database, "one", 60)
    await client.put("/datasets/digits/caps/team", json={"epsilon": 2.0})
    document = (await client.get(f"{LEDGER}/export")).json()

    (key,) = (await client.get("/keys")).json()["items"]
    checks = verify_export(document, key_id=key["key_id"])

    assert [check.name for check in checks if not check.is_good] == []
    assert "5 entries" in next(check.detail for check in checks if check.name == "hash chain")


async def test_the_journal_is_read_in_parts(client: httpx.AsyncClient, database: Database) -> None:
    await charge(database, "one", 60)

    async def shown(**query: int) -> list[int]:
        answer = await client.get(LEDGER, params=query)
        return [entry["seq"] for entry in answer.json()["entries"]]

    assert await shown() == [1, 2, 3, 4]
    assert await shown(entries=2) == [3, 4]
    assert await shown(entries=2, until=3) == [2, 3]
    assert await shown(entries=1, until=1) == [1]
    assert await shown(until=99) == [1, 2, 3, 4]
    assert (await client.get(LEDGER, params={"until": 0})).status_code == 422


async def test_keys_rotate_and_old_ones_stay_known(client: httpx.AsyncClient) -> None:
    (old,) = (await client.get("/keys")).json()["items"]
    fresh = (await client.post("/keys/rotate")).json()
    items = (await client.get("/keys")).json()["items"]
    assert [(key["key_id"], key["state"]) for key in items] == [
        (fresh["key_id"], "signing"),
        (old["key_id"], "retired"),
    ]
    assert (await client.get(f"{LEDGER}/export")).json()["signature"]["key_id"] == fresh["key_id"]


async def test_a_long_journal_that_is_exported_holds_up_nobody(
    client: httpx.AsyncClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What grows with it is done beside the loop that answers all requests."""
    await charge(database, "one", 60)
    done: dict[str, threading.Thread] = {}

    def noting(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **options: Any) -> Any:
            done[name] = threading.current_thread()
            return work(*given, **options)

        return noted

    monkeypatch.setattr(Entry, "model_validate", noting("read", Entry.model_validate))
    monkeypatch.setattr(Entry, "model_dump", noting("tell", Entry.model_dump))
    monkeypatch.setattr(publication, "sign", noting("sign", sign))
    document = (await client.get(f"{LEDGER}/export")).json()

    assert [entry["kind"] for entry in document["entries"]] == [
        "open",
        "reserve",
        "acquire",
        "begin",
    ]
    assert done.keys() == {"read", "tell", "sign"}
    assert threading.main_thread() not in done.values()
