"""What was asked for is written down, and stays written down."""

import json
from datetime import UTC, datetime

import psycopg
import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from service.auth.repository import AuditFilter, audit_page
from tests.fixtures.api import make_settings, make_spec
from tests.integration.access.conftest import BOOTSTRAP, Caller, serving


@pytest.fixture
async def study(admin) -> str:
    answer = await admin.post("/studies", json=make_spec())
    return answer.json()["id"]


async def events(admin, **query) -> list[dict]:
    return (await admin.get("/audit", params=query)).json()["items"]


async def test_a_change_names_who_what_and_how_it_ended(admin):
    made = await admin.new_token("alice", ["submit"], tenant="acme")
    alice = Caller(admin.app, made["token"], address="192.0.2.7")
    answer = await alice.post("/studies", json=make_spec(), headers={"X-Request-ID": "mine"})
    study = answer.json()["id"]
    await alice.post(f"/studies/{study}/cancel")
    cancelled, submitted, created = await events(admin)
    assert submitted == {
        "id": submitted["id"],
        "at": submitted["at"],
        "token_id": made["id"],
        "token_name": "alice",
        "tenant": "acme",
        "address": "192.0.2.7",
        "method": "POST",
        "route": "/studies",
        "target": study,
        "status": 201,
        "request_id": "mine",
    }
    assert (cancelled["route"], cancelled["target"]) == ("/studies/{study_id}/cancel", study)
    assert (created["token_id"], created["target"]) == ("bootstrap", made["id"])


async def test_refused_attempts_are_there_too(admin, nobody):
    reader = await admin.befriend(["read"])
    await reader.post("/studies/s-1/cancel")
    await nobody.post("/studies/s-2/promote")
    await admin.post("/studies/s-3/cancel", headers={"Origin": "https://evil.example"})
    await nobody.post(
        "/ui/sign-in", data={"token": "wrong"}, headers={"Origin": str(nobody.base_url)}
    )
    found = [(e["route"], e["target"], e["status"]) for e in await events(admin, limit=4)]
    assert found == [
        ("/ui/sign-in", None, 401),
        ("/studies/{study_id}/cancel", "s-3", 403),
        ("/studies/{study_id}/promote", "s-2", 401),
        ("/studies/{study_id}/cancel", "s-1", 403),
    ]


async def test_what_changes_nothing_is_not(admin):
    await admin.get("/studies")
    await admin.post("/plans", json=make_spec())
    await admin.post("/nowhere", json={})
    assert await events(admin) == []


class TestFilters:
    @pytest.fixture
    async def made(self, admin):
        """Two tokens of one name, and what they asked for."""
        made = [await admin.new_token("bob", ["submit"]) for _ in range(2)]
        callers = [Caller(admin.app, each["token"]) for each in made]
        await callers[0].post("/studies/s-1/cancel")
        await callers[1].post("/studies/s-2/pause")
        await callers[1].post("/studies/s-1/promote")
        await callers[1].post("/studies/s-1%25/pause")
        return [each["id"] for each in made]

    async def found(self, admin, **query) -> list[tuple[str, str]]:
        return [(e["route"].rpartition("/")[2], e["target"]) for e in await events(admin, **query)]

    async def test_by_what_was_asked_of(self, admin, made):
        assert await self.found(admin, target="s-1") == [("promote", "s-1"), ("cancel", "s-1")]
        assert await self.found(admin, target=made[0]) == [("tokens", made[0])]
        assert await self.found(admin, target="s-1%") == [("pause", "s-1%")]
        assert await self.found(admin, target="s-") == []

    async def test_by_what_was_asked(self, admin, made):
        assert await self.found(admin, action="PAUSE") == [("pause", "s-1%"), ("pause", "s-2")]
        assert len(await events(admin, action="POST /tokens")) == 2
        assert await self.found(admin, action="%") == []

    async def test_by_who_asked(self, admin, made):
        assert await self.found(admin, actor=made[0]) == [("cancel", "s-1")]
        assert len(await events(admin, actor="bob")) == 4
        assert len(await events(admin, actor="bootstrap")) == 2

    async def test_by_when(self, admin, made):
        newest = await events(admin, limit=1)
        assert [e["id"] for e in await events(admin, since=newest[0]["at"])] == [newest[0]["id"]]
        assert await events(admin, since="2100-01-01T00:00:00Z") == []

    async def test_together_and_page_by_page(self, admin, made):
        asked = {"actor": "bob", "action": "pause"}
        whole = await events(admin, **asked)
        first = (await admin.get("/audit", params={**asked, "limit": 1})).json()
        rest = await events(admin, **asked, cursor=first["next_cursor"])
        assert first["items"] + rest == whole
        assert len(whole) == 2

    @pytest.mark.parametrize(
        "query",
        [{"tenant": "acme"}, {"target": ""}, {"actor": "a\x00b"}, {"since": "5"}, {"limit": "0"}],
        ids=str,
    )
    async def test_what_is_no_filter_is_refused_by_its_name(self, admin, query):
        answer = await admin.get("/audit", params=query)
        assert answer.status_code == 422
        assert [error["path"] for error in answer.json()["errors"]] == list(query)


