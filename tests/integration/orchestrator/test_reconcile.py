"""The reconciler on a real database; the cluster is in memory and the test plays the drivers."""

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import select, update

from service.db.session import Database
from service.db.tables import Attempt, Event, Run, Study, Trial
from service.ledger import repository as ledger
from service.ledger.service import Ledger
from service.orchestrator import claims, endings, reconcile
from service.orchestrator.decide import FIRST_PAUSE, OTHER_VERSION, STOP_GRACE, UNREACHED
from service.orchestrator.launcher import JobStatus
from service.statements.verify import verify_statement
from tan_core.errors import AccountantError, ParameterError
from tests.fixtures.api import driver_headers, register_table
from tests.fixtures.postgres import DatabaseUrls
from tests.support.reports import completed_trial, make_score, make_trial
from tests.support.world import LEASE, World, always_heard


class TestTheWayOfAStudy:
    async def test_it_is_searched_promoted_trained_and_stated(self, world: World) -> None:
        study_id = await world.trained()
        assert [job.module for job in world.launcher.submitted] == [
            "worker.simulate",
            "worker.train",
        ]
        await world.tick(2)

        study = await world.study(study_id)
        assert study["state"] == "completed"
        assert study["run"]["trial"] == 1
        assert study["privacy"]["charged_steps"] == 100
        assert (await world.client.get(f"/studies/{study_id}/statement")).status_code == 200

    @pytest.mark.slow
    async def test_a_cap_on_batches_reaches_the_run_the_ledger_and_the_statement(
        self, world: World, tmp_path: Path
    ) -> None:
        await register_table(
            world.client,
            tmp_path,
            epsilon=10.0,
            delta=1e-3,
            waiver="me: mine",
            neighboring_relation="zero_out",
        )

        study_id = await world.trained(
            dataset="table", train={"batch_size": 16, "max_batch_size": 24}
        )
        await world.tick(2)

        study = await world.study(study_id)
        assert study["state"] == "completed", study["reason"]
        assert study["plan"]["reference"]["max_batch_size"] == 24
        statement = (await world.client.get(f"/studies/{study_id}/statement")).json()
        assert [event["max_batch_size"] for event in statement["events"]] == [24]
        assert statement["privacy"]["epsilon"] == study["privacy"]["epsilon"] <= 3.0
        assert not any(check.is_bad for check in verify_statement(statement))

    async def test_ticks_that_find_nothing_to_do_submit_nothing_again(self, world: World) -> None:
        await world.submit()

        await world.tick(6)

        assert len(world.launcher.submitted) == 1

    async def test_only_so_many_studies_run_at_a_time(self, world: World) -> None:
        first, second = await world.submit(), await world.submit()

        await world.tick(3)

        assert (await world.study(first))["state"] == "simulating"
        waiting = await world.study(second)
        assert waiting["state"] == "queued"
        assert (waiting["reason"] or "").startswith("waiting for a free slot")

    async def test_the_promoted_candidate_is_what_the_ledger_holds(self, world: World) -> None:
        study_id = await world.submit(
            search={"space": {"learning_rate": 1.0, "steps": {"choices": [50, 100]}}},
            train={"steps": "auto"},
        )
        await world.tick(3)
        await world.finish_search(study_id, params={"learning_rate": 1.0, "steps": 50})
        before = await world.committed()

        await world.tick(2)

        study = await world.study(study_id)
        assert study["state"] == "training"
        assert study["run"]["steps"] == 50
        assert study["privacy"]["reserved_steps"] == 52
        assert await world.committed() == pytest.approx(before, rel=0.05)

    async def test_a_manual_promotion_waits_for_a_person(self, world: World) -> None:
        study_id = await world.submit(promotion="manual")
        await world.tick(3)
        await world.finish_search(study_id)
        await world.tick(3)
        assert (await world.study(study_id))["state"] == "awaiting_approval"

        await world.client.post(f"/studies/{study_id}/promote", json={"trial": 2})
        await world.tick(2)

        study = await world.study(study_id)
        assert (study["state"], study["run"]["trial"]) == ("training", 2)


