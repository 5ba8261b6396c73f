"""A study that rests: what stops, what stays, and what it costs."""

from typing import Any

import pytest

from service.db.session import Database
from service.db.tables import Attempt
from service.orchestrator.launcher import JobStatus
from tests.support.world import World


async def pause(world: World, study_id: str) -> dict[str, Any]:
    response = await world.client.post(f"/studies/{study_id}/pause")
    assert response.status_code == 202, response.text
    return response.json()


async def resume(world: World, study_id: str) -> dict[str, Any]:
    response = await world.client.post(f"/studies/{study_id}/resume")
    assert response.status_code == 202, response.text
    return response.json()


async def heartbeat(world: World, run_id: str, fence: int = 1) -> str:
    return (await world.report(run_id, "POST", "/heartbeat", fence))["desired"]


async def end_segment(world: World, study_id: str, grant: dict[str, Any], step: int) -> None:
    checkpoint = {
        "step": step,
        "path": str(world.settings.storage_path / f"{study_id}-private" / f"step-{step}"),
        "sha256": "ab" * 32,
    }
    await world.report(
        f"{study_id}-private", "POST", f"/segments/{grant['segment']}/end", checkpoint=checkpoint
    )


async def rest(world: World, study_id: str, run: str, fence: int = 1) -> None:
    """Pause a study whose driver runs; the driver hears of it and ends."""
    await pause(world, study_id)
    await world.tick(1)
    run_id = f"{study_id}-{run}"
    assert await heartbeat(world, run_id, fence) == "pause"
    await world.report(run_id, "POST", "/finish", fence, outcome="cancelled")
    world.launcher.end(f"{run_id}-a{fence}", JobStatus.SUCCEEDED, 0)
    await world.tick(1)


