"""The timeline of a study's search: what drivers reported is what it draws."""

import csv
import io
from datetime import datetime

import httpx
import pytest
from sqlalchemy import delete

from service.context import Context
from service.datasets.service import ensure_digits
from service.db.session import Database
from service.db.tables import Event
from tests.integration.dashboard import rich, seeding
from tests.integration.dashboard.page import get
from tests.support.reports import completed_trial, make_score, make_trial
from tests.support.world import World


@pytest.fixture
async def world(client: httpx.AsyncClient, context: Context, database: Database) -> World:
    await ensure_digits(database)
    return World(client, context.settings, database)


async def spans_of(client: httpx.AsyncClient, study_id: str) -> list[dict[str, str]]:
    answer = await client.get(f"/ui/studies/{study_id}/charts/timeline.csv")
    return list(csv.DictReader(io.StringIO(answer.text)))


async def test_bars_are_from_begin_to_end_as_the_api_has_them(
    client: httpx.AsyncClient, context: Context
) -> None:
    study_id = await seeding.simulating(context, trials=0, **rich.spec_changes(40))
    await rich.fill(context, study_id, 40)

    trials = (await client.get(f"/studies/{study_id}/trials")).json()["items"]
    rows = {int(row["trial"]): row for row in await spans_of(client, study_id)}
    page = await get(client, f"/ui/studies/{study_id}/search")

    assert len(rows) == len(trials) == 40
    for trial in trials:
        row = rows[trial["number"]]
        assert row["what"] == trial["state"]
        for column, key in (("began", "started_at"), ("ended", "finished_at")):
            assert datetime.fromisoformat(row[column]) == datetime.fromisoformat(trial[key])
    assert "At most 4 trials at once" in page.text["timeline"]
    assert "2026-01-02 00:00 UTC" in page.text["timeline"]


async def test_before_the_first_score_it_is_all_there_is(
    client: httpx.AsyncClient, world: World
) -> None:
    study_id = await world.submit()
    await world.tick(3)
    nothing = await client.get(f"/ui/studies/{study_id}/search")
    await world.report(f"{study_id}-search", "PUT", "/trials/0", trial=make_trial(0))

    page = await get(client, f"/ui/studies/{study_id}/search")

    assert "Nothing to draw yet" in nothing.text
    assert 'id="timeline"' not in nothing.text
    assert "running" in page.text["timeline"]
    assert {each.get("id") for each in page.all("figure")} == {"timeline"}
    (row,) = await spans_of(client, study_id)
    assert (row["what"], row["ended"]) == ("running", "")


async def test_what_ran_when_its_driver_ended_has_ended_then(
    client: httpx.AsyncClient, world: World
) -> None:
    study_id = await world.submit()
    await world.tick(3)
    run_id = f"{study_id}-search"
    await world.report(run_id, "PUT", "/trials/0", trial=make_trial(0))
    await world.report(run_id, "POST", "/finish", outcome="failed", reason="lost", retryable=False)

    (row,) = await spans_of(client, study_id)

    assert row["what"] == "interrupted"
    assert datetime.fromisoformat(row["ended"]) > datetime.fromisoformat(row["began"])


async def test_finalists_are_repeated_when_their_events_say(
    client: httpx.AsyncClient, context: Context, world: World
) -> None:
    study_id = await world.submit()
    await world.tick(3)
    run_id = f"{study_id}-search"
    trial = completed_trial(0, 0.95, 0.94)
    await world.report(run_id, "PUT", "/trials/0", trial=trial)
    scores = [(0, 1, 9.0), (1, 1, 3.0), (0, 2, 4.0)]
    repeats = [make_score(rung, 0.9, seed=seed, seconds=s) for rung, seed, s in scores]
    for known in (repeats[:1], repeats[:2], repeats):
        await world.report(run_id, "PUT", "/trials/0", trial={**trial, "repeats": known})

    rows = await spans_of(client, study_id)
    page = await get(client, f"/ui/studies/{study_id}/search")

    took = [
        (
            datetime.fromisoformat(row["ended"]) - datetime.fromisoformat(row["began"])
        ).total_seconds()
        for row in rows
        if row["what"] == "repetition"
    ]
    # Of the first seed from the begin at its first rung to the end at its second one.
    assert sorted(took) == pytest.approx([4.0, 9.0], abs=1.0)
    assert max(took) > 9.0
    assert "repetition" in page.text["timeline"]

    async with context.database.session() as session:
        await session.execute(delete(Event).where(Event.study_id == study_id))
    await world.report(run_id, "PUT", "/trials/1", trial=make_trial(1))
    later = await get(client, f"/ui/studies/{study_id}/search")
    assert "no longer known" in later.text["timeline"]
