"""Two API processes of one service, which share nothing but PostgreSQL and ``TAN_HOME``."""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from service.auth.authenticator import CACHE_SECONDS
from service.datasets.service import ensure_digits
from service.db.session import Database
from tests.fixtures.api import make_settings, make_spec
from tests.fixtures.postgres import DatabaseUrls
from tests.integration.api.test_process import environment, wait_until_ready
from tests.support.ports import free_port
from tests.support.world import World

ADMIN = "the-token-of-both"

pytestmark = pytest.mark.slow


@contextmanager
def served(home: Path, database_url: str) -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "service.app"],
        env=environment(
            home, TAN_DATABASE_URL=database_url, TAN_PORT=str(port), TAN_API_TOKEN=ADMIN
        ),
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(process, url)
        yield url
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
async def both(
    tmp_path: Path, database: Database, database_urls: DatabaseUrls
) -> AsyncIterator[list[httpx.AsyncClient]]:
    """A client of each."""
    await ensure_digits(database)
    headers = {"Authorization": f"Bearer {ADMIN}"}
    with ExitStack() as processes:
        urls = [processes.enter_context(served(tmp_path, database_urls.app)) for _ in range(2)]
        clients = [httpx.AsyncClient(base_url=url, headers=headers, timeout=120) for url in urls]
        yield clients
        for client in clients:
            await client.aclose()


async def test_one_key_makes_one_study_whoever_is_asked(both: list[httpx.AsyncClient]) -> None:
    keyed = {"Idempotency-Key": "one"}
    answers = await asyncio.gather(
        *(client.post("/studies", json=make_spec(), headers=keyed) for client in both * 2)
    )

    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("Idempotent-Replayed" not in answer.headers for answer in answers) == 1
    assert len((await both[0].get("/studies")).json()["items"]) == 1


async def test_a_stream_of_one_tells_what_another_process_did(
    both: list[httpx.AsyncClient], tmp_path: Path, database: Database, database_urls: DatabaseUrls
) -> None:
    one, other = both
    settings = make_settings(tmp_path, database_url=SecretStr(database_urls.app))
    orchestrator = World(other, settings, database)
    study_id = await orchestrator.submit()
    async with one.stream("GET", f"/studies/{study_id}/events") as response:
        chunks = response.aiter_text()
        told = await anext(chunks)
        assert "simulating" not in told

        await orchestrator.tick(2)
        while "simulating" not in told:
            told += await anext(chunks)


async def test_who_signed_in_at_one_may_change_things_at_the_other(
    both: list[httpx.AsyncClient],
) -> None:
    one, other = (str(client.base_url) for client in both)
    async with httpx.AsyncClient(timeout=120) as browser:
        signed = await browser.post(
            f"{one}/ui/sign-in", data={"token": ADMIN}, headers={"Origin": one}
        )
        assert signed.status_code == 303
        found = re.search(r'"X-CSRF-Token": "([0-9a-f]{64})"', (await browser.get(f"{one}/")).text)
        assert found

        refused = await browser.post(f"{other}/studies", json=make_spec())
        accepted = await browser.post(
            f"{other}/studies", json=make_spec(), headers={"X-CSRF-Token": found[1]}
        )

    assert refused.status_code == 403
    assert accepted.status_code == 201


async def test_a_token_that_one_revokes_opens_nothing_at_the_other(
    both: list[httpx.AsyncClient],
) -> None:
    one, other = both
    made = (await one.post("/tokens", json={"name": "short", "scopes": ["read"]})).json()
    bearer = {"Authorization": f"Bearer {made['token']}"}
    assert (await other.get("/studies", headers=bearer)).status_code == 200

    assert (await one.delete(f"/tokens/{made['id']}")).status_code == 204
    until = time.monotonic() + CACHE_SECONDS + 1
    while (await other.get("/studies", headers=bearer)).status_code != 401:
        assert time.monotonic() < until
        await asyncio.sleep(0.1)
