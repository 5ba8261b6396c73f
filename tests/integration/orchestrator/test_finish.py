"""A search that is ended early: what it has found by then is promoted."""

from typing import Any

from service.orchestrator.launcher import JobStatus
from tests.integration.orchestrator.test_pause import heartbeat, pause
from tests.support.reports import completed_trial
from tests.support.world import World

STARTED = {"number": 1, "state": "running", "params": {"learning_rate": 2.0}}


async def finish(world: World, study_id: str, status: int = 202) -> dict[str, Any]:
    response = await world.client.post(f"/studies/{study_id}/finish")
    assert response.status_code == status, response.text
    return response.json()


async def simulating(world: World, **changes: Any) -> str:
    """A search one of whose trials has completed, and another one runs."""
    study_id = await world.submit(**changes)
    await world.tick(3)
    first = completed_trial(0, 0.7, 0.69, params={"learning_rate": 1.0})
    for number, trial in enumerate([first, STARTED]):
        await world.report(f"{study_id}-search", "PUT", f"/trials/{number}", trial=trial)
    return study_id


async def end_driver(world: World, study_id: str, fence: int = 1) -> None:
    await world.report(f"{study_id}-search", "POST", "/finish", fence, outcome="cancelled")
    world.launcher.end(f"{study_id}-search-a{fence}", JobStatus.SUCCEEDED, 0)


class TestFinish:
    async def test_the_driver_ends_as_one_that_pauses_and_the_best_is_promoted(
        self, world: World
    ) -> None:
        study_id = await simulating(world)
        assert (await finish(world, study_id))["search_ended_early"] is True
        await world.tick(1)

        assert await heartbeat(world, f"{study_id}-search") == "pause"
        shown = await world.study(study_id)
        assert shown["state"] == "simulating"
        assert shown["reason"] == "ending the search: the trials that run go on to their end"
        better = completed_trial(1, 0.8, 0.79, params={"learning_rate": 2.0})
        await world.report(f"{study_id}-search", "PUT", "/trials/1", trial=better)
        await end_driver(world, study_id)
        await world.tick(3)

        study = await world.study(study_id)
        assert (study["state"], study["promotion"]["trial"]) == ("training", 1)
        assert study["promotion"]["reason"].endswith(
            "; a user ended the search after 2 of 4 trials"
        )
        assert study["paused"] is False
        assert [job.submission_id[-9:] for job in world.launcher.submitted] == [
            "search-a1",
            "rivate-a1",
        ]

    async def test_its_attempt_was_told_to_end_and_did_not_fail(self, world: World) -> None:
        study_id = await simulating(world)
        await finish(world, study_id)
        await world.tick(1)
        await end_driver(world, study_id)
        await world.tick(2)

        (attempt,) = [
            each
            for each in (await world.client.get(f"/studies/{study_id}/attempts")).json()["items"]
            if each["run"] == "search"
        ]
        assert (attempt["paused"], attempt["reason"]) == (
            True,
            "the search was ended early by a user",
        )

    async def test_a_driver_that_dies_on_the_way_changes_nothing(self, world: World) -> None:
        study_id = await simulating(world)
        await finish(world, study_id)
        await world.tick(1)
        world.launcher.end(f"{study_id}-search-a1", JobStatus.FAILED, 137)
        await world.tick(3)

        study = await world.study(study_id)
        assert (study["state"], study["promotion"]["trial"]) == ("training", 0)
        trials = (await world.client.get(f"/studies/{study_id}/trials")).json()["items"]
        assert [trial["state"] for trial in trials] == ["completed", "interrupted"]

    async def test_a_paused_search_goes_on_to_the_private_run(self, world: World) -> None:
        study_id = await simulating(world)
        await pause(world, study_id)
        await world.tick(1)
        await end_driver(world, study_id)
        await world.tick(2)
        assert (await world.study(study_id))["reason"] == "paused by a user"

        await finish(world, study_id)
        await world.tick(3)

        study = await world.study(study_id)
        assert (study["state"], study["paused"]) == ("training", False)

    async def test_a_person_still_approves_where_one_has_to(self, world: World) -> None:
        study_id = await simulating(world, promotion="manual")
        await finish(world, study_id)
        await world.tick(1)
        await end_driver(world, study_id)
        await world.tick(3)

        study = await world.study(study_id)
        assert study["state"] == "awaiting_approval"
        assert "a user ended the search after 1 of 4 trials" in study["reason"]

    async def test_asking_twice_is_harmless_and_a_cancel_still_ends_it(self, world: World) -> None:
        study_id = await simulating(world)
        await finish(world, study_id)
        events = await world.events(study_id)
        await finish(world, study_id)
        assert len(await world.events(study_id)) == len(events)

        await world.client.post(f"/studies/{study_id}/cancel")
        await finish(world, study_id, status=409)
        await end_driver(world, study_id)
        await world.tick(3)
        assert (await world.study(study_id))["state"] == "cancelled"


class TestRefused:
    async def test_before_a_trial_has_completed_there_is_nothing_to_promote(
        self, world: World
    ) -> None:
        study_id = await world.submit()
        said = await finish(world, study_id, status=409)
        assert "is queued" in said["detail"]
        await world.tick(3)
        said = await finish(world, study_id, status=409)
        assert "no trial of study" in said["detail"]
        assert (await world.study(study_id))["search_ended_early"] is False

    async def test_after_the_search_it_is_too_late(self, world: World) -> None:
        study_id = await world.to_training()
        said = await finish(world, study_id, status=409)
        assert "is training" in said["detail"]
        assert (await world.client.post("/studies/s-0/finish")).status_code == 404

    async def test_how_many_charged_trials_there_are_is_for_no_score_to_decide(
        self, world: World
    ) -> None:
        study_id = await world.submit(
            search={"accounting": "accounted", "trials": 3, "rungs": [64]}
        )
        await world.tick(3)
        await world.charge_trial(study_id, 0)
        trial = completed_trial(0, 0.7, params={"learning_rate": 1.0})
        await world.report(f"{study_id}-search", "PUT", "/trials/0", trial=trial)
        said = await finish(world, study_id, status=409)
        assert "are charged (accounted)" in said["detail"]
