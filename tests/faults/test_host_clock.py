"""The wall clock of a host is put forward and back by hours in the middle of a study.

It is the one of all processes there, by a library that they preload: API, orchestrator, drivers, trial
workers and ranks on one host, PostgreSQL on another, or all on one. Only Ray's daemons keep the machine's.
"""

import secrets
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import psycopg
import pytest

from service.auth.sessions import COOKIE
from service.client import Client
from service.db import embedded
from service.db.embedded import EmbeddedPostgres
from service.statements.verify import verify_statement
from tests.fixtures.postgres import FAST
from tests.support.host_clock import HostClock, build
from tests.support.live import LiveService
from tests.support.studies import (
    STEPS,
    assert_nothing_was_lost,
    finished_trials,
    has_run,
    some_trials_done,
    training,
)

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

HOURS = timedelta(hours=13)
"""Longer than a session of the dashboard lasts."""
SOON = timedelta(minutes=5)
BOOTSTRAP = secrets.token_hex(16)


@pytest.fixture(scope="module")
def clocks() -> Iterator[dict[str, HostClock]]:
    with tempfile.TemporaryDirectory(prefix="tan-clock-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as somebody else
        library = build(folder)
        yield {host: HostClock(library, folder / host) for host in ("service", "database")}


@pytest.fixture(scope="module")
def postgres(clocks: dict[str, HostClock]) -> Iterator[EmbeddedPostgres]:
    with pytest.MonkeyPatch.context() as patch:
        environment = {**embedded._ENVIRONMENT, **clocks["database"].environment}
        patch.setattr(embedded, "_ENVIRONMENT", environment)
        with tempfile.TemporaryDirectory(prefix="tan-pg-") as name:
            Path(name).chmod(0o711)
            with EmbeddedPostgres(Path(name), settings=FAST) as server:
                yield server


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory,
    clocks: dict[str, HostClock],
    postgres: EmbeddedPostgres,
) -> Iterator[LiveService]:
    live = LiveService(
        tmp_path_factory.mktemp("home"),
        TAN_HEARTBEAT_TIMEOUT_SECONDS="15",
        TAN_API_TOKEN=BOOTSTRAP,
        TAN_DATABASE_URL=postgres.url_app,
        TAN_DATABASE_OWNER_URL=postgres.url_owner,
        **clocks["service"].environment,
    ).start()
    yield live
    live.stop()


@pytest.mark.parametrize("first", [HOURS, -HOURS], ids=["forward", "back"])
@pytest.mark.parametrize(
    "hosts", [("service",), ("database",), ("service", "database")], ids="+".join
)
def test_a_study_outlives_jumps_of_a_hosts_clock(
    service: LiveService,
    postgres: EmbeddedPostgres,
    clocks: dict[str, HostClock],
    hosts: tuple[str, ...],
    first: timedelta,
) -> None:
    def jump(by: timedelta) -> None:
        before = _clocks_of(service, postgres)
        for host in hosts:
            clocks[host].jump(by)
        expected = {host: by if host in hosts else timedelta() for host in clocks}
        deadline = time.monotonic() + 60
        while True:  # an API renews the date of its answers every second or so
            now = _clocks_of(service, postgres)
            if all(abs(now[each] - before[each] - expected[each]) < SOON for each in clocks):
                return
            assert time.monotonic() < deadline, (before, now)
            time.sleep(0.2)

    spec = training(f"clock-{'-'.join(hosts)}-{first.total_seconds():.0f}")
    spec["search"] |= {"trials": 4, "budget": 1.0}
    study_id = service.submit(spec)

    service.wait(study_id, some_trials_done)
    before = finished_trials(service, study_id)
    jump(first)
    service.wait(study_id, has_run(1, 20))
    jump(-2 * first)
    service.wait(study_id, has_run(1, STEPS // 2))
    jump(2 * first)
    study = service.complete(study_id, seconds=600)

    assert_nothing_was_lost(service, study, finished_before=before)
    assert (study["run"]["step"], study["privacy"]["charged_steps"]) == (STEPS, STEPS)
    attempts = service.get(f"/studies/{study_id}/attempts")["items"]
    assert [(each["attempt"], each["state"]) for each in attempts] == [(1, "succeeded")] * 2
    assert service.get("/datasets/digits/ledger/verify")["is_valid"]
    statement = service.get(f"/studies/{study_id}/statement")
    assert not any(check.is_bad for check in verify_statement(statement))
    now = _clocks_of(service, postgres)["database"]
    assert timedelta() <= now - datetime.fromisoformat(statement["issued_at"]) < timedelta(hours=1)
    _assert_events_are_in_order(service, study_id)


@pytest.mark.parametrize("by", [HOURS, -HOURS], ids=["forward", "back"])
def test_tokens_and_sessions_do_not_live_by_the_clock_of_the_api(
    service: LiveService, clocks: dict[str, HostClock], by: timedelta
) -> None:
    asked = {"name": "short", "scopes": ["read"], "expires_in_seconds": 3600}
    token = service.request("POST", "/tokens", json=asked).json()["token"]
    cookie = _sign_in(service)

    clocks["service"].jump(by)
    time.sleep(2)  # longer than a token is believed unseen
    answers = [
        _status(service, headers={"Authorization": f"Bearer {token}"}),
        _status(service, headers={"Cookie": cookie}),
    ]
    clocks["service"].jump(-by)

    assert answers == [200, 200]


def _clocks_of(service: LiveService, postgres: EmbeddedPostgres) -> dict[str, datetime]:
    """What time it is at either host, as itself says."""
    answer = httpx.get(f"{service.url}/healthz")
    with psycopg.connect(postgres.url_superuser) as connection:
        row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    return {"service": parsedate_to_datetime(answer.headers["date"]), "database": row[0]}


def _sign_in(service: LiveService) -> str:
    answer = httpx.post(
        f"{service.url}/ui/sign-in", data={"token": BOOTSTRAP}, headers={"Origin": service.url}
    )
    assert answer.status_code == 303, answer.text
    return f"{COOKIE}={answer.cookies[COOKIE]}"


def _status(service: LiveService, *, headers: dict[str, str]) -> int:
    """Of one look by somebody who has this and no other token."""
    return httpx.get(f"{service.url}/studies", headers=headers).status_code


def _assert_events_are_in_order(service: LiveService, study_id: str) -> None:
    with Client(service.url, token=BOOTSTRAP) as client:
        events = [event.data for event in client.follow_events(study_id)]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    states = [event["state"] for event in events if event["kind"] == "state"]
    assert list(dict.fromkeys(states)) == ["queued", "simulating", "training", "completed"]
    steps = [event["step"] for event in events if event["kind"] == "step"]
    assert steps == sorted(steps)
