"""PostgreSQL commits, and the connection breaks before it can say so: whoever asked asks again."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from service.db.session import Database, normalise_url
from tests.fixtures.api import driver_headers, make_spec
from tests.support.proxy import Fate, Proxy
from tests.support.reports import completed_trial
from tests.support.world import World

pytestmark = pytest.mark.faults

TABLES = (
    "study", "run", "attempt", "trial", "event",
    "ledger_reservation", "ledger_segment", "ledger_entry",
)  # fmt: skip

Send = Callable[[], Awaitable[httpx.Response]]
Count = Callable[[], dict[str, int]]


COMMITTING = (b"COMMIT\0", b"INSERT INTO trial")
"""What a message has that commits: a transaction's end, or a report of a trial, which is one by itself."""


def commits(message: bytes) -> bool:
    return any(part in message for part in COMMITTING)


class LosesCommit:
    """The acknowledgement of one commit is lost: of the one after so many others."""

    def __init__(self, others: int) -> None:
        self._left = others

    def __call__(self, message: bytes) -> Fate:
        if not commits(message):
            return Fate.ARRIVES
        self._left -= 1
        return Fate.ANSWER_IS_LOST if self._left == -1 else Fate.ARRIVES


def loses_every_commit(message: bytes) -> Fate:
    return Fate.ANSWER_IS_LOST if commits(message) else Fate.ARRIVES


@pytest.fixture
def wire(database_urls) -> Iterator[Proxy]:
    """Between the service and its database."""
    url = normalise_url(database_urls.app)
    assert url.host is not None
    assert url.port is not None
    with Proxy((url.host, url.port)) as proxy:
        yield proxy


@pytest.fixture
async def database(database_urls, wire: Proxy) -> AsyncIterator[Database]:
    url = normalise_url(database_urls.app).set(drivername="postgresql", port=wire.port)
    database = Database(url.render_as_string(hide_password=False))
    yield database
    await database.close()


@pytest.fixture
def world(client: httpx.AsyncClient, settings, database: Database) -> World:
    return World(client, settings, database)


@pytest.fixture
def count(database_urls) -> Count:
    """Rows of each table, by a connection that nobody disturbs."""

    def count() -> dict[str, int]:
        with psycopg.connect(database_urls.superuser) as connection:
            return {
                table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in TABLES
            }

    return count


async def insist(wire: Proxy, send: Send, count: Count) -> httpx.Response:
    """Send until it is answered, while each time the next commit on the way is not acknowledged."""
    committed_unheard = False
    for others in range(10):
        before = count()
        wire.rule = LosesCommit(others)
        response = await send()
        wire.heal()
        if response.status_code != 503:
            assert committed_unheard, "nothing was lost that had been written"
            return response
        committed_unheard |= count() != before
    raise AssertionError("ten commits for one request")


def report(world: World, run_id: str, method: str, path: str, **body: Any) -> Send:
    return lambda: world.client.request(
        method,
        f"/worker/runs/{run_id}{path}",
        json={"fence": 1, **body},
        headers=driver_headers(world.settings, run_id, 1),
    )


SEGMENT = {"start_step": 0, "num_steps": 10, "request_id": "one"}
CHECKPOINT = {"step": 10, "path": "/x", "sha256": "ab" * 32}


class TestDriver:
    @pytest.mark.parametrize(
        ("earlier", "last"),
        [
            pytest.param([], ("POST", "/segments", SEGMENT), id="segment"),
            pytest.param(
                [("POST", "/segments", SEGMENT)],
                ("POST", "/segments/1/end", {"checkpoint": CHECKPOINT}),
                id="segment-end",
            ),
        ],
    )
    async def test_a_report_of_a_private_run_counts_once(
        self, world: World, wire: Proxy, count: Count, earlier, last
    ) -> None:
        study_id = await world.to_training()
        for method, path, body in earlier:
            await world.report(f"{study_id}-private", method, path, **body)
        method, path, body = last
        send = report(world, f"{study_id}-private", method, path, **body)

        response = await insist(wire, send, count)

        assert response.is_success, response.text
        rows = count()
        assert (rows["ledger_segment"], rows["ledger_reservation"]) == (1, 1)
        assert (await world.study(study_id))["privacy"]["charged_steps"] == 10

    async def test_a_trial_is_stored_once(self, world: World, wire: Proxy, count: Count) -> None:
        study_id = await world.submit()
        await world.tick(3)
        trial = completed_trial(0, 0.7, 0.8)
        send = report(world, f"{study_id}-search", "PUT", "/trials/0", trial=trial)

        response = await insist(wire, send, count)

        assert response.status_code == 204
        assert count()["trial"] == 1
        assert (await world.study(study_id))["progress"]["trials_finished"] == 1


class TestUser:
    async def test_a_study_sent_again_under_its_key_is_the_same_study(
        self, world: World, wire: Proxy, count: Count
    ) -> None:
        def send() -> Awaitable[httpx.Response]:
            return world.client.post(
                "/studies", json=make_spec(), headers={"Idempotency-Key": "once"}
            )

        response = await insist(wire, send, count)

        assert response.status_code == 201, response.text
        rows = count()
        assert (rows["study"], rows["ledger_reservation"]) == (1, 1)


class TestOrchestrator:
    async def test_one_that_never_hears_of_its_commits_starts_nothing_twice(
        self, world: World, wire: Proxy, count: Count
    ) -> None:
        study_id = await world.submit()
        for _ in range(6):
            wire.rule = loses_every_commit
            with pytest.raises(DBAPIError):
                await world.tick()
            wire.heal()
            await world.tick()

        jobs = [job.submission_id for job in world.launcher.submitted]
        assert jobs == [f"{study_id}-search-a1"]
        assert (await world.study(study_id))["state"] == "simulating"
        rows = count()
        assert (rows["run"], rows["attempt"], rows["ledger_reservation"]) == (1, 1, 1)
