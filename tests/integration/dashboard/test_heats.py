"""The pages of a search that begins with a heat: what it ended is shown, and never beside whole rungs."""

import csv
import io
from typing import Any

import httpx
import pytest

from service.context import Context
from service.db.tables import Trial
from tan_core.wire import CurvePoint, RungScore
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import get

STEPS, HEAT = 80, 20
SEARCH: dict[str, Any] = {
    "rungs": "auto",
    "trials": 12,
    "space": {"learning_rate": {"low": 0.1, "high": 9.0, "log": True}},
}
ENDED, WHOLE = (0.41, 0.52, 0.63), (0.71, 0.74)
"""Accuracies after the heat, of trials that it ended, and of others, which went on to 95 %."""


def score(after_heat: float, *, heat: bool) -> dict[str, Any]:
    reached = [after_heat] if heat else [after_heat, 0.85, 0.9, 0.95]
    curve = [CurvePoint(step=HEAT * n, accuracy=share) for n, share in enumerate(reached, 1)]
    return RungScore(
        rung=0,
        expected_batch_size=128,
        noise_multiplier=0.9,
        steps=curve[-1].step,
        accuracy=reached[-1],
        seconds=1.0,
        heat=heat,
        curve=curve,
    ).model_dump(mode="json")


@pytest.fixture
async def study_id(context: Context) -> str:
    """A search of a network half-way: trials 0 to 2 ended after the heat, 3 and 4 did not."""
    found = await seeding.submitted(
        context,
        search=SEARCH,
        model={"name": "mlp"},
        train={"batch_size": 1024, "steps": STEPS, "workers": 1},
    )
    await seeding.begin_search(context, found, trials=0)
    async with context.database.session() as session:
        for number, after_heat in enumerate((*ENDED, *WHOLE)):
            heat = number < len(ENDED)
            session.add(
                Trial(
                    study_id=found,
                    number=number,
                    state="pruned" if heat else "completed",
                    params={"learning_rate": 1.0 + number},
                    scores=[score(after_heat, heat=heat)],
                    repeats=[],
                    value=after_heat if heat else 0.95,
                    attempt=1,
                    reason="below the cut after the first 20 steps at rung 0" if heat else None,
                )
            )
    return found


@pytest.mark.slow
async def test_the_plan_has_both_parts_of_the_rung(
    client: httpx.AsyncClient, study_id: str
) -> None:
    plan = (await client.get(f"/studies/{study_id}")).json()["plan"]
    page = await get(client, f"/ui/studies/{study_id}")

    assert plan["heat"]["steps"] == HEAT
    assert len(plan["simulations"]) == 1
    assert "after 20 steps only the best of them go on" in " ".join(page.text["plan"].split())
    assert "128, first 20 steps" in page.text["plan"]
    assert "128, all steps" in page.text["plan"]


@pytest.mark.slow
async def test_charts_over_the_space_compare_all_trials_after_their_heat(
    client: httpx.AsyncClient, study_id: str
) -> None:
    search = (await client.get(f"/ui/studies/{study_id}/search")).text
    table = (await client.get(f"/ui/studies/{study_id}/charts/slices.csv")).text

    assert "of all trials after their first" in search
    shares = [float(row["accuracy"]) for row in csv.DictReader(io.StringIO(table))]
    assert sorted(shares) == sorted((*ENDED, *WHOLE))


async def test_trials_are_chosen_by_what_the_charts_show(
    client: httpx.AsyncClient, study_id: str
) -> None:
    address = f"/ui/studies/{study_id}/trials.csv"
    every = await client.get(address, params={"order": "number"})
    rows = list(csv.DictReader(io.StringIO(every.text)))
    asked = {"order": "number", "rung": 0, "low.accuracy": 0.6, "high.accuracy": 0.72}
    chosen = list(csv.DictReader(io.StringIO((await client.get(address, params=asked)).text)))

    assert [row["rung 0"] for row in rows] == ["", "", "", "0.95", "0.95"]
    assert [float(row["accuracy"]) for row in rows] == [*ENDED, 0.95, 0.95]
    assert [row["trial"] for row in chosen] == ["2", "3"]


async def test_who_went_on_stands_before_whom_the_heat_ended(
    client: httpx.AsyncClient, context: Context, study_id: str
) -> None:
    async with context.database.session() as session:
        for number, value in ((0, 0.99), (3, 0.5)):
            trial = await session.get_one(Trial, (study_id, number))
            trial.value = value

    listed = (await client.get(f"/studies/{study_id}/trials", params={"sort": "-value"})).json()

    assert [trial["number"] for trial in listed["items"]] == [4, 3, 0, 2, 1]


async def test_learning_curves_are_of_whole_rungs(client: httpx.AsyncClient, study_id: str) -> None:
    table = (await client.get(f"/ui/studies/{study_id}/charts/curves.csv")).text

    assert {row["trial"] for row in csv.DictReader(io.StringIO(table))} == {"3", "4"}


async def test_a_trial_that_its_heat_ended_says_so_and_draws_no_curve(
    client: httpx.AsyncClient, study_id: str
) -> None:
    page = await get(client, f"/ui/studies/{study_id}/trials/1")

    assert "at batch 128 after the first 20 steps" in " ".join(page.text["reached"].split())
    assert (await client.get(f"/ui/studies/{study_id}/trials/1/curves.csv")).status_code == 404