class TestPromotion:
    @pytest.mark.parametrize(
        ("params", "told"),
        [
            ({"learning_rate": 1.0, "clip_norm": 9.0}, "'clip_norm', which is not in search.space"),
            ({"learning_rate": "x"}, "learning_rate: Input should be a valid number"),
            ({"learning_rate": -1.0}, "learning_rate: Input should be greater than 0"),
        ],
    )
    async def test_what_no_study_may_ask_for_is_not_trained_because_a_driver_says_so(
        self, world: World, params: dict[str, Any], told: str
    ) -> None:
        """Of a kind that ends the study: else it would hold its slot for ever, and a cancel would not be heard."""
        study_id = await world.submit()
        await world.tick(3)
        await world.finish_search(study_id, params=params)

        with pytest.raises(ParameterError, match=told):
            await world.tick()

    async def test_the_search_promotes_what_fresh_seeds_confirmed(self, world: World) -> None:
        study_id = await world.submit()
        await world.tick(3)
        run_id = f"{study_id}-search"
        lucky, steady = completed_trial(0, 0.95, 0.94), completed_trial(1, 0.92, 0.91)
        lucky["repeats"] = [make_score(0, 0.81, seed=1), make_score(1, 0.80, seed=1)]
        steady["repeats"] = [make_score(0, 0.91, seed=1), make_score(1, 0.90, seed=1)]
        unrepeated = completed_trial(2, 0.93, 0.92)
        for trial in (lucky, steady, unrepeated):
            await world.report(run_id, "PUT", f"/trials/{trial['number']}", trial=trial)
        await world.report(run_id, "POST", "/finish", outcome="succeeded")
        await world.tick(1)

        study = await world.study(study_id)

        assert study["state"] == "training"
        assert study["best_trial"]["number"] == study["run"]["trial"] == 1
        promotion, prediction = study["promotion"], study["prediction"]
        assert (promotion["trial"], promotion["by"]) == (1, "search")
        assert [each["trial"] for each in promotion["standings"]] == [1, 0, 2]
        assert [each["is_fresh"] for each in promotion["standings"]] == [True, True, False]
        assert (prediction["trial"], prediction["seeds"], prediction["is_fresh"]) == (1, 2, True)
        assert prediction["expected_batch_size"] == 256
        assert prediction["low"] < prediction["accuracy"] < prediction["high"]
        assert prediction["accuracy"] == pytest.approx(0.89, abs=0.01)  # B = 16, 64 and then 256
        assert prediction["reached"] is prediction["error"] is prediction["inside"] is None

    async def test_the_interval_holds_the_sampling_error_of_both_splits(
        self, world: World, database_urls: DatabaseUrls
    ) -> None:
        widths: list[float] = []
        for num_test in (359, 10):
            with psycopg.connect(database_urls.owner) as connection:
                connection.execute("UPDATE dataset SET num_test = %s", (num_test,))
            study_id = await world.submit(promotion="manual")
            await world.tick(3)
            await world.finish_search(study_id)
            await world.tick(1)
            prediction = (await world.study(study_id))["prediction"]
            widths.append(prediction["high"] - prediction["low"])
            await world.client.post(f"/studies/{study_id}/cancel")
            await world.tick(1)
        assert widths[1] > 1.5 * widths[0]

    async def test_a_manual_study_waits_with_its_prediction_shown(self, world: World) -> None:
        study_id = await world.submit(promotion="manual")
        await world.tick(3)
        await world.finish_search(study_id)
        await world.tick(2)

        study = await world.study(study_id)

        assert study["state"] == "awaiting_approval"
        assert (study["promotion"]["trial"], study["promotion"]["by"]) == (1, None)
        assert study["best_trial"]["number"] == study["prediction"]["trial"] == 1
        assert study["reason"] == f"waiting for tan-cli promote: {study['promotion']['reason']}"

    @pytest.mark.parametrize("body", [{}, {"trial": 1}])
    async def test_who_approves_the_proposal_keeps_its_reason(
        self, world: World, body: dict[str, int]
    ) -> None:
        study_id = await world.submit(promotion="manual")
        await world.tick(3)
        await world.finish_search(study_id)
        await world.tick(1)
        proposed = (await world.study(study_id))["promotion"]
        assert proposed.pop("approved_by") is None
        await world.client.post(f"/studies/{study_id}/promote", json=body)
        await world.tick(1)

        study = await world.study(study_id)

        approval = study["promotion"].pop("approved_by")
        assert study["promotion"] == {**proposed, "by": "user"}
        assert (approval["name"], approval["trial"]) == ("local", proposed["trial"])
        assert (study["state"], study["run"]["trial"]) == ("training", 1)

    async def test_another_choice_is_written_down_beside_the_proposal(
        self, world: World, database: Database
    ) -> None:
        study_id = await world.submit(promotion="manual")
        await world.tick(3)
        await world.finish_search(study_id)
        await world.tick(1)
        proposed = (await world.study(study_id))["promotion"]
        assert proposed.pop("approved_by") is None
        await world.client.post(f"/studies/{study_id}/promote", json={"trial": 0})
        await world.tick(1)

        study = await world.study(study_id)

        reason = f"trial 0 chosen by a user; the search proposed: {proposed['reason']}"
        approval = study["promotion"].pop("approved_by")
        changed = {"trial": 0, "by": "user", "reason": reason}
        assert study["promotion"] == {**proposed, **changed}
        assert (approval["name"], approval["trial"]) == ("local", 0)
        assert study["best_trial"]["number"] == study["prediction"]["trial"] == 0
        standing = next(each for each in proposed["standings"] if each["trial"] == 0)
        assert study["prediction"]["accuracy"] == standing["accuracy"]
        assert await state_reasons(database, study_id) == {
            "simulating": None,
            "awaiting_approval": f"waiting for tan-cli promote: {proposed['reason']}",
            "training": reason,
        }

    async def test_a_choice_that_no_law_can_tell_of_has_no_prediction(self, world: World) -> None:
        study_id = await world.submit(promotion="manual")
        await world.tick(3)
        gave_up = completed_trial(5, 0.9, 0.9, repeats=[make_score(0, None, seed=1)])
        await world.report(f"{study_id}-search", "PUT", "/trials/5", trial=gave_up)
        await world.finish_search(study_id)
        await world.tick(1)
        await world.client.post(f"/studies/{study_id}/promote", json={"trial": 5})
        await world.tick(1)

        study = await world.study(study_id)

        assert (study["state"], study["run"]["trial"]) == ("training", 5)
        assert (study["promotion"]["trial"], study["promotion"]["by"]) == (5, "user")
        assert 5 not in [each["trial"] for each in study["promotion"]["standings"]]
        assert study["prediction"] is None

    @pytest.mark.parametrize("promotion", ["automatic", "manual"])
    async def test_over_budget_it_waits_and_nothing_is_lost(
        self, world: World, promotion: str
    ) -> None:
        study_id = await world.submit(
            search={"space": {"learning_rate": 1.0, "steps": {"choices": [50, 100]}}},
            train={"steps": "auto"},
            promotion=promotion,
        )
        committed = await world.committed()
        await world.tick(3)
        await world.finish_search(study_id, params={"learning_rate": 1.0, "steps": 50})
        await world.client.put("/datasets/digits/caps/*", json={"epsilon": 0})
        await world.tick(1)
        if promotion == "manual":
            await world.client.post(f"/studies/{study_id}/promote")
            await world.tick(1)

        study = await world.study(study_id)
        assert study["state"] == "awaiting_approval"
        assert study["reason"].startswith("over budget at promotion: over the cap of all tenants")
        assert study["reason"].endswith(
            "raise it (tan-cli ledger cap), then tan-cli promote, or promote another trial (--trial)"
        )
        assert (study["promotion"]["trial"], study["promotion"]["by"]) == (1, None)
        assert study["promotion"]["approved_by"] is None
        assert study["run"] is None
        assert (await world.events(study_id))[-1]["reason"] == study["reason"]
        assert await world.committed() == committed
        await world.tick(2)
        assert (await world.study(study_id))["reason"] == study["reason"]

        await world.client.put("/datasets/digits/caps/*", json={"epsilon": 90.0})
        await world.client.post(f"/studies/{study_id}/promote")
        await world.tick(1)
        assert (await world.study(study_id))["state"] == "training"
        assert (await world.client.get("/datasets/digits/ledger/verify")).json()["is_valid"]

    async def test_trials_that_gave_up_under_fresh_seeds_are_not_promoted(
        self, world: World
    ) -> None:
        study_id = await world.submit()
        await world.tick(3)
        run_id = f"{study_id}-search"
        trial = completed_trial(0, 0.9, 0.9)
        trial["repeats"] = [make_score(0, None, seed=1)]
        await world.report(run_id, "PUT", "/trials/0", trial=trial)
        await world.report(run_id, "POST", "/finish", outcome="succeeded")
        await world.tick(1)

        study = await world.study(study_id)

        assert study["state"] == "failed"
        assert study["reason"].startswith("every completed trial was given up under a fresh seed")

    async def test_a_completed_study_is_measured_against_its_prediction(self, world: World) -> None:
        study_id = await world.trained()
        await world.tick(2)

        study = await world.study(study_id)
        (item,) = (await world.client.get("/calibration")).json()["items"]

        prediction = study["prediction"]
        assert prediction["reached"] == 0.9
        assert prediction["error"] == pytest.approx(0.9 - prediction["accuracy"])
        assert (item["study"], item["trial"], item["inside"]) == (study_id, 1, prediction["inside"])
        assert item["epsilon"] == study["privacy"]["epsilon"]


