import asyncio
from importlib.metadata import version
from typing import Any

import pytest
from sqlalchemy import text

from service.db.tables import Attempt, Run, Study, Trial
from service.ledger.service import Ledger
from service.orchestrator import assignments
from service.orchestrator.assignments import search_run
from service.statements.service import attest_weights, make_statement
from service.statements.verify import verify_statement
from service.studies.events import set_state
from service.studies.stream import stream
from tan_core.planner import Candidate, Plan
from tan_core.spec import StudySpec
from tests.fixtures.api import driver_headers, make_spec
from tests.support.reports import completed_trial, make_score, make_trial


@pytest.fixture
async def study_id(client):
    response = await client.post("/studies", json=make_spec(search={"rungs": [16, 64]}))
    assert response.status_code == 201, response.text
    return response.json()["id"]


async def add_attempt(database, run_id, number, state="live"):
    async with database.session() as session:
        session.add(
            Attempt(run_id=run_id, number=number, state=state, submission_id=f"{run_id}-a{number}")
        )


async def lose_attempt(database, run_id, number):
    async with database.session() as session:
        attempt = await session.get(Attempt, (run_id, number))
        attempt.state = "lost"


@pytest.fixture
async def search(database, study_id):
    """The id of a search run with one live attempt."""
    async with database.session() as session:
        study = await session.get(Study, study_id)
        session.add(await search_run(session, study, storage_path="/storage"))
        await set_state(session, study, "simulating")
    await add_attempt(database, f"{study_id}-search", 1)
    return f"{study_id}-search"


@pytest.fixture
async def private(database, study_id, settings):
    """The id of a private run with one live attempt that holds the reservation."""
    async with database.session() as session:
        study = await session.get(Study, study_id)
        spec, plan = StudySpec.model_validate(study.spec), Plan.model_validate(study.plan)
        candidate = Candidate(
            private_run=plan.private_run(), trainer=spec.train.trainer(), model=spec.model
        )
        run = await assignments.private_run(
            session,
            study,
            candidate,
            storage_path=str(settings.storage_path),
            trial=None,
        )
        session.add(run)
        await set_state(session, study, "simulating")
        await set_state(session, study, "training")
    await take_over(database, study_id, 1)
    return f"{study_id}-private"


async def take_over(database, study_id, number):
    await add_attempt(database, f"{study_id}-private", number)
    async with database.session() as session:
        study = await session.get(Study, study_id)
        await Ledger().acquire(session, study.reservation_id, epoch=number)


class Driver:
    """One attempt's driver, as a client of /worker."""

    def __init__(self, client, settings, run_id, fence=1):
        self.client, self.run_id, self.fence = client, run_id, fence
        self.headers = driver_headers(settings, run_id, fence)

    async def call(self, method: str, path: str = "", **body: Any):
        url = f"/worker/runs/{self.run_id}{path}"
        if method == "GET":
            return await self.client.get(url, params={"fence": self.fence}, headers=self.headers)
        body = {"fence": self.fence, **body}
        return await self.client.request(method, url, json=body, headers=self.headers)

    async def segment(self, start: int, count: int, request_id: str):
        return await self.call(
            "POST", "/segments", start_step=start, num_steps=count, request_id=request_id
        )

    async def end(self, segment: int, step: int):
        checkpoint = {"step": step, "path": "/x", "sha256": "ab" * 32}
        return await self.call("POST", f"/segments/{segment}/end", checkpoint=checkpoint)


IMAGE = f"registry.example.org/tan-search-worker@sha256:{'ab' * 32}"


def make_result(steps=100):
    return {
        "steps": steps,
        "test_accuracy": 0.91,
        "num_test": 359,
        "model_path": "/x/model.safetensors",
        "model_sha256": "cd" * 32,
        "train_seconds": 1.5,
        "software": {"torch": "2.13", "commit": "12" * 20, "image": IMAGE},
    }


