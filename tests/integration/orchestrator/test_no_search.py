"""Studies that search nothing: their own hyper-parameters are trained, and all that reads the data is charged."""

from pathlib import Path
from typing import Any

import pytest

from service.db.tables import Run
from service.statements.verify import verify_statement
from tests.fixtures.api import register_table
from tests.support.image_files import image_shards
from tests.support.world import World

GIVEN = {"accounting": "no_search", "trials": 0, "space": {}}


async def test_it_goes_from_the_line_into_the_private_run(world: World) -> None:
    study_id = await world.submit(search=GIVEN, train={"learning_rate": 2.5})

    await world.tick(3)

    assert [job.module for job in world.launcher.submitted] == ["worker.train"]
    study = await world.study(study_id)
    assert (study["state"], study["run"]["trial"]) == ("training", None)
    assert study["prediction"] is study["best_trial"] is None
    assert (study["promotion"]["trial"], study["promotion"]["standings"]) == (None, [])
    assert study["started_at"] is not None
    assert study["plan"]["simulations"] == []

    await world.begin_segment(study_id, 0, 100)
    await world.finish_private(study_id)
    await world.tick(2)

    study = await world.study(study_id)
    assert study["state"] == "completed", study["reason"]
    statement = (await world.client.get(f"/studies/{study_id}/statement")).json()
    assert statement["search"]["accounting"] == "no_search"
    assert not any(check.is_bad for check in verify_statement(statement))
    exported = (await world.client.get("/datasets/digits/ledger/export")).json()
    assert [held["search_accounting"] for held in exported["reservations"]] == ["no_search"]
    assert exported["search"]["unaccounted"] == 0


async def test_it_trains_what_was_given(world: World) -> None:
    study_id = await world.submit(search=GIVEN, train={"learning_rate": 2.5, "momentum": 0.5})
    await world.tick(3)

    async with world.database.session() as session:
        run = await session.get_one(Run, f"{study_id}-private")
    trainer = run.assignment["trainer"]
    assert (trainer["learning_rate"], trainer["momentum"]) == (2.5, 0.5)


async def test_where_a_person_decides_it_waits_for_that_without_a_slot(world: World) -> None:
    running = await world.submit()
    await world.tick(3)
    study_id = await world.submit(search=GIVEN, promotion="manual")

    await world.tick(2)

    assert (await world.study(running))["state"] == "simulating"
    assert (await world.study(study_id))["state"] == "awaiting_approval"
    refused = await world.client.post(f"/studies/{study_id}/promote", json={"trial": 0})
    assert refused.status_code == 422
    assert "no trials" in refused.text

    approved = await world.client.post(f"/studies/{study_id}/promote")
    assert approved.status_code == 202
    by = approved.json()["promotion"]["approved_by"]
    assert by["trial"] is None
    await world.tick(2)
    assert (await world.study(study_id))["state"] == "awaiting_approval"  # the slot is taken

    await world.finish_search(running)
    await world.client.post(f"/studies/{running}/cancel")
    await world.tick(4)
    study = await world.study(study_id)
    assert study["state"] == "training"
    assert study["promotion"]["approved_by"] == by


async def test_data_that_nobody_may_search_can_be_trained_on(world: World, tmp_path: Path) -> None:
    await register_table(world.client, tmp_path, epsilon=10.0, delta=1e-3)

    study_id = await world.submit(dataset="table", search=GIVEN, train={"batch_size": 16})
    await world.tick(3)

    assert (await world.study(study_id))["state"] == "training"


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({}, ["alone is of its class", "read in grey where"]),
        ({"classes": ["a", "b", "c", "d"]}, ["read in grey where"]),
    ],
    ids=["unnamed", "named"],
)
async def test_its_statement_says_what_one_record_may_change_for_all(
    world: World, tmp_path: Path, named: dict[str, Any], said: list[str]
) -> None:
    path = image_shards(tmp_path / "images", rows=100)
    sent = {"name": "images", "path": str(path), "epsilon": 10.0, "delta": 1e-3, **named}
    registered = await world.client.post("/datasets", json=sent)
    assert registered.status_code == 201, registered.text
    train = {"batch_size": 32, "steps": 100}
    study_id = await world.submit(dataset="images", search=GIVEN, train=train)
    await world.tick(3)
    await world.begin_segment(study_id, 0, 100)
    await world.finish_private(study_id)
    await world.tick(2)

    statement = (await world.client.get(f"/studies/{study_id}/statement")).json()

    for words in ["alone is of its class", "read in grey where"]:
        assert any(words in each for each in statement["assumptions"]) is (words in said)
    assert not any(check.is_bad for check in verify_statement(statement))


async def test_a_cancel_while_it_waits_for_approval_gives_all_back(world: World) -> None:
    before = await world.committed()
    study_id = await world.submit(search=GIVEN, promotion="manual")
    await world.tick(2)

    await world.client.post(f"/studies/{study_id}/cancel")
    await world.tick(2)

    assert (await world.study(study_id))["state"] == "cancelled"
    assert await world.committed() == before


async def test_its_speed_is_learnt_from(world: World) -> None:
    study_id = await world.submit(search=GIVEN)
    await world.tick(3)
    await world.begin_segment(study_id, 0, 100)
    await world.finish_private(study_id)
    await world.tick(2)

    again = await world.study(await world.submit(search=GIVEN))

    assert again["plan"]["cost"]["private_run_seconds"] is not None
    assert again["plan"]["cost"]["search_seconds"] == 0.0
