"""PostgreSQL's own disk is full: the service says so, keeps what it has said, and goes on once there is space."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from pydantic import SecretStr

from service.datasets.service import ensure_digits
from service.db.embedded import APP, EmbeddedPostgres
from service.db.migrate import upgrade
from service.db.session import Database
from tests.fixtures.api import make_settings, make_spec, open_client
from tests.support.disks import fill, small_disk

pytestmark = [pytest.mark.faults, pytest.mark.crash, pytest.mark.slow]

MEGABYTES = 128
"""A fresh cluster takes 60 of them."""
WRITES = 200
"""More of them than fit into what a full disk still holds in files that are there."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", megabytes=MEGABYTES, mode=0o711) as path:
        yield path


@pytest.fixture
def postgres(disk: Path) -> Iterator[EmbeddedPostgres]:
    small = {"min_wal_size": "32MB", "max_wal_size": "32MB"}
    with EmbeddedPostgres(disk / "home", settings=small) as postgres:
        upgrade(postgres.url_owner, APP)
        yield postgres


@pytest.fixture
async def served(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    database = Database(postgres.url_app)
    await ensure_digits(database)
    settings = make_settings(tmp_path / "home", database_url=SecretStr(postgres.url_app))
    async with open_client(settings, database) as client:
        yield client
    await database.close()


async def submit(client: httpx.AsyncClient, number: int) -> httpx.Response:
    spec = make_spec(name=f"study-{number}", privacy={"epsilon": 0.25})
    return await client.post("/studies", json=spec, headers={"Idempotency-Key": f"k{number}"})


@pytest.mark.parametrize("part", ["tables", "log"])
async def test_a_full_disk_refuses_writes_and_loses_none(
    served: httpx.AsyncClient, postgres: EmbeddedPostgres, disk: Path, part: str
) -> None:
    """Without room for its tables PostgreSQL refuses; without room for its log it ends."""
    accepted = [(await submit(served, 0)).json()["id"]]

    ballast = fill(disk)
    if part == "log":
        # Where no new piece of the log can be made, this is what ends the server.
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(postgres.url_superuser, autocommit=True) as connection,
        ):
            connection.execute("SELECT pg_switch_wal()")
    refused = None
    for number in range(1, WRITES):
        answer = await submit(served, number)
        if answer.status_code != 201:
            refused = answer
            break
        accepted.append(answer.json()["id"])
    assert refused is not None, "the disk is not full"
    assert refused.status_code == 503, refused.text
    assert refused.headers["Retry-After"]
    assert refused.headers["Content-Type"] == "application/problem+json"

    ballast.unlink()
    if not postgres.is_healthy():  # as its supervisor does
        await asyncio.to_thread(postgres.start)
    again = await submit(served, number)

    assert again.status_code == 201, again.text
    accepted.append(again.json()["id"])
    listed = (await served.get("/studies?limit=200")).json()["items"]
    assert sorted(each["id"] for each in listed) == sorted(accepted)
    ledger = (await served.get("/datasets/digits/ledger")).json()
    assert sorted(each["study_id"] for each in ledger["reservations"]) == sorted(accepted)
    assert (await served.get("/datasets/digits/ledger/verify")).json()["is_valid"]