async def test_each_of_many_studies_has_a_row(admin, study):
    await admin.post("/ui/studies/bulk", data={"action": "cancel", "study": [study, "s-none"]})
    found = {(e["target"], e["status"]) for e in await events(admin, action="/ui/studies/bulk")}
    assert found == {(f"{study}/cancel", 204), ("s-none/cancel", 409)}


async def test_what_is_written_in_the_browser_is_named(admin, study, tmp_path):
    (tmp_path / "visits.csv").write_text(
        "age,label\n" + "".join(f"{n},{n % 2}\n" for n in range(40))
    )
    described = f"{{name: visits, path: {tmp_path / 'visits.csv'}, epsilon: 8, delta: 1.0e-4}}"
    for action in ("check", "register"):
        await admin.post("/ui/register", data={"yaml": described, "action": action})
    for action in ("check", "submit"):
        await admin.post(
            "/ui/new", data={"yaml": json.dumps(make_spec(name="two")), "action": action}
        )

    (other,) = {e["id"] for e in (await admin.get("/studies")).json()["items"]} - {study}
    for route, targets in (
        ("/ui/register", ["visits/dry run", "visits"]),
        ("/ui/new", [None, other]),
    ):
        found = [e["target"] for e in await events(admin, action=f"POST {route}")]
        assert found[::-1] == targets


async def test_who_has_had_a_ledger_or_a_model_is_there_too(admin, study):
    reader = await admin.befriend(["read"], name="reader")
    await reader.get("/datasets/digits/ledger/export")
    await reader.get(f"/studies/{study}/model")
    await reader.get("/datasets/digits/ledger")
    await reader.head(f"/studies/{study}/model")
    found = [
        (e["method"], e["route"], e["target"], e["status"])
        for e in await events(admin, actor="reader")
    ]
    assert found == [
        ("GET", "/studies/{study_id}/model", study, 404),
        ("GET", "/datasets/{name}/ledger/export", "digits", 200),
    ]


@pytest.mark.parametrize(
    "which",
    [
        {"target": "s-none"},
        {"actor": "nobody"},
        {"action": "nowhere"},
        {"action": "promote"},
        {"since": datetime(2100, 1, 1, tzinfo=UTC)},
    ],
    ids=str,
)
async def test_what_is_rare_is_found_without_reading_all(database, owner, which):
    rows = (
        "INSERT INTO audit_event (at, method, route, target, status, request_id) SELECT now(), 'POST', "
        "CASE g WHEN 7 THEN '/studies/{study_id}/promote' ELSE '/studies' END, 's-' || g, 201, '' "
        "FROM generate_series(1, 20000) g"
    )
    async with owner.session() as session:
        await session.execute(text(rows))
        await session.execute(text("ANALYZE audit_event"))
    asked: list[tuple[str, object]] = []

    def note(_connection, _cursor, statement, parameters, *_):
        asked.append((statement, parameters))

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    async with database.session() as session:
        await audit_page(session, AuditFilter(**which), before=None, limit=51)
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)
    async with database.engine.connect() as connection:
        for statement, parameters in asked:
            plan = await connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)
            assert "Seq Scan on audit_event" not in (told := "\n".join(plan.scalars())), told
            assert "using pk_audit_event" not in told, told


async def test_pages_follow_each_other(admin):
    for _ in range(5):
        await admin.post("/studies/s-1/cancel")
    whole = await events(admin)
    first = (await admin.get("/audit", params={"limit": 3})).json()
    rest = (await admin.get("/audit", params={"limit": 3, "cursor": first["next_cursor"]})).json()
    assert first["items"] + rest["items"] == whole
    assert rest["next_cursor"] is None
    assert (await admin.get("/audit", params={"cursor": "x"})).status_code == 422


@pytest.mark.parametrize(
    "statement",
    ["UPDATE audit_event SET status = 200", "DELETE FROM audit_event", "TRUNCATE audit_event"],
)
async def test_nobody_rewrites_it(admin, database_urls, statement):
    await admin.post("/studies/s-1/cancel")
    for url, error in (
        (database_urls.app, psycopg.errors.InsufficientPrivilege),
        (database_urls.owner, psycopg.DatabaseError),
    ):
        with psycopg.connect(url) as connection, pytest.raises(error):
            connection.execute(statement)
    assert len(await events(admin)) == 1


