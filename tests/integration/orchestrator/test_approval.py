"""A dataset whose owner lets no private run begin that nobody has approved."""

import pytest
from sqlalchemy import select

from service.db.session import Database
from service.db.tables import AuditEvent
from tests.fixtures.api import make_spec
from tests.support.world import World


async def require(world: World, approval: str = "required") -> None:
    answer = await world.client.put("/datasets/digits/approval", json={"approval": approval})
    assert (answer.status_code, answer.json()["approval"]) == (200, approval), answer.text


async def searched(world: World, study_id: str) -> dict:
    """The study after its search has ended and the orchestrator has looked at it."""
    await world.tick(3)
    await world.finish_search(study_id)
    await world.tick(3)
    return await world.study(study_id)


async def test_a_study_that_would_go_on_by_itself_waits(world: World) -> None:
    await require(world)
    study_id = await world.submit(promotion="automatic")
    assert (await world.study(study_id))["approval"] == "required"

    waiting = await searched(world, study_id)

    assert waiting["state"] == "awaiting_approval"
    assert waiting["reason"].startswith("waiting for tan-cli promote, as dataset digits requires: ")
    assert waiting["approval"] == "required"
    assert waiting["privacy"]["charged_steps"] == 0
    await world.client.post(f"/studies/{study_id}/promote")
    await world.tick(2)
    approved = await world.study(study_id)
    assert (approved["state"], approved["approval"]) == ("training", None)
    assert approved["promotion"]["by"] == "user"


async def test_it_holds_for_studies_whose_private_run_has_not_begun(world: World) -> None:
    study_id = await world.submit()
    assert (await world.study(study_id))["approval"] == "automatic"
    await world.tick(3)
    await require(world)

    await world.finish_search(study_id)
    await world.tick(3)

    assert (await world.study(study_id))["state"] == "awaiting_approval"


async def test_what_waits_goes_on_waiting_and_the_next_does_not(world: World) -> None:
    await require(world)
    first = await world.submit()
    await searched(world, first)
    await require(world, "automatic")

    second = await world.submit()

    assert (await searched(world, second))["state"] == "training"
    waiting = await world.study(first)
    assert (waiting["state"], waiting["approval"]) == ("awaiting_approval", "required")


async def test_a_search_of_private_trials_waits_before_the_first_of_them(world: World) -> None:
    """Each trial is a private run: nothing is charged that nobody has approved."""
    await require(world)
    study_id = await world.submit(
        search={"accounting": "accounted", "trials": 3, "rungs": [64]}, promotion="automatic"
    )
    await world.tick(3)

    waiting = await world.study(study_id)
    assert waiting["state"] == "awaiting_approval"
    assert "each trial of the search is a private run" in waiting["reason"]
    assert not waiting["run"]
    assert world.launcher.jobs == {}
    page = (await world.client.get(f"/ui/studies/{study_id}")).text
    assert "Approve the search" in page
    named = await world.client.post(f"/studies/{study_id}/promote", json={"trial": 0})
    assert named.status_code == 422

    approved = await world.client.post(f"/studies/{study_id}/promote")
    assert approved.status_code == 202, approved.text
    await world.tick(3)
    assert (await world.study(study_id))["state"] == "simulating"
    await world.finish_search(study_id, is_charged=True)
    await world.tick(3)
    again = await world.study(study_id)
    assert again["state"] == "awaiting_approval"
    assert again["promotion"]["approved_by"] is None
    await world.client.post(f"/studies/{study_id}/promote")
    await world.tick(2)
    assert (await world.study(study_id))["state"] == "training"


async def test_a_search_that_waited_begins_once_and_may_be_cancelled(world: World) -> None:
    await require(world)
    study_id = await world.submit(search={"accounting": "accounted", "trials": 3, "rungs": [64]})
    await world.tick(3)
    await world.client.post(f"/studies/{study_id}/cancel")
    await world.tick(2)

    study = await world.study(study_id)
    assert (study["state"], study["privacy"]["epsilon"]) == ("cancelled", 0.0)
    assert await world.committed() == 0.0


async def test_a_plan_says_that_such_a_search_waits(world: World) -> None:
    await require(world)
    spec = make_spec(search={"accounting": "accounted", "trials": 3, "rungs": [64]})
    plan = (await world.client.post("/plans", json=spec)).json()
    assert any("before its search, and once more after it" in each for each in plan["warnings"])


@pytest.mark.slow
async def test_what_trains_goes_on(world: World) -> None:
    study_id = await world.to_training()
    await require(world)
    await world.begin_segment(study_id, 0, 100)
    await world.finish_private(study_id)
    await world.tick(3)
    assert (await world.study(study_id))["state"] == "completed"


async def test_a_plan_says_so_before_anything_is_submitted(world: World) -> None:
    async def warnings(**changes: str) -> list[str]:
        plan = await world.client.post("/plans", json=make_spec(**changes))
        return [one for one in plan.json()["warnings"] if "approves" in one]

    assert await warnings() == []
    await require(world)
    [told] = await warnings()
    assert told.startswith("dataset 'digits' requires that a person approves every private run")
    assert await warnings(promotion="manual") == []
    study_id = await world.submit()  # whose plan is what it was submitted with, for ever
    assert not any("approves" in one for one in (await world.study(study_id))["plan"]["warnings"])


async def test_the_audit_says_what_it_became(world: World, database: Database) -> None:
    await require(world)
    await require(world, "automatic")
    async with database.session() as session:
        rows = (await session.scalars(select(AuditEvent).order_by(AuditEvent.id))).all()
    assert [(row.route, row.target, row.status) for row in rows] == [
        ("/datasets/{name}/approval", "digits/approval/required", 200),
        ("/datasets/{name}/approval", "digits/approval/automatic", 200),
    ]


async def test_the_ledger_stays_whole(world: World) -> None:
    """What a budget was opened for is in its first entry; this may change, so it is not."""
    await require(world)
    assert (await world.client.get("/datasets/digits/ledger/verify")).json()["is_valid"]


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("digits", {"approval": "manual"}, 422),
        ("digits", {"approval": None}, 422),
        ("digits", {}, 422),
        ("digits", {"approval": "required", "by": "me"}, 422),
        ("digits", ["required"], 422),
        ("nothing", {"approval": "required"}, 404),
        ("a%00b", {"approval": "required"}, 404),
        ("x" * 5000, {"approval": "required"}, 404),
    ],
)
async def test_what_is_no_rule_is_refused(
    world: World, name: str, body: object, status: int
) -> None:
    answer = await world.client.put(f"/datasets/{name}/approval", json=body)
    assert answer.status_code == status, answer.text
    assert (await world.client.get("/datasets/digits")).json()["approval"] == "automatic"
