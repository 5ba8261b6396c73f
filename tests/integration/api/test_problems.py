"""Whatever goes wrong, the answer is ``application/problem+json`` with the status that fits."""

import asyncio
import json
from typing import Any

import httpx
import psycopg
from psycopg import sql
from pydantic import SecretStr
from sqlalchemy import text

from service.app import create_app
from service.db.session import Database
from tests.fixtures.api import make_settings, make_spec, open_client
from tests.fixtures.postgres import DatabaseUrls

JSON = {"content-type": "application/json"}
NAME = "s-0123456789ab"

CASES: list[tuple[int, str, str, dict[str, Any]]] = [
    (400, "POST", "/studies", {"content": b"{", "headers": JSON}),
    (400, "POST", "/plans", {"content": b'{"a": 1, "a": 2}', "headers": JSON}),
    (400, "POST", "/datasets", {"content": b"\xff", "headers": {"content-type": "text/yaml"}}),
    (400, "POST", "/datasets", {"content": b"[" * 5000, "headers": JSON}),
    (400, "POST", "/tokens", {"content": b"{", "headers": JSON}),
    (404, "GET", "/nowhere", {}),
    (404, "GET", f"/studies/{NAME}", {}),
    (404, "PATCH", f"/studies/{NAME}", {"json": {"name": "a"}, "headers": {"If-Match": "*"}}),
    (404, "GET", "/datasets/nothing/ledger", {}),
    (405, "DELETE", "/studies", {}),
    (405, "PUT", f"/studies/{NAME}/cancel", {}),
    (413, "POST", "/studies", {"content": b"x" * (2**20 + 1), "headers": JSON}),
    (415, "POST", "/studies", {"content": b"a=1"}),
    (415, "POST", "/studies", {"content": b"a", "headers": {"content-type": "text/plain"}}),
    (415, "PATCH", f"/studies/{NAME}", {"content": b"a: 1", "headers": {"content-type": "text/yaml"}}),
    (422, "POST", "/studies", {"json": []}),
    (422, "POST", "/studies", {"json": {"name": "a"}}),
    (422, "GET", "/studies?limit=none", {}),
    (422, "GET", "/studies?colour=red", {}),
    (422, "POST", "/studies", {"json": make_spec(), "headers": {"Idempotency-Key": "x" * 256}}),
]  # fmt: skip


def assert_problem(response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    return problem


async def test_every_way_to_go_wrong(client) -> None:
    for status, method, path, options in CASES:
        response = await client.request(method, path, **options)
        problem = assert_problem(response, status)
        if status == 422:
            assert all(error["path"] for error in problem["errors"]), (path, problem)
        if status == 405:
            allowed = response.headers["allow"].split(", ")
            assert method not in allowed
            assert allowed


async def test_the_methods_of_a_path_are_all_named(client) -> None:
    response = await client.delete("/studies")
    assert response.headers["allow"] == "GET, POST"
    response = await client.delete(f"/studies/{NAME}")
    assert response.headers["allow"] == "GET, PATCH"


async def test_they_are_named_below_the_prefix_of_a_proxy_too(settings, database) -> None:
    transport = httpx.ASGITransport(create_app(settings, database), root_path="/tan")
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.delete("/tan/studies")
    assert response.headers["allow"] == "GET, POST"


async def test_a_conflict(client, database) -> None:
    study = (await client.post("/studies", json=make_spec())).json()
    async with database.session() as session:
        await session.execute(text("UPDATE study SET state = 'failed'"))
    problem = assert_problem(await client.post(f"/studies/{study['id']}/cancel"), 409)
    assert "is failed" in problem["detail"]


async def test_a_database_that_is_away(tmp_path) -> None:
    url = "postgresql://nobody@127.0.0.1:9/none"
    settings = make_settings(tmp_path, database_url=SecretStr(url), api_token=SecretStr("t"))
    database = Database(url)
    headers = {"Authorization": "Bearer t"}
    async with open_client(settings, database, headers=headers) as client:
        for path in ("/studies", f"/studies/{NAME}", "/datasets", "/readyz", "/calibration"):
            response = await client.get(path)
            problem = assert_problem(response, 503)
            assert "127.0.0.1" not in json.dumps(problem)
        assert (await client.get("/healthz")).status_code == 200
    await database.close()


async def test_a_database_that_stands_by_is_left_for_the_one_that_took_over(
    client, database: Database, database_urls: DatabaseUrls
) -> None:
    study = (await client.post("/studies", json=make_spec())).json()
    _stand_by(database_urls, "on")
    await database.engine.dispose()  # a failover ends what was connected
    try:
        for path in ("/studies", f"/studies/{study['id']}/cancel"):
            response = await client.post(path, json=make_spec())
            problem = assert_problem(response, 503)
            assert "takes no changes" in problem["detail"]
            assert response.headers["Retry-After"] == "1"
        assert (await client.get(f"/studies/{study['id']}")).status_code == 200
        ready = assert_problem(await client.get("/readyz"), 503)
        assert "takes no changes" in ready["detail"]
    finally:
        _stand_by(database_urls, "off")
    # By the same name another server is reached now. Whoever meets an old connection leaves them all.
    answers = [await client.post(f"/studies/{study['id']}/cancel") for _ in range(2)]
    assert answers[-1].status_code == 202, answers[-1].text


async def test_readiness_alone_leaves_a_database_that_stands_by(
    client, database: Database, database_urls: DatabaseUrls
) -> None:
    """Who is not ready is asked for nothing else, so nobody else meets an old connection."""
    _stand_by(database_urls, "on")
    try:
        await database.engine.dispose()
        assert (await client.get("/readyz")).status_code == 503
    finally:
        _stand_by(database_urls, "off")
    assert (await client.get("/readyz")).status_code == 200


async def test_what_another_session_holds_is_waited_for_so_long_and_no_longer(
    client, database: Database, database_urls: DatabaseUrls, monkeypatch
) -> None:
    study = (await client.post("/studies", json=make_spec())).json()
    monkeypatch.setattr(
        "service.db.session._SET", "SELECT set_config('lock_timeout', '200ms', false)"
    )
    await database.engine.dispose()
    where = f"/studies/{study['id']}"
    with psycopg.connect(database_urls.superuser) as holder:
        holder.execute("SELECT 1 FROM study FOR UPDATE")
        async with asyncio.timeout(5):
            answers = await asyncio.gather(*(client.post(f"{where}/cancel") for _ in range(40)))
            for response in answers:
                problem = assert_problem(response, 503)
                assert "held by another" in problem["detail"]
                assert response.headers["Retry-After"] == "1"
            assert (await client.get(where)).status_code == 200
    assert (await client.post(f"{where}/cancel")).status_code == 202


def _stand_by(urls: DatabaseUrls, whether: str) -> None:
    with psycopg.connect(urls.superuser, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}").format(
                sql.Identifier(urls.name), sql.Literal(whether)
            )
        )
