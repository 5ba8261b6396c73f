"""Every step may be taken twice: by a successor, or after an answer was lost."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import func, select, text

from service.db.session import Database
from service.db.tables import Attempt, Event, Run, Study
from service.orchestrator.launcher import Job, JobStatus, LauncherUnavailableError
from tests.support.launcher import MemoryLauncher
from tests.support.world import World

Scene = Callable[[World], Awaitable[str]]


async def queued_and_paused(world: World) -> str:
    study_id = await world.submit()
    await world.client.post(f"/studies/{study_id}/pause")
    return study_id


async def waiting(world: World) -> str:
    await world.submit()
    await world.tick(1)
    return await world.submit()


async def simulating(world: World) -> str:
    return await world.submit()


async def pausing(world: World) -> str:
    study_id = await world.submit()
    await world.tick(3)
    await world.client.post(f"/studies/{study_id}/pause")
    return study_id


async def suspended(world: World) -> str:
    study_id = await pausing(world)
    await world.tick(1)
    await world.report(f"{study_id}-search", "POST", "/finish", outcome="cancelled")
    return study_id


async def retried(world: World) -> str:
    study_id = await world.submit()
    await world.tick(3)
    world.launcher.end(f"{study_id}-search-a1", JobStatus.FAILED, 137)
    return study_id


async def awaiting_approval(world: World) -> str:
    study_id = await world.submit(promotion="manual")
    await world.tick(3)
    await world.finish_search(study_id)
    return study_id


async def training(world: World) -> str:
    study_id = await world.to_training()
    await world.begin_segment(study_id, 0, 2)
    return study_id


async def completed(world: World) -> str:
    return await world.trained()


async def cancelled(world: World) -> str:
    study_id = await training(world)
    await world.client.post(f"/studies/{study_id}/cancel")
    return study_id


async def failed(world: World) -> str:
    study_id = await world.submit()
    await world.tick(3)
    await world.report(
        f"{study_id}-search", "POST", "/finish", outcome="failed", reason="no", retryable=False
    )
    return study_id


SCENES = [
    queued_and_paused, waiting, simulating, pausing, suspended, retried, awaiting_approval, training,
    completed, cancelled, failed,
]  # fmt: skip


async def snapshot(database: Database, world: World) -> Any:
    """Everything that a step could change, but the lease."""
    async with database.session() as session:
        return (
            (
                await session.execute(select(Study.id, Study.state, Study.reason, Study.suspended))
            ).all(),
            (await session.execute(select(Run.id, Run.state, Run.reason))).all(),
            (
                await session.execute(
                    select(
                        Attempt.submission_id,
                        Attempt.state,
                        Attempt.reason,
                        Attempt.stop_requested_at,
                        Attempt.pause_requested_at,
                    ).order_by(Attempt.submission_id)
                )
            ).all(),
            await session.scalar(select(func.count()).select_from(Event)),
            await session.scalar(text("SELECT count(*) FROM ledger_entry")),
            [job.submission_id for job in world.launcher.submitted],
        )


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_once_a_study_stands_further_ticks_change_nothing(
    world: World, database: Database, scene: Scene
) -> None:
    await scene(world)
    await world.tick(5)
    before = await snapshot(database, world)

    await world.tick(2)

    assert await snapshot(database, world) == before


class Forgetful(MemoryLauncher):
    """Does what it is asked, and every other answer is lost on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def submit(self, job: Job) -> None:
        await super().submit(job)
        self._lose_every_other()

    async def stop(self, submission_id: str) -> None:
        await super().stop(submission_id)
        self._lose_every_other()

    def _lose_every_other(self) -> None:
        self.calls += 1
        if self.calls % 2:
            raise LauncherUnavailableError("the answer was lost")


async def test_a_lost_answer_of_the_cluster_starts_no_second_driver(world: World) -> None:
    world.launcher = Forgetful()
    study_id = await world.submit()
    await world.tick(5)
    assert [job.submission_id for job in world.launcher.submitted] == [f"{study_id}-search-a1"]

    await world.client.post(f"/studies/{study_id}/cancel")
    await world.tick(4)

    assert (await world.study(study_id))["state"] == "cancelled"
    assert len(world.launcher.submitted) == 1
