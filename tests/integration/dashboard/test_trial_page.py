"""The page of one trial: what the API says about it, and where its table leads."""

import csv
import io
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from service.context import Context
from service.db.tables import Trial
from tests.integration.dashboard import rich, seeding
from tests.integration.dashboard.page import get
from tests.integration.dashboard.test_numbers import Known, check, shown

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


async def trial_of(client: httpx.AsyncClient, study_id: str, number: int) -> dict:
    trials = (await client.get(f"/studies/{study_id}/trials?limit=1000")).json()["items"]
    return next(trial for trial in trials if trial["number"] == number)


async def test_every_trial_of_the_table_has_a_page_and_its_neighbours(
    client: httpx.AsyncClient, context: Context
) -> None:
    study_id = await seeding.completed(context)
    at = f"/ui/studies/{study_id}"
    links = {str(a.get("href")) for a in (await get(client, at)).all("a")}

    for number in range(12):
        assert f"{at}/trials/{number}" in links
        page = await get(client, f"{at}/trials/{number}")
        near = {a["rel"]: a["href"] for a in page.all("a") if a.get("rel")}
        assert near.get("prev") == (f"{at}/trials/{number - 1}" if number else None)
        assert near.get("next") == (f"{at}/trials/{number + 1}" if number < 11 else None)


async def test_a_finalist_is_shown_with_its_numbers_of_the_api(
    client: httpx.AsyncClient, context: Context
) -> None:
    study_id = await seeding.completed(context)
    study = (await client.get(f"/studies/{study_id}")).json()
    number = study["promotion"]["trial"]

    page = await shown(client, f"/ui/studies/{study_id}/trials/{number}")

    trial = await trial_of(client, study_id, number)
    assert len(trial["repeats"]) == 6
    check(page, Known(trial, study), least=40)


async def test_how_many_gradients_were_clipped_is_told_with_what_to_make_of_it(
    client: httpx.AsyncClient, context: Context
) -> None:
    study_id = await seeding.simulating(context)
    at = f"/ui/studies/{study_id}/trials/0"

    page = await get(client, at)
    async with context.database.session() as session:
        stored = await session.get_one(Trial, (study_id, 0))
        stored.scores = [{**score, "clipped_fraction": None} for score in stored.scores]
    older = await get(client, at)
    async with context.database.session() as session:
        stored = await session.get_one(Trial, (study_id, 0))
        stored.params = {**stored.params, "clipping": "automatic"}
    automatic = await get(client, at)

    assert "62.5 %" in page.text["simulations"]
    assert "larger than it has to be" in page.text["clipped"]
    assert "Clipped" not in older.text["simulations-head"] + older.text["simulations"]
    assert "clipped" not in older.text
    assert "Clipped" not in automatic.text["simulations"]
    assert "scales every gradient" in automatic.text["clipped"]


@pytest.mark.parametrize(
    ("change", "taken", "said"),
    [
        (
            {"finished_at": NOON + timedelta(seconds=7)},
            "Time taken 7s",
            "2026-01-02 12:00:00 to 12:00:07 UTC",
        ),
        ({"state": "interrupted"}, "Time taken –", "since 2026-01-02 12:00:00 UTC"),
        ({"state": "running"}, "Time so far", "since 2026-01-02 12:00:00 UTC"),
    ],
)
async def test_when_it_ran_and_how_long_is_told(
    client: httpx.AsyncClient, context: Context, change: dict, taken: str, said: str
) -> None:
    study_id = await seeding.simulating(context)
    async with context.database.session() as session:
        stored = await session.get_one(Trial, (study_id, 0))
        for name, value in {"started_at": NOON, "finished_at": None, **change}.items():
            setattr(stored, name, value)

    page = await get(client, f"/ui/studies/{study_id}/trials/0")

    told = " ".join(page.text["when"].split())
    assert taken in told
    assert said in told


@pytest.mark.slow
async def test_its_parameters_are_yaml_and_its_curves_a_table(
    client: httpx.AsyncClient, context: Context
) -> None:
    study_id = await seeding.simulating(context, trials=0, **rich.spec_changes(20))
    await rich.fill(context, study_id, 20)
    scored = (await client.get(f"/studies/{study_id}/trials?state=completed")).json()["items"][0]
    at = f"/ui/studies/{study_id}/trials/{scored['number']}"

    page = await get(client, at)
    answer = await client.get(f"{at}/curves.csv")

    for name, value in scored["params"].items():
        assert f"{name}: {value}" in page.text["params"]
    for fixed in ("name: mlp", "clip_norm: 0.5"):
        assert fixed in page.text["settings"]
        assert fixed not in page.text["params"]
    points = [point for score in scored["scores"] for point in score["curve"]]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [float(row["accuracy"]) for row in rows] == [point["accuracy"] for point in points]


async def test_one_that_told_nothing_says_so(client: httpx.AsyncClient, context: Context) -> None:
    study_id = await seeding.simulating(context)
    at = f"/ui/studies/{study_id}/trials/2"  # it diverged

    page = await get(client, at)

    assert "training loss is not finite at step 41" in page.text["main"]
    assert "No simulation has told one." in page.text["main"]
    missing = await get(client, f"{at}/curves.csv", status=404)
    assert "has no learning curve" in missing.text["main"]


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [("99", 404, "has no trial 99"), ("-1", 422, "number"), ("x", 422, "number")],
)
async def test_a_trial_that_is_none_is_said_to_be_none(
    client: httpx.AsyncClient, context: Context, number: str, status: int, said: str
) -> None:
    study_id = await seeding.simulating(context)

    page = await get(client, f"/ui/studies/{study_id}/trials/{number}", status=status)

    assert said in page.text["main"]


@pytest.mark.parametrize("study", ["s-ffffffffffff", "%00"])
async def test_of_no_study_there_are_no_curves(client: httpx.AsyncClient, study: str) -> None:
    page = await get(client, f"/ui/studies/{study}/trials/0/curves.csv", status=404)
    assert "there is no study" in page.text["main"]
