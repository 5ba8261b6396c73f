"""People decide at once and against each other while an orchestrator acts on it, and the ledger stays exact."""

import asyncio
import random
from typing import Any

import pytest
from sqlalchemy import select

from service.db.session import Database
from service.db.tables import AuditEvent, Run, Study
from service.ledger import repository
from service.ledger.service import Ledger
from tests.support.world import World

SCOPE = "dataset:digits"
SEARCHED = {
    "search": {"space": {"learning_rate": 1.0, "steps": {"choices": [50, 100]}}},
    "train": {"steps": "auto"},
}
"""What its winner needs is another mechanism than what was reserved."""
REQUESTS: tuple[tuple[str, str, Any], ...] = (
    *[("POST", "/studies/{study}/promote", None)] * 4,
    ("POST", "/studies/{study}/promote", {"trial": 0}),
    ("POST", "/studies/{study}/promote", {"trial": 9}),
    ("POST", "/studies/{study}/cancel", None),
    ("POST", "/studies/{study}/pause", None),
    *[("POST", "/studies/{study}/resume", None)] * 2,
    ("PUT", "/datasets/digits/caps/*", {"epsilon": 0}),
    *[("PUT", "/datasets/digits/caps/*", {"epsilon": 90.0})] * 2,
    ("PUT", "/datasets/digits/approval", {"approval": "required"}),
)


async def decide(world: World, studies: list[str], seed: int) -> set[int]:
    """Ask for twenty things in an order of one's own; the statuses of the answers."""
    chosen, answered = random.Random(seed), set[int]()
    for _ in range(20):
        method, path, body = chosen.choice(REQUESTS)
        path = path.format(study=chosen.choice(studies))
        answered.add((await world.client.request(method, path, json=body)).status_code)
        await asyncio.sleep(0)
    return answered


async def settle(world: World, studies: list[str]) -> None:
    """Lift the freeze, cancel everything, and let the drivers end."""
    await world.client.put("/datasets/digits/caps/*", json={"epsilon": 90.0})
    for study_id in studies:
        await world.client.post(f"/studies/{study_id}/cancel")
    for _ in range(4):
        await world.tick(1)
        for job in world.launcher.submitted:  # every driver hears of it and ends
            run_id, _, attempt = job.submission_id.rpartition("-a")
            answer = await world.client.get(f"/studies/{run_id.rpartition('-')[0]}")
            if answer.json()["state"] == "training" and run_id.endswith("-private"):
                await world.report(run_id, "POST", "/finish", int(attempt), outcome="cancelled")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_no_order_of_them_loses_or_spends_anything_unapproved(
    world: World, database: Database, seed: int
) -> None:
    await world.client.put("/datasets/digits/approval", json={"approval": "required"})
    world.settings = world.settings.model_copy(update={"max_running_studies": 3})
    studies = [await world.submit(name=f"s{n}", **SEARCHED) for n in range(3)]
    await world.tick(3)
    for study_id in studies:
        await world.finish_search(study_id, params={"learning_rate": 1.0, "steps": 50})

    deciding = [asyncio.create_task(decide(world, studies, 10 * seed + n)) for n in range(4)]
    await world.tick(12)
    for each in deciding:
        assert await each <= {200, 202, 409, 422}
    await world.tick(2)

    async with database.session() as session:
        assert (await Ledger().verify_chain(session, SCOPE)).is_valid
        held = await repository.reservations(session, SCOPE)
        rows = (await session.scalars(select(Study))).all()
        private = {
            run.study_id for run in await session.scalars(select(Run)) if run.kind == "private"
        }
        approved = {
            str(event.target).partition("/")[0]
            for event in await session.scalars(select(AuditEvent))
            if event.route.endswith("/promote") and event.status < 300
        }
    assert private <= approved
    assert all(row.state != "failed" for row in rows)
    is_open = {row.reservation_id for row in rows if row.state != "cancelled"}
    assert {each.reservation_id for each in held if each.state == "open"} == is_open

    await settle(world, studies)
    assert await world.committed() == 0.0  # nothing began, so all was given back
