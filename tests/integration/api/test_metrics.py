"""``/metrics`` says what the database says."""

import asyncio
import math
import os
from datetime import timedelta

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import func, select, update

from service.app import create_app
from service.context import Context
from service.db.session import Database
from service.db.tables import Attempt, OrchestratorPulse, Study
from service.ledger.prices import Prices, budgets
from service.ledger.service import Ledger
from service.orchestrator.pulse import Pulse
from service.settings import Settings
from service.studies.stream import stream
from tests.integration.dashboard import seeding
from tests.support.many import copy_digits

Samples = dict[tuple[str, frozenset], float]


@pytest.fixture
def app(settings, database):
    return create_app(settings, database)


@pytest.fixture
def context(app) -> Context:
    return app.state.context


@pytest.fixture
async def client(app):
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


def sample(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


async def scraped(client: httpx.AsyncClient) -> Samples:
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert all(family.documentation for family in families)
    assert all(name.startswith(("tan_", "process_")) for name in names)
    samples = {
        (each.name, frozenset(each.labels.items())): each.value
        for family in families
        for each in family.samples
    }
    assert not [key for key, value in samples.items() if math.isnan(value)]
    return samples


async def test_an_empty_service_has_numbers_too(client):
    samples = await scraped(client)
    assert sample(samples, "tan_database_up") == 1
    assert sample(samples, "tan_studies", state="training") == 0
    assert sample(samples, "tan_queue_depth") == 0
    assert sample(samples, "tan_heartbeat_oldest_age_seconds") == 0
    assert sample(samples, "tan_runs_without_place", kind="private") == 0
    assert sample(samples, "tan_attempts_lost_total", kind="search") == 0


async def test_studies_runs_and_drivers_are_counted(client, context, database, owner):
    training = await seeding.training(context)
    await seeding.submitted(context, name="waits")
    await seeding.failed(context, "out of luck", name="fails")
    async with owner.session() as session:
        await session.execute(
            update(Study)
            .where(Study.state == "queued")
            .values(created_at=func.now() - timedelta(minutes=5))
        )
    async with database.session() as session:
        await session.execute(
            update(Attempt)
            .where(Attempt.run_id == f"{training}-private", Attempt.number == 2)
            .values(heartbeat_at=func.now() - timedelta(hours=2), waits_for="waiting for a place")
        )
    samples = await scraped(client)
    states = {"queued": 1, "training": 1, "failed": 1, "completed": 0, "cancelled": 0}
    assert {state: sample(samples, "tan_studies", state=state) for state in states} == states
    assert sample(samples, "tan_queue_depth") == 1
    assert 300 <= sample(samples, "tan_queue_oldest_age_seconds") < 400
    assert sample(samples, "tan_runs", kind="private", state="active") == 1
    assert sample(samples, "tan_attempts_lost_total", kind="private") == 1
    assert sample(samples, "tan_attempts", kind="private", state="live") == 1
    assert sample(samples, "tan_runs_without_place", kind="private") == 1
    assert sample(samples, "tan_runs_without_place", kind="search") == 0
    assert 7200 <= sample(samples, "tan_heartbeat_oldest_age_seconds") < 7300


async def test_epsilons_are_those_of_the_ledger(client, context, database):
    study_id = await seeding.training(context)
    async with database.session() as session:
        (scope,) = await budgets(session)
        account = await Ledger().account(session, scope.scope_id)
    samples = await scraped(client)
    shown = {
        name: sample(samples, f"tan_ledger_{name}", scope=scope.scope_id)
        for name in ("epsilon_budget", "epsilon_committed", "epsilon_charged", "delta", "entries")
    }
    assert shown == {
        "epsilon_budget": account.scope.epsilon,
        "epsilon_committed": account.committed_epsilon,
        "epsilon_charged": account.charged_epsilon,
        "delta": account.scope.delta,
        "entries": account.head.seq,
    }
    assert 0 < shown["epsilon_charged"] < shown["epsilon_committed"] < shown["epsilon_budget"]

    async with database.session() as session:
        study = await session.get_one(Study, study_id)
        assert study.reservation_id
        await Ledger().release(session, study.reservation_id, actor="test", reason="done")
    samples = await scraped(client)
    assert sample(samples, "tan_ledger_epsilon_committed", scope=scope.scope_id) == pytest.approx(
        account.charged_epsilon
    )


async def test_a_scrape_does_not_wait_for_prices(context, database, monkeypatch):
    await seeding.submitted(context)
    async with database.session() as session:
        scopes = await budgets(session)
    priced = asyncio.Event()
    totals = Ledger.totals

    async def slowly(*arguments, **options):
        await priced.wait()
        return await totals(*arguments, **options)

    monkeypatch.setattr(Ledger, "totals", slowly)
    prices = Prices(database, patience_seconds=0.01)
    assert await prices.of(scopes) == {}
    await prices.close()
    priced.set()
    prices = Prices(database, patience_seconds=30)
    assert list(await prices.of(scopes)) == [scopes[0].scope_id]
    monkeypatch.delattr(Ledger, "totals")  # the same journal is not priced again
    assert list(await prices.of(scopes)) == [scopes[0].scope_id]
    await prices.close()


async def test_a_page_waits_for_the_prices_that_it_shows_behind_those_that_another_asked(
    context, database, database_urls, monkeypatch
):
    await seeding.submitted(context)
    copy_digits(database_urls, ["a", "b"])
    async with database.session() as session:
        every = await budgets(session)
        (one,) = await budgets(session, ["dataset:b"])
    assert one in every
    totals, asked = Ledger.totals, list[str]()

    async def slowly(ledger, session, scope_id):
        await asyncio.sleep(0.05)
        asked.append(scope_id)
        return await totals(ledger, session, scope_id)

    monkeypatch.setattr(Ledger, "totals", slowly)
    prices = Prices(database, patience_seconds=0.01)
    assert await prices.of([each for each in every if each != one]) == {}
    assert await prices.newest([one], 0.0) == {}
    found = await prices.newest([one], 30)
    assert [(scope_id, each.head.seq) for scope_id, each in found.items()] == [
        ("dataset:b", one.seq)
    ]
    assert sorted(asked) == sorted(each.scope_id for each in every)
    await prices.close()


async def test_requests_are_timed_by_template_and_never_by_path(client):
    for path in ("/studies/s-0123", "/studies/s-4567", "/nothing/s-0123", "/healthz"):
        await client.get(path)
    await client.get("/healthz", headers={"Host": "evil.example"})
    text = (await client.get("/metrics")).text
    assert "s-0123" not in text
    samples = await scraped(client)

    def timed(route: str, status: str) -> float:
        name = "tan_http_request_seconds_count"
        return sample(samples, name, method="GET", route=route, status=status)

    assert timed("/studies/{study_id}", "4xx") == 2
    assert timed("none", "4xx") == 2
    assert timed("/healthz", "2xx") == 1


async def test_an_orchestrator_is_seen_by_its_pulse(client, database):
    pulse = Pulse(database, "host-1")
    with pulse.timed():
        await asyncio.sleep(0.01)
    await pulse.beat()
    with pulse.timed():
        pass
    await pulse.beat()  # too early to be written again
    samples = await scraped(client)
    assert sample(samples, "tan_reconcile_seconds_count", orchestrator="host-1") == 1
    assert sample(samples, "tan_reconcile_seconds_sum", orchestrator="host-1") >= 0.01
    assert 0 <= sample(samples, "tan_orchestrator_tick_age_seconds", orchestrator="host-1") < 60

    async with database.session() as session:
        await session.execute(
            update(OrchestratorPulse).values(ticked_at=func.now() - timedelta(hours=2))
        )
    await Pulse(database, "host-2").beat()
    async with database.session() as session:
        assert list(await session.scalars(select(OrchestratorPulse.owner))) == ["host-2"]


async def test_a_pulse_touches_its_file_with_a_database_or_without_one(tmp_path):
    file, nobody = tmp_path / "pulse", Database("postgresql://tan@127.0.0.1:1/none")
    await Pulse(nobody, "host-1", file).beat()
    os.utime(file, (0, 0))
    await Pulse(nobody, "host-1", file).beat()
    assert file.stat().st_mtime > 0
    await Pulse(nobody, "host-1", tmp_path / "no" / "folder").beat()  # is no reason to stop
    await nobody.close()


async def test_a_stream_that_lags_is_seen(client, context):
    study_id = await seeding.simulating(context)
    following = stream(context, study_id, after=0)
    await anext(following)  # one event was sent, and the client reads no further
    for number in (50, 51, 52):
        await seeding.report_trial(context, study_id, number, 0.9)
    samples = await scraped(client)
    await following.aclose()
    async with context.database.session() as session:
        last = await session.scalar(select(Study.event_seq))
    assert last
    assert sample(samples, "tan_event_streams") == 1
    assert sample(samples, "tan_events_behind") == last


async def test_a_process_without_its_database_still_tells_of_itself(settings: Settings):
    away = Database("postgresql://nobody@127.0.0.1:1/none")
    app = create_app(settings, away)
    told = (await app.state.metrics.exposition()).decode()
    await away.close()
    families = {family.name: family for family in text_string_to_metric_families(told)}
    assert [sample.value for sample in families["tan_database_up"].samples] == [0]
    assert "tan_queue_depth" not in families