async def test_no_change_is_confirmed_that_is_not_written_down(admin, database, database_urls):
    with psycopg.connect(database_urls.owner) as connection:
        connection.execute("ALTER TABLE audit_event RENAME TO audit_away")
    answer = await admin.post("/tokens", json={"name": "a", "scopes": ["read"]})
    assert answer.status_code == 500
    assert "tan_" not in answer.text


async def test_strangers_do_not_fill_what_nobody_may_delete(app, admin):
    """Ten refusals of an address, as with wrong tokens, and then one every ten seconds; what is known counts always."""
    stranger = Caller(app, address="192.0.2.66")
    for _ in range(15):
        assert (await stranger.post("/studies", json={})).status_code == 401
        assert (await stranger.post("/ui/sign-in", data={"token": "x"})).status_code == 403
        assert (await admin.post("/studies/s-1/cancel")).status_code == 404
    assert (await Caller(app, address="192.0.2.67").post("/studies", json={})).status_code == 401

    kept = await events(admin)

    assert [each["address"] for each in kept].count("192.0.2.66") == 10
    assert [each["address"] for each in kept].count("192.0.2.67") == 1
    assert [each["token_id"] for each in kept].count("bootstrap") == 15


class TestRates:
    async def test_each_token_has_a_limit_of_its_own(self, tmp_path, database):
        settings = make_settings(tmp_path, host="0.0.0.0", api_token=BOOTSTRAP, rate_limit="0.01,3")
        async with serving(settings, database) as app:
            admin = Caller(app, BOOTSTRAP)
            other = await admin.befriend()
            answers = [await admin.get("/studies") for _ in range(3)]
            assert [answer.status_code for answer in answers] == [200, 200, 429]
            assert 90 <= int(answers[-1].headers["retry-after"]) <= 100
            assert answers[-1].headers["content-type"] == "application/problem+json"
            assert (await other.get("/studies")).status_code == 200

    async def test_workers_have_a_wider_one(self, tmp_path, database):
        settings = make_settings(tmp_path, host="0.0.0.0", api_token=BOOTSTRAP, rate_limit="0.01,2")
        async with serving(settings, database) as app:
            worker = Caller(app)
            answers = [await worker.get("/worker/runs/r", params={"fence": 1}) for _ in range(21)]
            assert [answer.status_code for answer in answers] == [401] * 20 + [429]

    async def test_a_probe_is_answered_where_others_ask_too_often_from_its_address(
        self, tmp_path, database
    ):
        settings = make_settings(tmp_path, host="0.0.0.0", api_token=BOOTSTRAP, rate_limit="0.01,2")
        async with serving(settings, database) as app:
            node = Caller(app)
            assert [(await node.get("/keys")).status_code for _ in range(3)] == [200, 200, 429]
            assert [(await node.get("/healthz")).status_code for _ in range(5)] == [200] * 5

    async def test_wrong_tokens_close_the_door_to_their_address(self, app, admin, database):
        guesser = Caller(app, "wrong", address="192.0.2.66")
        statuses = [(await guesser.get("/studies")).status_code for _ in range(12)]
        assert statuses == [401] * 10 + [429] * 2
        lucky = Caller(app, BOOTSTRAP, address="192.0.2.66")
        assert (await lucky.get("/studies")).status_code == 429
        assert (await admin.get("/studies")).status_code == 200
        async with database.session() as session:
            assert await session.scalar(text("SELECT count(*) FROM audit_event")) == 0

    async def test_nor_do_they_to_who_works_there(self, app, admin):
        """Many may come from one address: behind a proxy, say. A token that ends is a wrong one again."""
        made = await admin.new_token(scopes=["read"])
        user = Caller(app, made["token"], address="192.0.2.66")
        assert (await user.get("/studies")).status_code == 200
        guesser = Caller(app, "wrong", address="192.0.2.66")
        assert [(await guesser.get("/studies")).status_code for _ in range(11)][-1] == 429

        assert (await user.get("/studies")).status_code == 200
        await admin.delete(f"/tokens/{made['id']}")
        assert [(await user.get("/studies")).status_code for _ in range(2)] == [401, 429]


async def test_where_it_cannot_be_written_the_caller_is_asked_to_come_again(admin, monkeypatch):
    async def away(*_: object) -> None:
        raise OperationalError("INSERT", {}, Exception("the server closed the connection"))

    monkeypatch.setattr("service.auth.repository.append", away)
    body = {"name": "someone", "scopes": ["read"]}
    for answer in (
        await admin.post("/tokens", json=body),
        await admin.post("/tokens", json={}),
        await Caller(admin.app).post("/tokens", json=body),
    ):
        assert (answer.status_code, answer.headers.get("retry-after")) == (503, "1"), answer.text