async def state_reasons(database: Database, study_id: str) -> dict[str, str | None]:
    """The reason in each state's event, but the first."""
    async with database.session() as session:
        events = await session.scalars(
            select(Event.data)
            .where(Event.study_id == study_id, Event.kind == "state", Event.seq > 1)
            .order_by(Event.seq)
        )
        return {event["state"]: event["reason"] for event in events}


async def test_attempts_are_told_as_attempts_of_their_run(world: World) -> None:
    study_id = await world.to_training()

    told = [event for event in await world.events(study_id) if "run" in event]

    assert {event["kind"] for event in told} == {"attempt"}
    assert [(event["run_kind"], event["attempt"], event["state"]) for event in told] == [
        ("search", 1, "live"),
        ("search", 1, "succeeded"),
        ("private", 1, "live"),
    ]


class TestDeadDrivers:
    async def test_a_driver_that_died_is_followed_by_another_that_keeps_finished_trials(
        self, world: World, database: Database
    ) -> None:
        study_id = await world.submit()
        await world.tick(3)
        run_id = f"{study_id}-search"
        done = {"number": 0, "state": "completed", "params": {"learning_rate": 1.0}, "value": 0.5}
        running = {"number": 1, "state": "running", "params": {"learning_rate": 2.0}}
        await world.report(run_id, "PUT", "/trials/0", trial=done)
        await world.report(run_id, "PUT", "/trials/1", trial=running)
        world.launcher.end(f"{run_id}-a1", JobStatus.FAILED, 137)

        await world.tick(3)

        assert [job.submission_id for job in world.launcher.submitted] == [
            f"{run_id}-a1",
            f"{run_id}-a2",
        ]
        async with database.session() as session:
            states = await session.scalars(select(Trial.state).order_by(Trial.number))
            lost = await session.get_one(Attempt, (run_id, 1))
        assert list(states) == ["completed", "interrupted"]
        assert lost.reason == "the driver ended with exit code 137 without a final report (failed)"

    @pytest.mark.parametrize("wish", ["cancel", "pause", None])
    async def test_no_trial_runs_without_a_driver_where_no_other_one_follows(
        self, world: World, wish: str | None
    ) -> None:
        study_id = await world.submit()
        await world.tick(3)
        run_id = f"{study_id}-search"
        running = {"number": 0, "state": "running", "params": {"learning_rate": 2.0}}
        for attempt in range(1, 2 if wish else world.settings.max_attempts + 1):
            await world.report(run_id, "PUT", "/trials/0", attempt, trial=running)
            world.launcher.end(f"{run_id}-a{attempt}", JobStatus.FAILED, 137)
            if wish:
                await world.client.post(f"/studies/{study_id}/{wish}")
            await world.tick(3)

        study = await world.study(study_id)
        ended = {"cancel": "cancelled", "pause": "simulating", None: "failed"}
        assert (study["state"], study["progress"]["trials_running"]) == (ended[wish], 0)
        (trial,) = (await world.client.get(f"/studies/{study_id}/trials")).json()["items"]
        assert (trial["state"], trial["reason"]) == ("interrupted", "its driver died")
        told = [each for each in await world.events(study_id) if each["kind"] == "trial"]
        assert told[-1]["trial"]["state"] == "interrupted"

    async def test_a_driver_that_an_exception_ended_says_which_without_its_frames(
        self, world: World
    ) -> None:
        study_id = await world.submit()
        await world.tick(3)
        job = f"{study_id}-search-a1"
        world.launcher.logs[job] = (
            "Traceback (most recent call last):\n"
            '  File "worker/simulate.py", line 9, in <module>\n'
            "    import ray\n"
            "ModuleNotFoundError: No module named 'ray'\n"
        )
        world.launcher.end(job, JobStatus.FAILED, 1)

        await world.tick(1)

        attempts = (await world.client.get(f"/studies/{study_id}/attempts")).json()["items"]
        assert attempts[0]["reason"] == (
            "the driver ended with exit code 1 without a final report (failed): "
            "ModuleNotFoundError: No module named 'ray'"
        )

    @pytest.mark.parametrize(
        ("said", "told"),
        [
            (
                "Unexpected error occurred: 1 worker(s) were killed due to the node running low on memory.\n"
                "Object store memory usage: [- objects spillable: 0",
                "Unexpected error occurred: 1 worker(s) were killed due to the node running low on memory.",
            ),
            (
                "\nTraceback (most recent call last):\n  File 'x'\nOSError: no such folder\n",
                "OSError: no such folder",
            ),
            ("a" * 20_000, "a" * 300),
            ("no runtime: Bearer abcdefgh12345678", "no runtime: Bearer ***"),
            (f"{'a' * 288} Bearer abcdefgh12345678", f"{'a' * 288} Bearer ***"),
        ],
    )
    async def test_what_ray_ended_or_never_began_has_a_line_of_what_ray_says(
        self, world: World, said: str, told: str
    ) -> None:
        study_id = await world.submit()
        await world.tick(3)
        world.launcher.end(f"{study_id}-search-a1", JobStatus.FAILED, None, said)

        await world.tick(1)

        (first, *_) = (await world.client.get(f"/studies/{study_id}/attempts")).json()["items"]
        assert first["reason"] == f"the driver ended without a final report (failed): {told}"

    async def test_the_log_that_ray_adds_to_an_exit_code_is_no_reason(self, world: World) -> None:
        study_id = await world.submit()
        await world.tick(3)
        job = f"{study_id}-search-a1"
        world.launcher.end(job, JobStatus.FAILED, 1, "failed with exit code 1, logs:\nsecret")

        await world.tick(1)

        (first, *_) = (await world.client.get(f"/studies/{study_id}/attempts")).json()["items"]
        assert (
            first["reason"] == "the driver ended with exit code 1 without a final report (failed)"
        )

    async def test_a_silent_driver_is_named_so_and_not_by_how_it_was_stopped(
        self, world: World, database: Database
    ) -> None:
        study_id = await world.submit()
        await world.tick(3)
        world.launcher.logs[f"{study_id}-search-a1"] = (
            "Traceback (most recent call last):\n"
            '  File "httpcore/_backends/sync.py", line 128, in read\n'
            "    return self._sock.recv(max_bytes)\n"
            "httpx.ReadError: cut off\n"
            "KeyboardInterrupt\n"
        )
        async with database.session() as session:
            attempt = (await session.scalars(select(Attempt))).one()
            attempt.submitted_at = attempt.created_at - timedelta(hours=1)

        await world.tick(2)

        attempts = (await world.client.get(f"/studies/{study_id}/attempts")).json()["items"]
        assert attempts[0]["state"] == "lost"
        assert re.fullmatch(r"the driver sent no heartbeat for 36\d\d s", attempts[0]["reason"])

    async def test_a_run_that_keeps_dying_fails_and_gives_its_budget_back(
        self, world: World
    ) -> None:
        free = await world.committed()
        study_id = await world.submit()
        for number in range(1, world.settings.max_attempts + 1):
            await world.tick(3)
            world.launcher.end(f"{study_id}-search-a{number}", JobStatus.FAILED, 1)
        await world.tick(3)

        study = await world.study(study_id)
        assert study["state"] == "failed"
        assert "gave up after 5 attempts in vain" in study["reason"]
        assert study["error"]["reason"] == study["reason"]
        assert await world.committed() == free

    async def test_between_attempts_without_progress_there_is_a_pause_that_says_why(
        self, world: World, database: Database
    ) -> None:
        world.first_pause = FIRST_PAUSE
        study_id = await world.submit()
        run_id = f"{study_id}-search"
        await world.tick(3)
        await world.report(run_id, "POST", "/finish", outcome="failed", reason="OSError: stale")
        await world.tick(3)
        assert len(world.launcher.submitted) == 1
        assert (await world.study(study_id))["reason"] == (
            "attempt 2 begins 5 s after the last one: OSError: stale"
        )

        async with database.session() as session:
            attempt = await session.get_one(Attempt, (run_id, 1))
            attempt.finished_at = attempt.created_at - FIRST_PAUSE
            run = await session.get_one(Run, run_id)
            run.features = {"done": 80, "number": 90, "per_second": None}
        assert (await world.study(study_id))["progress"]["features"]["done"] == 80
        await world.tick(3)

        assert len(world.launcher.submitted) == 2
        assert (await world.study(study_id))["progress"]["features"] is None  # it may find them all

    @pytest.mark.parametrize("words", OTHER_VERSION)
    async def test_an_upgrade_that_takes_long_fails_no_study(
        self, world: World, database: Database, words: str
    ) -> None:
        study_id = await world.submit()
        run_id = f"{study_id}-search"
        told = f"{words}2 of the messages and the control plane version 3: install the same"
        for number in range(1, 2 * world.settings.max_attempts):
            await world.tick(3)
            await world.report(run_id, "POST", "/finish", number, outcome="failed", reason=told)
        world.first_pause = FIRST_PAUSE
        await world.tick(2)

        study = await world.study(study_id)
        assert (study["state"], len(world.launcher.submitted)) == ("simulating", 9)
        assert study["reason"] == f"attempt 10 begins 300 s after the last one: {told}"

        world.first_pause = timedelta(0)
        await world.tick(3)
        await world.finish_search(study_id, fence=10)
        await world.tick(1)
        assert (await world.study(study_id))["state"] == "training"

    async def test_a_study_says_that_its_driver_looks_for_the_api_where_it_is_not(
        self, world: World
    ) -> None:
        study_id = await world.submit()
        world.heard = replace(world.heard, is_unreached=True)
        await world.tick(4)
        assert (await world.study(study_id))["reason"] == UNREACHED

        await world.report(f"{study_id}-search", "POST", "/heartbeat")
        await world.tick(1)

        assert (await world.study(study_id))["reason"] is None

    async def test_the_ledger_does_not_repeat_what_a_driver_died_of(self, world: World) -> None:
        study_id = await world.submit()
        await world.tick(3)
        said = "KeyError: 'patient 47'"
        finish = {"outcome": "failed", "reason": said, "retryable": False}
        await world.report(f"{study_id}-search", "POST", "/finish", **finish)
        await world.tick(3)

        assert said in (await world.study(study_id))["reason"]
        journal = (await world.client.get("/datasets/digits/ledger")).json()["entries"]
        assert (journal[-1]["kind"], "patient" in journal[-1]["body"]) == ("release", False)

    async def test_a_new_attempt_of_a_private_run_shuts_the_old_one_out_of_the_ledger(
        self, world: World
    ) -> None:
        study_id = await world.to_training()
        await world.begin_segment(study_id, 0, 2)
        world.launcher.end(f"{study_id}-private-a1", JobStatus.FAILED, 137)
        await world.tick(3)

        zombie = await world.client.post(
            f"/worker/runs/{study_id}-private/segments",
            json={"fence": 1, "start_step": 2, "num_steps": 2, "request_id": "z"},
            headers=driver_headers(world.settings, f"{study_id}-private", 1),
        )

        assert zombie.status_code == 409
        granted = await world.begin_segment(study_id, 0, 2, fence=2)
        assert granted["num_steps"] == 2
        assert (await world.study(study_id))["privacy"]["charged_steps"] == 4

    async def test_a_cluster_that_does_not_answer_is_named_and_waited_for(
        self, world: World
    ) -> None:
        study_id = await world.submit()
        await world.tick(1)
        world.launcher.is_down = True
        await world.tick(3)
        assert (await world.study(study_id))["reason"] == "the cluster does not answer"

        world.launcher.is_down = False
        await world.tick(3)

        study = await world.study(study_id)
        assert study["reason"] is None
        assert len(world.launcher.submitted) == 1

    async def test_an_attempt_that_made_progress_is_not_counted_against_the_run(
        self, world: World
    ) -> None:
        study_id = await world.submit()
        for number in range(1, 2 * world.settings.max_attempts):
            await world.tick(3)
            trial = {"number": number, "state": "completed", "params": {}, "value": 0.5}
            await world.report(
                f"{study_id}-search", "PUT", f"/trials/{number}", number, trial=trial
            )
            world.launcher.end(f"{study_id}-search-a{number}", JobStatus.FAILED, 137)
        await world.tick(3)

        assert (await world.study(study_id))["state"] == "simulating"

    async def test_a_driver_that_stopped_without_being_asked_to_is_followed_by_another(
        self, world: World
    ) -> None:
        study_id = await world.submit()
        await world.tick(3)
        await world.report(f"{study_id}-search", "POST", "/finish", outcome="cancelled")

        await world.tick(3)

        assert (await world.study(study_id))["state"] == "simulating"
        assert [job.submission_id[-3:] for job in world.launcher.submitted] == ["-a1", "-a2"]

    async def test_silence_counts_only_while_heartbeats_could_be_heard(
        self, world: World, database: Database
    ) -> None:
        await world.submit()
        await world.tick(3)
        async with database.session() as session:
            attempt = (await session.scalars(select(Attempt))).one()
            attempt.submitted_at = attempt.heartbeat_at = attempt.created_at - timedelta(hours=1)
            world.heard = replace(world.heard, listening_since=attempt.created_at)
        await world.tick(2)
        assert world.launcher.stopped == []

        world.heard = always_heard()
        await world.tick(1)

        assert len(world.launcher.stopped) == 1

    async def test_a_statement_that_cannot_be_made_yet_loses_nothing(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        study_id = await world.trained()

        async def broken(*_: object) -> None:
            raise AccountantError("out of time")

        with monkeypatch.context() as patch:
            patch.setattr(reconcile, "make_statement", broken)
            await world.tick(3)
        study = await world.study(study_id)
        assert study["state"] == "training"
        assert "out of time" in study["reason"]

        await world.tick(2)

        assert (await world.study(study_id))["state"] == "completed"

    async def test_a_statement_that_can_never_be_made_keeps_no_slot_for_ever(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        study_id = await world.trained()
        free = await world.committed()

        async def broken(*_: object) -> None:
            raise AccountantError("out of time")

        monkeypatch.setattr(reconcile, "make_statement", broken)
        await world.tick(2)
        await world.client.post(f"/studies/{study_id}/cancel")
        await world.tick(1)

        study = await world.study(study_id)
        assert study["state"] == "cancelled"
        assert "out of time" in study["reason"]
        assert study["privacy"]["charged_steps"] == 100
        assert study["privacy"]["epsilon"] > 0
        assert await world.committed() <= free


class TestCancel:
    async def test_it_ends_though_no_accountant_answers_and_nobody_waits_for_one(
        self, world: World, database_urls: DatabaseUrls, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        study_id = await world.to_training()
        await world.begin_segment(study_id, 0, 10)
        held: list[bool] = []

        def broken(*_: object, **__: object) -> None:
            with psycopg.connect(database_urls.app) as other:
                query = "SELECT pg_try_advisory_lock(hashtextextended('ledger:dataset:digits', 0))"
                held.append(other.execute(query).fetchone() != (True,))
            raise AccountantError("out of time")

        monkeypatch.setattr(endings, "price", broken)
        await world.client.post(f"/studies/{study_id}/cancel")
        await world.tick(1)
        world.launcher.end(f"{study_id}-private-a1", JobStatus.STOPPED, 1)
        await world.tick(2)

        privacy = (await world.study(study_id))["privacy"]
        assert (await world.study(study_id))["state"] == "cancelled"
        assert privacy["charged_steps"] == 10
        assert privacy["epsilon"] == privacy["epsilon_reserved"]
        assert held == [False]

    async def test_a_queued_study_never_starts(self, world: World) -> None:
        free = await world.committed()
        study_id = await world.submit()
        await world.client.post(f"/studies/{study_id}/cancel")

        await world.tick(2)

        assert (await world.study(study_id))["state"] == "cancelled"
        assert world.launcher.submitted == []
        assert await world.committed() == free

    async def test_a_running_search_is_stopped(self, world: World) -> None:
        free = await world.committed()
        study_id = await world.submit()
        await world.tick(3)
        await world.client.post(f"/studies/{study_id}/cancel")

        await world.tick(4)

        assert world.launcher.stopped == [f"{study_id}-search-a1"]
        assert (await world.study(study_id))["state"] == "cancelled"
        assert await world.committed() == free

    async def test_a_private_run_keeps_what_it_began_and_releases_the_rest(
        self, world: World
    ) -> None:
        study_id = await world.to_training()
        await world.begin_segment(study_id, 0, 2)
        full = await world.committed()
        await world.client.post(f"/studies/{study_id}/cancel")

        await world.tick(4)

        study = await world.study(study_id)
        assert study["state"] == "cancelled"
        assert study["privacy"]["charged_steps"] == 2
        assert 0 < await world.committed() < full

    async def test_what_is_charged_while_it_is_priced_is_in_its_epsilon(
        self, world: World, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        study_id = await world.to_training()
        await world.begin_segment(study_id, 0, 2)
        async with database.session() as session:
            (held,) = await ledger.of_study(session, study_id)
        priced: list[float] = []
        loop, price = asyncio.get_running_loop(), endings.price

        async def charge() -> None:
            async with database.session() as session:
                await Ledger().begin_segment(
                    session,
                    held.reservation_id,
                    epoch=1,
                    start_step=2,
                    num_steps=2,
                    request_id="late",
                )

        def price_meanwhile(*events: Any, **target: Any) -> Any:
            if not priced:
                asyncio.run_coroutine_threadsafe(charge(), loop).result(60)
            found = price(*events, **target)
            priced.append(found.epsilon)
            return found

        monkeypatch.setattr(endings, "price", price_meanwhile)
        await world.client.post(f"/studies/{study_id}/cancel")

        await world.tick(4)

        assert (await world.study(study_id))["privacy"]["charged_steps"] == 4
        async with database.session() as session:
            study = await session.get_one(Study, study_id)
        assert len(priced) == 2
        assert priced[0] < priced[1] == study.charged_epsilon

    @pytest.mark.parametrize("can_hear", [True, False])
    async def test_it_waits_for_no_cluster_and_a_driver_that_comes_back_charges_nothing(
        self, world: World, database: Database, can_hear: bool
    ) -> None:
        study_id = await world.to_training()
        run_id = f"{study_id}-private"
        await world.begin_segment(study_id, 0, 2)
        full = await world.committed()
        world.launcher.is_down = True
        if not can_hear:  # nor does the API answer the orchestrator
            world.heard = replace(world.heard, listening_since=datetime(2100, 1, 1, tzinfo=UTC))
        await world.client.post(f"/studies/{study_id}/cancel")
        await world.tick(3)
        study = await world.study(study_id)
        assert (study["state"], study["reason"]) == ("training", "the cluster does not answer")

        async with database.session() as session:
            attempt = await session.get_one(Attempt, (run_id, 1))
            assert attempt.stop_requested_at is not None
            attempt.stop_requested_at -= STOP_GRACE
        await world.tick(2)

        study = await world.study(study_id)
        assert (study["state"], study["privacy"]["charged_steps"]) == ("cancelled", 2)
        assert 0 < (left := await world.committed()) < full
        for path, body in (
            ("segments", {"start_step": 2, "num_steps": 2, "request_id": "z"}),
            ("heartbeat", {}),
            ("finish", {"outcome": "failed"}),
        ):
            answer = await world.client.post(
                f"/worker/runs/{run_id}/{path}",
                json={"fence": 1, **body},
                headers=driver_headers(world.settings, run_id, 1),
            )
            assert answer.status_code == 409, path
        assert (await world.study(study_id))["privacy"]["charged_steps"] == 2
        assert await world.committed() == left

    async def test_an_attempt_that_may_never_have_reached_the_cluster_ends_too(
        self, world: World, database: Database
    ) -> None:
        study_id = await world.submit()
        await world.tick(1)
        world.launcher.is_down = True
        await world.tick(2)
        await world.client.post(f"/studies/{study_id}/cancel")
        await world.tick(1)
        async with database.session() as session:
            attempt = await session.get_one(Attempt, (f"{study_id}-search", 1))
            assert (attempt.submitted_at, attempt.stop_requested_at is None) == (None, False)
            attempt.stop_requested_at = attempt.created_at - STOP_GRACE

        await world.tick(2)

        assert (await world.study(study_id))["state"] == "cancelled"

    async def test_a_study_that_waits_for_approval_ends(self, world: World) -> None:
        study_id = await world.submit(promotion="manual")
        await world.tick(3)
        await world.finish_search(study_id)
        await world.tick(2)
        await world.client.post(f"/studies/{study_id}/cancel")

        await world.tick(1)

        study = await world.study(study_id)
        assert study["state"] == "cancelled"
        assert study["privacy"]["charged_steps"] == 0


class TestComputeBudget:
    async def test_a_study_that_has_used_it_up_is_stopped_and_says_so(
        self, world: World, database: Database
    ) -> None:
        study_id = await world.submit(budget={"gpu_hours": 1.0})
        await world.tick(3)
        trial = make_trial(state="completed", scores=[make_score(0, 0.5, seconds=1801.0)])
        await world.report(f"{study_id}-search", "PUT", "/trials/0", trial=trial)
        await world.tick(2)
        assert (await world.study(study_id))["state"] == "simulating"

        trial["repeats"] = [make_score(0, 0.5, seed=1, seconds=1801.0)]
        await world.report(f"{study_id}-search", "PUT", "/trials/0", trial=trial)
        await world.tick(4)

        study = await world.study(study_id)
        assert study["state"] == "failed"
        assert study["reason"] == "budget.gpu_hours: 1 are used up"
        assert world.launcher.stopped == [f"{study_id}-search-a1"]

    async def test_trials_that_share_a_gpu_count_as_the_parts_of_it_that_they_have(
        self, world: World
    ) -> None:
        study_id = await world.submit(budget={"gpu_hours": 1.0})
        await world.tick(3)
        trial = make_trial(
            state="completed", scores=[make_score(0, 0.5, seconds=14_000.0, devices=0.25)]
        )
        await world.report(f"{study_id}-search", "PUT", "/trials/0", trial=trial)
        await world.tick(2)
        assert (await world.study(study_id))["state"] == "simulating"

        trial["repeats"] = [make_score(0, 0.5, seed=1, seconds=2_000.0, devices=0.25)]
        await world.report(f"{study_id}-search", "PUT", "/trials/0", trial=trial)
        await world.tick(4)

        assert (await world.study(study_id))["state"] == "failed"

    @pytest.mark.parametrize(
        ("ranks", "minutes", "state"),
        [(None, 0, "failed"), (4, 0, "failed"), (1, 0, "training"), (4, 2, "training")],
    )
    async def test_ranks_of_a_private_run_count_each(
        self, world: World, database: Database, ranks: int | None, minutes: int, state: str
    ) -> None:
        """Those that there are, where the cluster has no room for all that the study asks for, while they have a place."""
        study_id = await world.to_training(budget={"gpu_hours": 1.0}, train={"workers": 4})
        async with database.session() as session:
            run = await session.get_one(Run, f"{study_id}-private")
            await session.execute(
                update(Attempt)
                .where(Attempt.run_id == run.id)
                .values(
                    submitted_at=Attempt.submitted_at - timedelta(minutes=16),
                    ranks=ranks,
                    waited_seconds=60.0 * minutes,
                )
            )

        await world.tick(4)

        assert (await world.study(study_id))["state"] == state


class TestTwoOrchestrators:
    async def test_each_study_is_advanced_by_one_of_them(
        self, world: World, database: Database
    ) -> None:
        ids = {await world.submit() for _ in range(3)}

        async def claim(owner: str) -> list[str]:
            async with database.session() as session:
                return await claims.claim_open(session, owner=owner, lease=LEASE)

        taken = await asyncio.gather(*(claim(owner) for owner in "abcd"))

        assert sorted(each for part in taken for each in part) == sorted(ids)

    async def test_a_successor_takes_over_when_the_lease_is_over(
        self, world: World, database: Database
    ) -> None:
        study_id = await world.submit()
        await world.tick(3, owner="dead")
        await world.tick(1, owner="next")
        async with database.session() as session:
            study = await session.get_one(Study, study_id)
            assert study.lease_owner == "dead"
            study.lease_until = study.created_at

        await world.tick(3, owner="next")

        assert len(world.launcher.submitted) == 1
        async with database.session() as session:
            assert (await session.get_one(Study, study_id)).lease_owner == "next"

    async def test_a_lease_of_a_clock_that_was_put_back_binds_nobody(
        self, world: World, database: Database
    ) -> None:
        study_id = await world.submit()
        await world.tick(1, owner="dead")
        async with database.session() as session:
            study = await session.get_one(Study, study_id)
            study.lease_until = datetime.now(UTC) + timedelta(hours=1)

        await world.tick(1, owner="next")

        async with database.session() as session:
            assert (await session.get_one(Study, study_id)).lease_owner == "next"
