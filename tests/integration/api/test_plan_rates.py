"""Seconds in a plan come from what this very service has run before."""

from typing import Any

import pytest
from sqlalchemy import update

from service.db.session import Database
from service.db.tables import Attempt, Run, Study, Trial
from tests.fixtures.api import make_spec
from tests.support.reports import make_score

TRAIN_SECONDS = 20.0
TEST_SPEC = {"train": {"batch_size": 256, "steps": 100, "workers": 2}}


async def plan(client, **changes: Any) -> dict[str, Any]:
    response = await client.post("/plans", json=make_spec(**TEST_SPEC, **changes))
    assert response.status_code == 200, response.text
    return response.json()


async def finished(
    client,
    database: Database,
    *,
    seconds: tuple[float, ...] = (),
    attempts: int = 1,
    params: dict[str, Any] | None = None,
    ranks: int | None = None,
    devices: float = 1.0,
    **changes: Any,
) -> str:
    """A study that has simulated for so many seconds per trial, and has been trained."""
    response = await client.post("/studies", json=make_spec(**{**TEST_SPEC, **changes}))
    assert response.status_code == 201, response.text
    study_id = response.json()["id"]
    async with database.session() as session:
        session.add_all(
            Trial(
                study_id=study_id,
                number=number,
                state="completed",
                params={"learning_rate": 1.0, **(params or {})},
                scores=[
                    {
                        "rung": 0,
                        "expected_batch_size": 16.0,
                        "noise_multiplier": 0.2,
                        "steps": 100,
                        "accuracy": 0.9,
                        "train_loss": 0.3,
                        "seconds": each,
                        "devices": devices,
                    }
                ],
                value=0.9,
                attempt=1,
            )
            for number, each in enumerate(seconds)
        )
        await session.execute(
            update(Study).where(Study.id == study_id).values(promoted_trial=0, state="completed")
        )
        run = Run(
            id=f"{study_id}-private",
            study_id=study_id,
            kind="private",
            state="succeeded",
            assignment={},
            result={"steps": 100, "train_seconds": TRAIN_SECONDS},
        )
        session.add(run)
        await session.flush()
        for number in range(1, attempts + 1):
            state = "succeeded" if number == attempts else "lost"
            session.add(
                Attempt(
                    run_id=run.id,
                    number=number,
                    state=state,
                    submission_id=f"{run.id}-a{number}",
                    ranks=ranks,
                )
            )
    return study_id


def search_seconds(cost: dict[str, Any], rate: float) -> float:
    return (cost["search_examples"] + cost["finals_examples"]) / rate


async def test_a_service_that_ran_nothing_knows_no_seconds(client) -> None:
    cost = (await plan(client))["cost"]

    assert cost["private_run_seconds"] is cost["search_seconds"] is cost["rate_source"] is None
    assert cost["memory_bytes"] > 4 * 650


async def test_each_part_is_timed_by_the_median_of_its_own_kind(client, database) -> None:
    await finished(client, database, seconds=(1.0, 4.0, 2.0))

    cost = (await plan(client))["cost"]

    assert cost["examples_per_second"] == 256 * 100 / (2 * TRAIN_SECONDS)
    assert cost["search_examples_per_second"] == 16 * 100 / 2.0
    assert cost["private_run_seconds"] == TRAIN_SECONDS
    assert cost["search_seconds"] == pytest.approx(search_seconds(cost, 800), abs=0.1)
    assert cost["rate_source"] == (
        "private runs of linear on digits: median of 1; "
        "simulations of linear on digits: median of 3"
    )


async def test_a_run_of_fewer_ranks_than_it_asked_for_tells_how_many_there_are(
    client, database
) -> None:
    await finished(client, database, ranks=1)

    cost = (await plan(client))["cost"]

    assert cost["examples_per_second"] == 256 * 100 / TRAIN_SECONDS
    assert cost["private_run_seconds"] == TRAIN_SECONDS


async def test_simulations_that_share_a_gpu_are_as_fast_together_as_it_is(client, database) -> None:
    await finished(client, database, seconds=(2.0,), devices=0.25)

    cost = (await plan(client))["cost"]

    assert cost["search_examples_per_second"] == 4 * 16 * 100 / 2.0
    assert cost["search_seconds"] == pytest.approx(search_seconds(cost, 3200), abs=0.1)


async def test_views_of_a_trial_are_work_as_well(client, database) -> None:
    await finished(client, database, seconds=(1.0,), params={"augmentation_multiplicity": 4})

    cost = (await plan(client))["cost"]

    assert cost["search_examples_per_second"] == 4 * 16 * 100
    assert cost["examples_per_second"] == 4 * 256 * 100 / (2 * TRAIN_SECONDS)


@pytest.mark.parametrize(
    "other", [{"model": {"name": "mlp", "hidden": [8]}}, {"model": {"name": "mlp", "hidden": [64]}}]
)
async def test_another_model_or_another_width_is_no_measurement(client, database, other) -> None:
    await finished(client, database, seconds=(1.0,), **other)

    mine = (await plan(client, model={"name": "mlp", "hidden": [32]}))["cost"]

    assert mine["examples_per_second"] is None


async def test_a_run_that_was_resumed_is_no_measurement(client, database) -> None:
    await finished(client, database, seconds=(1.0,), attempts=2)

    cost = (await plan(client))["cost"]

    assert cost["rate_source"] == "simulations of linear on digits: median of 1"
    assert cost["examples_per_second"] == cost["search_examples_per_second"] == 1600


async def test_a_compute_limit_below_the_measured_cost_is_refused_by_field(
    client, database
) -> None:
    await finished(client, database, seconds=(1.0,))
    hours = (2 * TRAIN_SECONDS + search_seconds((await plan(client))["cost"], 1600)) / 3600

    assert await plan(client, budget={"gpu_hours": 1.01 * hours})
    response = await client.post(
        "/plans", json=make_spec(**TEST_SPEC, budget={"gpu_hours": 0.99 * hours})
    )

    assert response.status_code == 422
    assert [error["path"] for error in response.json()["errors"]] == ["budget.gpu_hours"]


async def test_repetitions_with_fresh_seeds_are_timed_like_any_simulation(client, database) -> None:
    study_id = await finished(client, database, seconds=(1.0,))
    async with database.session() as session:
        trial = await session.get_one(Trial, (study_id, 0))
        trial.repeats = [make_score(0, 0.9, seed=1, views=3, seconds=1.5)]

    cost = (await plan(client))["cost"]

    assert cost["search_examples_per_second"] == (1600 / 1.0 + 3 * 1600 / 1.5) / 2
    assert "simulations of linear on digits: median of 2" in cost["rate_source"]