class TestPause:
    async def test_a_queued_study_does_not_start_until_it_is_resumed(self, world: World) -> None:
        study_id = await world.submit()
        shown = await pause(world, study_id)
        assert (shown["paused"], shown["queue_position"]) == (True, None)
        await world.tick(2)
        study = await world.study(study_id)
        assert (study["state"], study["reason"]) == ("queued", "paused by a user")

        await resume(world, study_id)
        await world.tick(2)

        assert (await world.study(study_id))["state"] == "simulating"

    async def test_a_search_ends_without_a_kill_and_goes_on_with_another_driver(
        self, world: World
    ) -> None:
        study_id = await world.submit()
        await world.tick(3)
        await rest(world, study_id, "search")

        study = await world.study(study_id)
        assert (study["state"], study["reason"]) == ("simulating", "paused by a user")
        assert world.launcher.stopped == []
        told = (await world.events(study_id))[-1]
        assert (told["kind"], told["paused"], told["reason"]) == ("state", True, study["reason"])
        await world.tick(3)
        assert len(world.launcher.submitted) == 1

        await resume(world, study_id)
        await world.tick(2)

        assert [job.submission_id[-3:] for job in world.launcher.submitted] == ["-a1", "-a2"]
        study = await world.study(study_id)
        assert (study["paused"], study["reason"]) == (False, None)

    async def test_its_slot_is_free_and_it_waits_in_line_for_another(self, world: World) -> None:
        first, second = await world.submit(), await world.submit()
        await world.tick(3)
        await rest(world, first, "search")
        await world.tick(1)
        assert (await world.study(second))["state"] == "simulating"

        await resume(world, first)
        await world.tick(2)

        waiting = await world.study(first)
        assert (waiting["state"], waiting["queue_position"]) == ("simulating", 1)
        assert waiting["reason"] == "waiting for a free slot, 1st in line"
        await world.client.post(f"/studies/{second}/cancel")
        await world.tick(6)
        assert world.launcher.submitted[-1].submission_id == f"{first}-search-a2"

    @pytest.mark.slow
    async def test_pauses_are_no_failures_however_many(self, world: World) -> None:
        study_id = await world.submit()
        await world.tick(2)
        for fence in range(1, world.settings.max_attempts + 2):
            await rest(world, study_id, "search", fence)
            await resume(world, study_id)
            await world.tick(2)

        assert (await world.study(study_id))["state"] == "simulating"

    async def test_a_private_run_repeats_no_step_that_was_charged(self, world: World) -> None:
        study_id = await world.to_training()
        grant = await world.begin_segment(study_id, 0, 10)
        await pause(world, study_id)
        await world.tick(1)
        run_id = f"{study_id}-private"
        assert await heartbeat(world, run_id) == "pause"
        await end_segment(world, study_id, grant, 10)
        await world.report(run_id, "POST", "/finish", outcome="cancelled")
        await world.tick(1)
        committed = await world.committed()

        await resume(world, study_id)
        await world.tick(2)

        study = await world.study(study_id)
        assert study["privacy"]["charged_steps"] == 10
        assert await world.committed() == committed
        assert (await world.begin_segment(study_id, 10, 90, fence=2))["num_steps"] == 90
        assert (await world.study(study_id))["privacy"]["charged_steps"] == 100

    async def test_what_a_killed_driver_had_begun_is_charged_again(self, world: World) -> None:
        study_id = await world.to_training()
        await world.begin_segment(study_id, 0, 2)
        await pause(world, study_id)
        await world.tick(1)
        world.launcher.end(f"{study_id}-private-a1", JobStatus.FAILED, 137)
        await world.tick(2)

        await resume(world, study_id)
        await world.tick(2)
        await world.begin_segment(study_id, 0, 2, fence=2)

        assert (await world.study(study_id))["privacy"]["charged_steps"] == 4

    async def test_a_study_that_is_promoted_meanwhile_waits(self, world: World) -> None:
        study_id = await world.submit(promotion="manual")
        await world.tick(3)
        await world.finish_search(study_id)
        await world.tick(2)
        await pause(world, study_id)
        await world.client.post(f"/studies/{study_id}/promote", json={})
        await world.tick(2)
        assert (await world.study(study_id))["state"] == "awaiting_approval"

        await resume(world, study_id)
        await world.tick(2)

        assert (await world.study(study_id))["state"] == "training"

    async def test_an_end_that_came_first_counts(self, world: World) -> None:
        study_id = await world.submit()
        await world.tick(3)
        await pause(world, study_id)
        await world.finish_search(study_id)

        await world.tick(4)

        study = await world.study(study_id)
        assert (study["state"], study["reason"]) == ("training", "paused by a user")
        assert len(world.launcher.submitted) == 1

    async def test_a_resume_before_the_driver_ended_starts_none_beside_it(
        self, world: World, database: Database
    ) -> None:
        study_id = await world.submit()
        await world.tick(3)
        await pause(world, study_id)
        await world.tick(1)
        await resume(world, study_id)
        await world.tick(2)
        assert len(world.launcher.submitted) == 1

        await world.report(f"{study_id}-search", "POST", "/finish", outcome="cancelled")
        await world.tick(2)

        assert len(world.launcher.submitted) == 2
        async with database.session() as session:
            attempt = await session.get_one(Attempt, (f"{study_id}-search", 1))
        assert attempt.pause_requested_at is not None
        assert attempt.reason == "paused by a user"

    async def test_one_that_came_too_late_is_not_shown(self, world: World) -> None:
        study_id = await world.trained()
        await pause(world, study_id)

        await world.tick(3)

        study = await world.study(study_id)
        assert (study["state"], study["paused"]) == ("completed", False)


class TestCancelWhilePaused:
    @pytest.mark.parametrize("state", ["queued", "simulating", "training", "awaiting_approval"])
    async def test_it_ends_and_gives_back_what_never_began(self, world: World, state: str) -> None:
        free = await world.committed()
        manual = {"promotion": "manual"} if state == "awaiting_approval" else {}
        study_id = await world.submit(**manual)
        if state != "queued":
            await world.tick(3)
        if state in ("training", "awaiting_approval"):
            await world.finish_search(study_id)
            await world.tick(3)
        if state in ("simulating", "training"):
            await rest(world, study_id, "search" if state == "simulating" else "private")
        else:
            await pause(world, study_id)
        assert (await world.study(study_id))["state"] == state

        await world.client.post(f"/studies/{study_id}/cancel")
        await world.tick(3)

        assert (await world.study(study_id))["state"] == "cancelled"
        assert await world.committed() == free

    async def test_what_has_ended_or_is_about_to_can_neither_pause_nor_resume(
        self, world: World
    ) -> None:
        study_id = await world.submit()
        await world.client.post(f"/studies/{study_id}/cancel")
        for verb in ("pause", "resume"):
            refused = await world.client.post(f"/studies/{study_id}/{verb}")
            assert (refused.status_code, "being cancelled" in refused.text) == (409, True)
        await world.tick(1)
        for verb in ("pause", "resume"):
            refused = await world.client.post(f"/studies/{study_id}/{verb}")
            assert (refused.status_code, f"nothing to {verb}" in refused.text) == (409, True)