def with_places(scores: list[dict[str, Any]]) -> list[tuple[tuple[int, int], dict[str, Any]]]:
    return [((score["seed"], score["rung"]), score) for score in scores]


def places(scores: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [place for place, _ in with_places(scores)]


class TestAuthentication:
    async def test_a_token_is_good_for_its_own_attempt_only(self, client, settings, search):
        driver = Driver(client, settings, search)
        assert (await driver.call("GET")).status_code == 200
        driver.fence = 2
        assert (await driver.call("GET")).status_code == 401

    @pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer x", "Basic abc"])
    async def test_without_the_token_nothing_is_told(self, client, search, header):
        headers = {"Authorization": header} if header is not None else {}
        response = await client.get(f"/worker/runs/{search}?fence=1", headers=headers)
        assert response.status_code == 401

    @pytest.mark.parametrize(
        "report",
        [
            {"fence": 1, "trial": {"scores": [{"rung": 1}] * 1000}},
            {"fence": 2, "trial": make_trial()},
            {"fence": "1-private", "trial": make_trial()},
            {"trial": make_trial()},
            [],
        ],
    )
    async def test_a_stranger_s_report_is_not_looked_at(self, client, search, report):
        """What is wrong with a megabyte is said at length, and to those who may report alone."""
        headers = {"Authorization": f"Bearer {'ab' * 32}"}
        response = await client.put(f"/worker/runs/{search}/trials/1", json=report, headers=headers)
        assert response.status_code == 401

    async def test_a_report_has_no_more_scores_than_a_trial_can(self, client, settings, search):
        trial = {"number": 1, "state": "running", "params": {}, "scores": [{}] * 50_000}
        response = await Driver(client, settings, search).call("PUT", "/trials/1", trial=trial)
        assert response.status_code == 422
        (fault,) = response.json()["errors"]
        assert fault["message"].startswith("List should have at most 100 items")

    async def test_a_lost_attempt_is_fenced_off_everywhere(
        self, client, settings, database, private
    ):
        driver = Driver(client, settings, private)
        await lose_attempt(database, private, 1)
        calls = [
            driver.call("GET"),
            driver.call("POST", "/heartbeat"),
            driver.segment(0, 2, "r"),
            driver.end(1, 2),
            driver.call("POST", "/finish", outcome="succeeded", result=make_result()),
        ]
        assert [(await call).status_code for call in calls] == [409] * 5

    async def test_a_run_that_is_not_there_is_fenced_off(self, client, settings):
        assert (await Driver(client, settings, "nobody").call("GET")).status_code == 409


class TestSearch:
    async def test_the_assignment_is_complete(self, client, settings, search):
        assignment = (await Driver(client, settings, search).call("GET")).json()
        assert assignment["kind"] == "search"
        assert assignment["run_id"] == search
        assert (assignment["attempt"], assignment["fence"]) == (1, 1)
        assert assignment["trials"] == []
        assert assignment["rungs"] == [16, 64]
        assert assignment["max_examples"] == 256 * 100
        assert assignment["points"] == []

    async def test_the_budget_of_the_search_is_in_private_runs_with_every_view(
        self, client, database
    ):
        spec = make_spec(
            search={
                "budget": 1.5,
                "space": {
                    "learning_rate": 1.0,
                    "augmentation_multiplicity": {"choices": [1, 4]},
                },
            },
        )
        study = (await client.post("/studies", json=spec)).json()
        async with database.session() as session:
            stored = await session.get_one(Study, study["id"])
            run = await search_run(session, stored, storage_path="/storage")
        assert run.assignment["max_examples"] == 1.5 * 4 * 256 * 100

    async def test_a_newer_version_may_have_put_a_column_beside_those_of_a_trial(
        self, client, settings, owner, search, study_id
    ):
        """As in the middle of an upgrade: the schema is the new one, and who answers the old one."""
        driver = Driver(client, settings, search)
        await driver.call("PUT", "/trials/0", trial=make_trial())
        async with owner.session() as session:
            await session.execute(text("ALTER TABLE trial ADD COLUMN later text"))
        done = completed_trial(0, 0.7)
        assert (await driver.call("PUT", "/trials/0", trial=done)).status_code == 204
        told = await client.get(f"/studies/{study_id}")
        assert (told.status_code, told.json()["best_trial"]["value"]) == (200, 0.7)

    async def test_reports_become_rows_events_and_progress(
        self, client, settings, search, study_id
    ):
        driver = Driver(client, settings, search)
        await driver.call("PUT", "/trials/0", trial=make_trial())
        done = make_trial(state="completed", value=0.8)
        response = await driver.call("PUT", "/trials/0", trial=done)

        assert response.status_code == 204
        study = (await client.get(f"/studies/{study_id}")).json()
        assert study["progress"]["trials_finished"] == 1
        assert study["best_trial"]["value"] == 0.8

    async def test_a_finished_trial_is_never_overwritten(self, client, settings, search, study_id):
        driver = Driver(client, settings, search)
        for state, value in [("completed", 0.8), ("running", None), ("failed", None)]:
            trial = make_trial(state=state, value=value)
            assert (await driver.call("PUT", "/trials/0", trial=trial)).status_code == 204
        (trial,) = (await client.get(f"/studies/{study_id}/trials")).json()["items"]
        assert (trial["state"], trial["value"]) == ("completed", 0.8)
        assert trial["finished_at"] is not None

    async def test_repetitions_of_a_finished_trial_grow_and_are_announced(
        self, client, settings, database, search, study_id
    ):
        driver = Driver(client, settings, search)
        trial = completed_trial(0, 0.7, 0.8)
        await driver.call("PUT", "/trials/0", trial=trial)
        first = make_score(0, 0.6, seed=1)
        for repeats in (
            [first],
            [first],  # said twice
            [make_score(0, 0.1, seed=1), make_score(1, 0.7, seed=1)],  # a known one never changes
            [make_score(0, None, seed=2)],  # alone: what is known stays
        ):
            changed = {**trial, "state": "failed", "value": 0.1, "repeats": repeats}
            assert (await driver.call("PUT", "/trials/0", trial=changed)).status_code == 204

        (stored,) = (await client.get(f"/studies/{study_id}/trials")).json()["items"]
        assert (stored["state"], stored["value"]) == ("completed", 0.8)
        assert [(*place, score["accuracy"]) for place, score in with_places(stored["repeats"])] == [
            (1, 0, 0.6),
            (1, 1, 0.7),
            (2, 0, None),
        ]
        async with database.session() as session:
            events = await session.scalars(
                text("SELECT data FROM event WHERE kind = 'trial' ORDER BY seq")
            )
        finished = [event["progress"]["repeats_finished"] for event in events]
        assert finished == [0, 0, 1, 2]
        assert (await client.get(f"/studies/{study_id}")).json()["progress"][
            "repeats_finished"
        ] == 2

    async def test_a_fenced_driver_adds_no_repetition(
        self, client, settings, database, search, study_id
    ):
        driver = Driver(client, settings, search)
        trial = completed_trial(0, 0.7)
        await driver.call("PUT", "/trials/0", trial=trial)
        await lose_attempt(database, search, 1)

        trial["repeats"] = [make_score(0, 0.6, seed=1)]
        response = await driver.call("PUT", "/trials/0", trial=trial)

        assert response.status_code == 409
        (stored,) = (await client.get(f"/studies/{study_id}/trials")).json()["items"]
        assert stored["repeats"] == []

    async def test_a_repeated_report_makes_no_second_event(
        self, client, settings, database, search, study_id
    ):
        driver = Driver(client, settings, search)
        for _ in range(3):
            await driver.call("PUT", "/trials/0", trial=make_trial())
        async with database.session() as session:
            count = await session.scalar(
                text("SELECT count(*) FROM event WHERE kind = 'trial' AND study_id = :id"),
                {"id": study_id},
            )
        assert count == 1

    @pytest.mark.parametrize(
        "path", ["steps", "expected_batch_size", "noise_multiplier", "seconds", "rung"]
    )
    async def test_figures_that_no_column_holds_are_refused(self, client, settings, search, path):
        driver = Driver(client, settings, search)
        trial = make_trial(scores=[{**make_score(0, 0.5), path: 10**300}])
        response = await driver.call("PUT", "/trials/0", trial=trial)
        assert response.status_code == 422
        assert response.json()["errors"][0]["path"] == f"trial.scores.0.{path}"

    @pytest.mark.parametrize("place", ["scores", "repeats"])
    @pytest.mark.parametrize("path", ["rung", "steps"])
    async def test_figures_that_no_query_reads_are_refused(
        self, client, settings, search, study_id, place, path
    ):
        """Stored once, they would break every look at the study from then on."""
        driver = Driver(client, settings, search)
        seed = int(place == "repeats")
        trial = completed_trial(0, 0.5) | {place: [make_score(0, 0.5, seed=seed) | {path: 2**31}]}
        response = await driver.call("PUT", "/trials/0", trial=trial)
        assert response.status_code == 422
        assert response.json()["errors"][0]["path"] == f"trial.{place}.0.{path}"
        assert (await client.get(f"/studies/{study_id}")).status_code == 200

    @pytest.mark.parametrize("value", [-0.1, 1.1, 1e308])
    async def test_what_is_no_accuracy_is_refused(self, client, settings, search, value):
        """It would be the best of all trials, or the worst."""
        trial = completed_trial(0, 0.5) | {"value": value}
        response = await Driver(client, settings, search).call("PUT", "/trials/0", trial=trial)
        assert response.status_code == 422
        assert response.json()["errors"][0]["path"] == "trial.value"

    async def test_a_fence_that_no_attempt_can_have_is_refused(self, client, settings, search):
        response = await Driver(client, settings, search, fence=2**63).call("POST", "/heartbeat")
        assert response.status_code == 422
        assert response.json()["errors"][0]["path"] == "fence"

    async def test_the_address_and_the_report_must_agree(self, client, settings, search):
        driver = Driver(client, settings, search)
        response = await driver.call("PUT", "/trials/1", trial=make_trial(number=0))
        assert response.status_code == 422
        assert response.json()["errors"][0]["path"] == "trial.number"

    async def test_a_successor_finds_what_is_known_and_what_was_interrupted(
        self, client, settings, database, search
    ):
        first = Driver(client, settings, search)
        await first.call("PUT", "/trials/0", trial=make_trial(0, "completed", value=0.7))
        await first.call("PUT", "/trials/1", trial=make_trial(1))
        await lose_attempt(database, search, 1)
        await add_attempt(database, search, 2)

        assignment = (await Driver(client, settings, search, 2).call("GET")).json()

        states = [trial["state"] for trial in assignment["trials"]]
        assert states == ["completed", "interrupted"]

    async def test_a_successor_is_given_every_score_and_repetition(
        self, client, settings, database, search
    ):
        first = Driver(client, settings, search)
        finalist = completed_trial(0, 0.7, 0.8, source="s-0123456789ab trial 7")
        finalist["repeats"] = [make_score(0, 0.6, seed=1), make_score(1, 0.7, seed=1)]
        half = make_trial(1, scores=[make_score(0, 0.5)], value=0.5)
        await first.call("PUT", "/trials/0", trial=finalist)
        await first.call("PUT", "/trials/1", trial=half)
        await lose_attempt(database, search, 1)
        await add_attempt(database, search, 2)
        second = Driver(client, settings, search, 2)

        known = (await second.call("GET")).json()["trials"]
        await second.call("PUT", "/trials/1", trial=make_trial(1))
        begun = (await second.call("GET")).json()["trials"][1]

        assert [places(trial["scores"]) for trial in known] == [[(0, 0), (0, 1)], [(0, 0)]]
        assert places(known[0]["repeats"]) == [(1, 0), (1, 1)]
        assert known[0]["source"] == "s-0123456789ab trial 7"
        assert known[1]["state"] == "interrupted"
        assert (begun["state"], places(begun["scores"]), begun["value"]) == (
            "running",
            [(0, 0)],
            0.5,
        )

    async def test_segments_are_not_for_a_search(self, client, settings, search):
        assert (await Driver(client, settings, search).segment(0, 1, "r")).status_code == 409


class TestHeartbeat:
    async def test_it_says_run_until_someone_cancels(self, client, settings, search, study_id):
        driver = Driver(client, settings, search)
        before = (await driver.call("POST", "/heartbeat")).json()
        await client.post(f"/studies/{study_id}/cancel")
        after = (await driver.call("POST", "/heartbeat")).json()
        assert (before["desired"], after["desired"]) == ("run", "cancel")

    async def test_it_asks_many_drivers_to_speak_less_often(
        self, client, settings, search, monkeypatch
    ):
        monkeypatch.setattr("service.pace.BEATS_PER_SECOND", 0.2)
        driver = Driver(client, settings, search)
        answer = await driver.call("POST", "/heartbeat")
        assert answer.headers["Heartbeat-Pause"] == "5.00"  # one driver at 0.2 a second

    async def test_it_asks_for_no_more_than_lets_a_driver_be_missed(
        self, client, settings, search, monkeypatch
    ):
        monkeypatch.setattr("service.pace.BEATS_PER_SECOND", 0.001)
        answer = await Driver(client, settings, search).call("POST", "/heartbeat")
        assert float(answer.headers["Heartbeat-Pause"]) == settings.heartbeat_timeout_seconds / 4

    async def test_how_many_ranks_there_are_is_known_until_it_says_otherwise(
        self, client, settings, private, database
    ):
        driver, known = Driver(client, settings, private), []
        for said in ({"ranks": 2}, {}, {"ranks": 1}):
            assert (await driver.call("POST", "/heartbeat", **said)).status_code == 200
            async with database.session() as session:
                known.append((await session.get_one(Attempt, (private, 1))).ranks)
        assert known == [2, 2, 1]
        for odd in (0, -1, 2**64, 1.5):
            assert (await driver.call("POST", "/heartbeat", ranks=odd)).status_code == 422

    async def test_what_it_waits_for_is_known_until_it_says_otherwise_and_for_how_long_it_did(
        self, client, settings, private, database
    ):
        driver, known = Driver(client, settings, private), []
        for said in (
            {"waits_for": "waiting for\x00 a place", "waited_seconds": 5.0},
            {"waits_for": "waiting for a place", "waited_seconds": 10.0},
            {"waited_seconds": 10.5},
            {"step": 1},  # of rank 0, which was not there
        ):
            assert (await driver.call("POST", "/heartbeat", **said)).status_code == 200
            async with database.session() as session:
                attempt = await session.get_one(Attempt, (private, 1))
                known.append((attempt.waits_for, attempt.waited_seconds))
        waits = "waiting for a place"
        assert known == [(waits, 5.0), (waits, 10.0), (None, 10.5), (None, 10.5)]
        for odd in (-1.0, "NaN", None):
            answer = await driver.call("POST", "/heartbeat", waited_seconds=odd)
            assert answer.status_code == 422

    async def test_steps_only_rise(self, client, settings, private, study_id):
        driver = Driver(client, settings, private)
        for step in (10, 30, 20):
            await driver.call("POST", "/heartbeat", step=step, steps_per_second=5.0)
        study = (await client.get(f"/studies/{study_id}")).json()
        assert study["run"]["step"] == 30
        assert study["progress"]["steps"] == 100

    @pytest.mark.parametrize(
        "made",
        [
            {"done": 7, "number": 3, "per_second": 1.0},
            {"done": 0, "number": 2**53, "per_second": 5e-324},
            {"done": 0, "number": 0, "per_second": 1e15},
        ],
    )
    async def test_odd_figures_of_features_do_no_harm(
        self, client, settings, private, study_id, made
    ):
        answer = await Driver(client, settings, private).call("POST", "/heartbeat", features=made)
        assert answer.status_code == 200, answer.text
        shown = await client.get(f"/studies/{study_id}")
        assert shown.json()["progress"]["features"] in (
            None,
            {"done": 0, "number": 2**53, "seconds_left": None},
        )
        assert (await client.get(f"/ui/studies/{study_id}")).status_code == 200

    async def test_it_is_seen_how_far_features_are_while_they_are_computed(
        self, client, settings, database, search, study_id
    ):
        driver = Driver(client, settings, search)

        async def told(**made: float) -> Any:
            await driver.call("POST", "/heartbeat", features=made)
            return (await client.get(f"/studies/{study_id}")).json()["progress"]["features"]

        assert await told(done=30, number=90) == {"done": 30, "number": 90, "seconds_left": None}
        for _ in range(2):  # the second says nothing new
            half = await told(done=45, number=90, per_second=9.0)
            assert half == {"done": 45, "number": 90, "seconds_left": 5.0}
        assert await told(done=90, number=90, per_second=9.0) is None

        async with database.session() as session:
            query = text("SELECT data FROM event WHERE kind = 'features' ORDER BY seq")
            events = (await session.scalars(query)).all()
        of_events = [event["progress"]["features"] for event in events]
        assert [each and each["done"] for each in of_events] == [30, 45, None]

    async def test_subscribers_hear_of_steps_at_most_once_a_second(
        self, client, settings, database, private
    ):
        driver = Driver(client, settings, private)
        for step in range(1, 6):
            await driver.call("POST", "/heartbeat", step=step)
        async with database.session() as session:
            count = await session.scalar(text("SELECT count(*) FROM event WHERE kind = 'step'"))
        assert count <= 2


class TestSegments:
    async def test_a_grant_is_charged_before_it_is_answered(
        self, client, settings, private, study_id
    ):
        driver = Driver(client, settings, private)
        grant = (await driver.segment(0, 10, "r1")).json()
        again = (await driver.segment(0, 10, "r1")).json()

        assert grant == again
        assert grant["num_steps"] == 10
        study = (await client.get(f"/studies/{study_id}")).json()
        assert study["privacy"]["charged_steps"] == 10

    async def test_without_a_reservation_private_data_are_not_taken_for_public(
        self, client, settings, database, private, study_id
    ):
        """The service's role may change a study; what its dataset is it may not."""
        async with database.session() as session:
            (await session.get_one(Study, study_id)).reservation_id = None

        response = await Driver(client, settings, private).segment(0, 10, "r1")

        assert response.status_code == 409
        assert "nothing is reserved of it: no steps are granted" in response.json()["detail"]

    async def test_a_checkpoint_is_where_the_successor_goes_on(
        self, client, settings, database, private, study_id
    ):
        driver = Driver(client, settings, private)
        grant = (await driver.segment(0, 10, "r1")).json()
        for _ in range(2):
            assert (await driver.end(grant["segment"], 10)).status_code == 204
        await driver.segment(10, 2, "r2")
        await lose_attempt(database, private, 1)
        await take_over(database, study_id, 2)

        successor = Driver(client, settings, private, 2)
        assignment = (await successor.call("GET")).json()
        grant = (await successor.segment(10, 2, "r3")).json()

        assert assignment["checkpoint"]["step"] == 10
        assert grant["num_steps"] == 2
        study = (await client.get(f"/studies/{study_id}")).json()
        assert study["privacy"]["charged_steps"] == 14  # the crashed segment stays charged
        assert (await driver.segment(12, 2, "r4")).status_code == 409

    async def test_a_checkpoint_may_arrive_after_the_next_segment_has_begun(
        self, client, settings, database, private, study_id
    ):
        driver = Driver(client, settings, private)
        first = (await driver.segment(0, 10, "r1")).json()["segment"]
        await driver.segment(10, 10, "r2")
        assert (await driver.call("POST", "/heartbeat", step=15)).status_code == 200

        assert (await driver.end(first, 10)).status_code == 204

        study = (await client.get(f"/studies/{study_id}")).json()
        assert (study["run"]["step"], study["privacy"]["charged_steps"]) == (15, 20)
        await lose_attempt(database, private, 1)
        await take_over(database, study_id, 2)
        successor = Driver(client, settings, private, 2)
        assert (await successor.call("GET")).json()["checkpoint"]["step"] == 10

    async def test_no_more_than_was_reserved_is_ever_granted(self, client, settings, private):
        driver = Driver(client, settings, private)
        granted = []
        for number in range(8):
            grant = (await driver.segment(0, 30, f"r{number}")).json()
            granted.append(grant["num_steps"])
            if grant["num_steps"]:
                await driver.end(grant["segment"], grant["num_steps"])
        assert sum(granted) == 104
        assert granted[-1] == 0

    async def test_nothing_starts_beyond_the_run(self, client, settings, private):
        response = await Driver(client, settings, private).segment(100, 1, "r")
        assert response.status_code == 422

    async def test_a_cancelled_study_is_charged_no_further(
        self, client, settings, private, study_id
    ):
        await client.post(f"/studies/{study_id}/cancel")
        response = await Driver(client, settings, private).segment(0, 2, "r")
        assert response.status_code == 409


class TestFinish:
    async def test_it_is_idempotent(self, client, settings, database, private):
        driver = Driver(client, settings, private)
        await driver.segment(0, 100, "r")
        for _ in range(2):
            response = await driver.call(
                "POST", "/finish", outcome="succeeded", result=make_result()
            )
            assert response.status_code == 204
        async with database.session() as session:
            attempt = await session.get(Attempt, (private, 1))
            run = await session.get(Run, private)
        assert (attempt.state, run.state) == ("succeeded", "active")
        assert run.result["test_accuracy"] == 0.91

    async def test_another_outcome_after_the_first_is_refused(self, client, settings, search):
        driver = Driver(client, settings, search)
        await driver.call("POST", "/finish", outcome="succeeded")
        response = await driver.call("POST", "/finish", outcome="failed", reason="late")
        assert response.status_code == 409

    async def test_why_it_failed_and_whether_to_try_again_is_kept(
        self, client, settings, database, search
    ):
        driver = Driver(client, settings, search)
        await driver.call(
            "POST", "/finish", outcome="failed", reason="all diverged", retryable=False
        )
        async with database.session() as session:
            attempt = await session.get(Attempt, (search, 1))
        assert (attempt.reason, attempt.retryable) == ("all diverged", False)

    async def test_a_private_run_cannot_succeed_without_a_result(self, client, settings, private):
        response = await Driver(client, settings, private).call(
            "POST", "/finish", outcome="succeeded"
        )
        assert response.status_code == 422

    @pytest.mark.parametrize(
        ("lie", "path"),
        [
            ({"steps": 0}, "result.steps"),
            ({"steps": 41}, "result.steps"),  # charged are 40
            ({"steps": 2**53}, "result.steps"),
            ({"model_sha256": 'x"\nSet-Cookie: a=b'}, "result.model_sha256"),
            ({"model_sha256": "CD" * 32}, "result.model_sha256"),
        ],
    )
    async def test_a_result_that_could_not_be_stated_is_refused(
        self, client, settings, database, private, lie, path
    ):
        driver = Driver(client, settings, private)
        await driver.segment(0, 40, "r")
        result = make_result(steps=40) | lie

        response = await driver.call("POST", "/finish", outcome="succeeded", result=result)

        assert response.status_code == 422
        assert response.json()["errors"][0]["path"] == path
        async with database.session() as session:
            assert (await session.get(Run, private)).result is None
            assert (await session.get(Attempt, (private, 1))).state == "live"

    async def test_only_what_succeeded_has_a_result(self, client, settings, private):
        driver = Driver(client, settings, private)
        await driver.segment(0, 100, "r")
        response = await driver.call("POST", "/finish", outcome="failed", result=make_result())
        assert response.status_code == 422

    async def test_nor_has_a_search(self, client, settings, search):
        response = await Driver(client, settings, search).call(
            "POST", "/finish", outcome="succeeded", result=make_result()
        )
        assert response.status_code == 422

    async def test_what_a_search_left_running_is_interrupted(
        self, client, settings, database, search, study_id
    ):
        driver = Driver(client, settings, search)
        await driver.call("PUT", "/trials/0", trial=make_trial())
        await driver.call("POST", "/finish", outcome="cancelled")
        async with database.session() as session:
            assert (await session.get(Trial, (study_id, 0))).state == "interrupted"


class TestStatement:
    async def test_a_finished_run_is_stated_as_charged(
        self, client, settings, database, private, study_id
    ):
        driver = Driver(client, settings, private)
        for start in range(0, 100, 25):
            grant = (await driver.segment(start, 25, f"r{start}")).json()
            await driver.end(grant["segment"], start + 25)
        result = make_result()
        result["software"]["dp-accounting"] = "9.9"  # the service priced it, and knows by what
        await driver.call("POST", "/finish", outcome="succeeded", result=result)
        async with database.session() as session:
            study = await session.get(Study, study_id)
            await Ledger().release(session, study.reservation_id, actor="test", reason="done")
            await attest_weights(session, study)
            run = await session.get(Run, private)
            # As it was stored before there was a choice.
            run.assignment = run.assignment | {
                "trainer": {k: v for k, v in run.assignment["trainer"].items() if k != "precision"}
            }
        statement = await make_statement(database, study_id, settings)
        async with database.session() as session:
            study = await session.get(Study, study_id)
            study.statement = statement
            await set_state(session, study, "completed")

        document = (await client.get(f"/studies/{study_id}/statement")).json()

        assert [check for check in verify_statement(document) if check.is_bad] == []
        statement = document
        assert statement["steps"]["charged"] == 100
        assert statement["training"] == {"precision": "float32"}
        assert statement["code_commit"] == "12" * 20
        assert statement["software"]["torch"] == "2.13"
        assert statement["software"]["dp-accounting"] == version("dp-accounting")
        assert statement["container_image"] == IMAGE
        assert not {"commit", "image"} & statement["software"].keys()
        assert statement["privacy"]["epsilon"] <= 3.0
        account = (await client.get("/datasets/digits/ledger")).json()
        entry = statement["ledger"]["entry"]
        assert {"seq": account["head"]["seq"], "hash": account["head"]["hash"]} == entry
        study = (await client.get(f"/studies/{study_id}")).json()
        assert study["privacy"]["epsilon"] == statement["privacy"]["epsilon"]
        assert study["run"]["test_accuracy"] == 0.91


class TestStream:
    async def test_a_reader_that_leaves_costs_no_connection(self, client, database, study_id):
        context = client._transport.app.state.context
        for _ in range(20):
            reader = asyncio.create_task(anext(aiter(stream(context, study_id, 1))))
            await asyncio.sleep(0.01)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        await asyncio.sleep(0.1)
        assert database.engine.pool.checkedout() == 0
        assert (await client.get("/readyz")).status_code == 200
