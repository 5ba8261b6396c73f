"""A stream that was opened ends with what opened it."""

import asyncio
from datetime import timedelta

import pytest

from service.auth.sessions import LIFETIME_SECONDS
from service.datasets.service import ensure_digits
from service.db.clock import clock
from service.studies import repository
from tests.fixtures.api import BASE_URL, make_settings, make_spec
from tests.integration.access.conftest import BOOTSTRAP, Caller, serving


@pytest.fixture(autouse=True)
def waits(monkeypatch) -> asyncio.Event:
    """Set when a stream looks for what is behind a study's first event; streams look often."""
    monkeypatch.setattr("service.studies.stream.POLL_SECONDS", 0.02)
    read, waits = repository.events_after, asyncio.Event()

    async def noted(session, study_id, after, **options):
        if after == 1:
            waits.set()
        return await read(session, study_id, after, **options)

    monkeypatch.setattr(repository, "events_after", noted)
    return waits


async def follow(caller, study: str, waits: asyncio.Event) -> asyncio.Task:
    """The stream of the study's events, open and waiting: it has told the first one."""
    waits.clear()
    following = asyncio.create_task(caller.get(f"/studies/{study}/events"))
    await asyncio.wait_for(waits.wait(), 10)
    assert not following.done()
    return following


async def test_it_tells_nothing_after_its_token_was_revoked(admin, waits):
    study = (await admin.post("/studies", json=make_spec())).json()["id"]
    made = await admin.new_token(scopes=["admin"])
    following = await follow(Caller(admin.app, made["token"]), study, waits)

    await admin.delete(f"/tokens/{made['id']}")
    await admin.post(f"/studies/{study}/pause")

    told = (await asyncio.wait_for(following, 10)).text
    assert "id: 1\n" in told
    assert "id: 2\n" not in told


async def test_nor_after_the_session_of_its_page_has_run_out(admin, waits, monkeypatch):
    study = (await admin.post("/studies", json=make_spec())).json()["id"]
    browser = Caller(admin.app)
    signed = {"data": {"token": BOOTSTRAP}, "headers": {"Origin": BASE_URL}}
    assert (await browser.post("/ui/sign-in", **signed)).status_code == 303
    following = await follow(browser, study, waits)
    sooner = await follow(admin, study, waits)

    async def later(session):
        return await clock(session) + timedelta(seconds=LIFETIME_SECONDS + 1)

    monkeypatch.setattr("service.auth.authenticator.clock", later)
    assert "id: 1\n" in (await asyncio.wait_for(following, 10)).text
    await asyncio.sleep(0.2)
    assert not sooner.done()  # whoever has shown a token needs no session
    sooner.cancel()


async def test_nor_what_happened_while_it_looked(admin, monkeypatch):
    """The token is revoked and the study goes on between two queries of one look at the events."""
    study = (await admin.post("/studies", json=make_spec())).json()["id"]
    made = await admin.new_token(scopes=["admin"])
    read, looks = repository.events_after, []

    async def overtaken(session, study_id, after, **options):
        looks.append(after)
        if looks == [0, 1]:
            await admin.delete(f"/tokens/{made['id']}")
            await admin.post(f"/studies/{study}/pause")
        return await read(session, study_id, after, **options)

    monkeypatch.setattr(repository, "events_after", overtaken)

    told = await asyncio.wait_for(
        Caller(admin.app, made["token"]).get(f"/studies/{study}/events"), 10
    )

    assert looks == [0, 1]
    assert "id: 1\n" in told.text
    assert "id: 2\n" not in told.text


async def test_nobody_who_was_not_asked_for_a_token_reads_on_once_there_is_one(
    tmp_path, database, waits
):
    await ensure_digits(database)
    async with serving(make_settings(tmp_path / "home"), database) as app:
        local = Caller(app)
        study = (await local.post("/studies", json=make_spec())).json()["id"]
        following = await follow(local, study, waits)

        await local.new_token("me", ["admin"])

        await asyncio.wait_for(following, 10)
