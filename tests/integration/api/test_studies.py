import asyncio
import hashlib
import json
from typing import Any

import pytest
from sqlalchemy import text

from service.db.tables import Run, Study, Trial
from service.ledger.service import Ledger
from service.studies.events import append_event, set_state
from tan_core.accounting import price
from tan_core.planner import Plan, reservations
from tan_core.spec import StudySpec
from tests.fixtures.api import make_spec, register_table

TABLES = ("study", "event", "idempotency_key", "ledger_reservation", "ledger_entry", "dataset")


async def count_rows(database) -> dict[str, int]:
    async with database.session() as session:
        return {
            table: await session.scalar(text(f"SELECT count(*) FROM {table}")) for table in TABLES
        }


async def submit(client, **changes) -> dict[str, Any]:
    response = await client.post("/studies", json=make_spec(**changes))
    assert response.status_code == 201, response.text
    return response.json()


async def move(database, study_id, *states):
    async with database.session() as session:
        study = await session.get(Study, study_id)
        for state in states:
            await set_state(session, study, state)


async def add_trial(database, study_id, number, state="completed", value=0.9):
    async with database.session() as session:
        session.add(
            Trial(
                study_id=study_id,
                number=number,
                state=state,
                params={"learning_rate": 1.0},
                scores=[],
                value=value,
                attempt=1,
            )
        )


MALFORMED = [
    ({"bogus": 1}, "bogus"),
    ({"name": "with space"}, "name"),
    ({"name": ""}, "name"),
    ({"privacy": {"epsilon": -1}}, "privacy.epsilon"),
    ({"privacy": {"epsilon": 1e9}}, "privacy.epsilon"),
    ({"privacy": {"delta": 0}}, "privacy.delta"),
    ({"privacy": {"delta": 1e-300}}, "privacy.delta"),
    ({"privacy": {"delta": 0.5}}, "privacy.delta"),
    ({"privacy": {"accountant": "moments"}}, "privacy.accountant"),
    ({"privacy": {"epsilon": None}}, "privacy.epsilon"),
    ({"dataset": "unheard-of"}, "dataset"),
    ({"dataset": ["digits"]}, "dataset"),
    ({"model": {"name": "transformer"}}, "model.name"),
    ({"model": {"width": 3}}, "model.width"),
    ({"model": {"name": "wrn-16-4", "groups": 3}}, "model.groups"),
    ({"search": {"accounting": "none"}}, "search.accounting"),
    ({"search": {"accounting": "accounted", "rungs": [16, 64]}}, "search.rungs"),
    ({"search": {"accounting": "private_selection"}}, "search.accounting"),
    ({"search": {"accounting": "disjoint_split"}}, "search.accounting"),
    ({"search": {"accounting": "public_proxy"}}, "search.dataset"),
    ({"search": {"accounting": "public_proxy", "dataset": "nowhere"}}, "search.dataset"),
    ({"search": {"accounting": "public_proxy", "dataset": "digits"}}, "search.dataset"),
    ({"search": {"dataset": "digits"}}, "search.dataset"),
    ({"search": {"trials": 0}}, "search.trials"),
    ({"search": {"trials": "many"}}, "search.trials"),
    ({"search": {"rungs": [64, 16]}}, "search.rungs"),
    ({"search": {"rungs": [16, 512]}}, "search.rungs"),
    ({"search": {"sampler": "oracle"}}, "search.sampler"),
    ({"search": {"budget": 0}}, "search.budget"),
    ({"search": {"warm_start": "always"}}, "search.warm_start"),
    ({"search": {"warm_start": ["yesterday"]}}, "search.warm_start.0"),
    ({"search": {"warm_start": ["s-000000000000"]}}, "search.warm_start.0"),
    ({"search": {"space": {}}}, "search.space"),
    ({"search": {"space": {"warp": 1}}}, "search.space.warp"),
    ({"search": {"space": {"learning_rate": {"low": 2, "high": 1}}}}, "search.space.learning_rate"),
    ({"search": {"space": {"momentum": {"low": 0, "high": 1}}}}, "search.space.momentum.high"),
    ({"train": {"batch_size": 0}}, "train.batch_size"),
    ({"train": {"batch_size": 10_000}}, "train.batch_size"),
    ({"train": {"noise_multiplier": 0.01}}, "train.noise_multiplier"),
    ({"train": {"max_batch_size": 0}}, "train.max_batch_size"),
    ({"train": {"max_batch_size": 400}}, "train.max_batch_size"),  # digits: add_or_remove_one
    ({"train": {"workers": 0}}, "train.workers"),
    ({"train": {"class_shares": [98, 2]}}, "train.class_shares"),  # digits have ten classes
    ({"search": {"metric": "balanced_accuracy"}}, "search.metric"),
    ({"search": {"metric": "f1"}}, "search.metric"),
    ({"promotion": "sometimes"}, "promotion"),
    ({"budget": {"gpu_hours": -1}}, "budget.gpu_hours"),
]


class TestSubmit:
    async def test_a_study_is_planned_reserved_and_queued(self, client):
        response = await client.post("/studies", json=make_spec())
        study = response.json()

        assert response.status_code == 201
        assert response.headers["location"] == f"/studies/{study['id']}"
        assert study["state"] == "queued"
        assert study["plan"]["reference"]["steps"] == 100
        assert study["privacy"]["epsilon"] <= study["privacy"]["epsilon_reserved"] <= 3.0
        assert study["privacy"]["reserved_steps"] == 104
        assert study["privacy"]["search_note"] == "search on private data NOT accounted"
        assert study["privacy"]["ledger_entry"]["scope"] == "dataset:digits"

    async def test_yaml_is_as_good_as_json(self, client):
        import yaml

        response = await client.post(
            "/studies",
            content=yaml.safe_dump(make_spec()),
            headers={"content-type": "application/yaml"},
        )
        assert response.status_code == 201

    @pytest.mark.parametrize(("change", "path"), MALFORMED, ids=lambda value: json.dumps(value))
    async def test_a_malformed_study_names_its_field_and_leaves_nothing(
        self, client, database, change, path
    ):
        before = await count_rows(database)

        response = await client.post("/studies", json=make_spec(**change))

        assert response.status_code == 422, response.text
        assert response.headers["content-type"] == "application/problem+json"
        assert path in [error["path"] for error in response.json()["errors"]], response.text
        assert await count_rows(database) == before

    async def test_an_unknown_dataset_lists_the_known_ones(self, client):
        response = await client.post("/studies", json=make_spec(dataset="mnist"))
        assert "registered: digits" in response.json()["detail"]

    @pytest.mark.slow
    async def test_over_budget_is_a_conflict_that_leaves_nothing(self, client, database):
        before = await count_rows(database)
        big = {"epsilon": 150.0, "delta": 1e-5}
        response = await client.post("/studies", json=make_spec(privacy=big))
        assert response.status_code == 409, response.text
        assert "budget" in response.json()["detail"]
        assert await count_rows(database) == before

    async def test_without_a_waiver_an_unaccounted_search_is_refused_and_the_way_out_is_one(
        self, client, tmp_path
    ):
        await register_table(client, tmp_path, epsilon=10.0, delta=1e-4)
        await register_table(client, tmp_path, name="public", shift=0.5, public=True)

        response = await client.post("/studies", json=make_spec(dataset="table"))

        (error,) = response.json()["errors"]
        assert error["path"] == "search.accounting"
        assert "none can be given later" in error["message"]
        assert "accepted here: public_proxy, with search.dataset: a public" in error["message"]
        proxied = {"accounting": "public_proxy", "dataset": "public"}
        spec = make_spec(dataset="table", search=proxied, train={"batch_size": 16})
        followed = await client.post("/studies", json=spec)
        assert followed.status_code == 201, followed.text

    async def test_a_baseline_that_nobody_declared_is_refused(self, client, tmp_path):
        await register_table(client, tmp_path, name="public", public=True)
        of_private = {"evaluation": {"baseline": True}}
        proxied = {"accounting": "public_proxy", "dataset": "public"}

        refused = await client.post("/plans", json=make_spec(search=proxied, **of_private))
        declared = await client.post("/plans", json=make_spec(**of_private))

        paths = [error["path"] for error in refused.json()["errors"]]
        assert "evaluation.baseline" in paths
        assert declared.status_code == 200, declared.text

    async def test_an_image_model_on_a_table_is_refused(self, client, tmp_path):
        await register_table(client, tmp_path, epsilon=10.0, delta=1e-4, waiver="me: mine")
        spec = make_spec(dataset="table", model={"name": "tanh-cnn"}, train={"batch_size": 16})
        response = await client.post("/studies", json=spec)
        assert [e["path"] for e in response.json()["errors"]] == ["model.name"]

    async def test_a_dataset_whose_files_are_gone_is_refused(self, client, tmp_path):
        await register_table(client, tmp_path, epsilon=10.0, delta=1e-4, waiver="me: mine")
        (tmp_path / "table.csv").unlink()
        spec = make_spec(dataset="table", train={"batch_size": 16})
        response = await client.post("/studies", json=spec)
        assert [e["path"] for e in response.json()["errors"]] == ["dataset"]

    async def test_the_costliest_candidate_at_the_delta_of_the_budget_is_held(
        self, client, tmp_path
    ):
        await register_table(client, tmp_path, epsilon=3.0, delta=1e-3, waiver="me: mine")
        study = await submit(
            client,
            dataset="table",
            search={"space": {"train.steps": {"choices": [20, 118]}}},
            train={"batch_size": 16, "steps": "auto"},
        )

        spec, plan = StudySpec.model_validate(study["spec"]), Plan.model_validate(study["plan"])
        cost = {m.steps: price([m], delta=1e-3).epsilon for m in reservations(spec, plan)}
        assert sorted(cost) == [22, 124]
        assert cost[124] > 1.1 * cost[22]
        assert study["privacy"]["reserved_steps"] == max(cost, key=lambda steps: cost[steps])

    async def test_steps_that_are_fixed_and_searched_are_refused(self, client):
        search = {"space": {"steps": {"choices": [20, 50]}}}
        response = await client.post("/studies", json=make_spec(search=search))
        (error,) = response.json()["errors"]
        assert (response.status_code, error["path"]) == (422, "search.space.steps")

    async def test_a_public_dataset_needs_no_budget(self, client, tmp_path):
        await register_table(client, tmp_path, public=True)
        study = await submit(
            client,
            dataset="table",
            search={"accounting": "public_proxy"},
            train={"batch_size": 16},
        )
        assert study["privacy"]["ledger_entry"] is None
        assert (
            study["privacy"]["search_note"]
            == "hyper-parameters chosen on data registered as public"
        )

    async def test_a_public_proxy_of_another_shape_is_refused(self, client, tmp_path):
        await register_table(client, tmp_path, public=True)
        search = {"accounting": "public_proxy", "dataset": "table"}
        response = await client.post("/studies", json=make_spec(search=search))
        messages = [e["message"] for e in response.json()["errors"]]
        assert any("shape" in message for message in messages)
        assert any("num_classes" in message for message in messages)


class TestRaces:
    async def test_of_two_racing_studies_a_budget_for_one_admits_one(self, client, tmp_path):
        await register_table(client, tmp_path, epsilon=3.5, delta=1e-5, waiver="me: mine")
        spec = make_spec(dataset="table", train={"batch_size": 16})
        responses = await asyncio.gather(*(client.post("/studies", json=spec) for _ in range(2)))
        assert sorted(r.status_code for r in responses) == [201, 409]


class TestEpsilon:
    """Wherever it is shown, it is never below what the ledger has charged."""

    async def test_before_any_charge_it_is_the_plan(self, client):
        study = await submit(client)
        assert await shown(client, study) == study["plan"]["privacy"]["epsilon"]

    async def test_steps_that_ran_again_raise_it_to_the_reservation(self, client, database):
        study = await submit(client)
        await charge(database, study, 102)
        assert await shown(client, study) == study["plan"]["privacy"]["epsilon_reserved"]

    @pytest.mark.slow
    async def test_searched_steps_show_the_target(self, client):
        search = {"space": {"steps": {"choices": [20, 50]}}}
        study = await submit(client, search=search, train={"steps": "auto"})
        assert await shown(client, study) == study["privacy"]["epsilon_reserved"] == 3.0

    @pytest.mark.parametrize("charged", [0.0, 1.25])
    async def test_a_study_that_ended_shows_what_it_was_charged(self, client, database, charged):
        study = await submit(client)
        await move(database, study["id"], "failed")
        async with database.session() as session:
            (await session.get(Study, study["id"])).charged_epsilon = charged
        assert await shown(client, study) == charged


async def shown(client, study) -> float:
    """As one study and as one of a list: the same."""
    alone = (await client.get(f"/studies/{study['id']}")).json()["privacy"]["epsilon"]
    (listed,) = (await client.get("/studies")).json()["items"]
    assert listed["epsilon"] == alone
    return alone


async def charge(database, study, num_steps):
    ledger, reservation = Ledger(), study["id"]
    async with database.session() as session:
        await ledger.acquire(session, reservation, epoch=1)
        await ledger.begin_segment(
            session, reservation, epoch=1, start_step=0, num_steps=num_steps, request_id="r"
        )


class TestCancel:
    async def test_it_is_idempotent(self, client):
        study = await submit(client)
        for _ in range(2):
            response = await client.post(f"/studies/{study['id']}/cancel")
            assert response.status_code == 202

    async def test_a_final_study_cannot_be_cancelled(self, client, database):
        study = await submit(client)
        await move(database, study["id"], "failed")
        response = await client.post(f"/studies/{study['id']}/cancel")
        assert response.status_code == 409
        assert "is failed" in response.json()["detail"]


class TestPromote:
    async def test_only_a_waiting_study_can_be_promoted(self, client):
        study = await submit(client)
        response = await client.post(f"/studies/{study['id']}/promote")
        assert response.status_code == 409
        assert "awaiting_approval" in response.json()["detail"]

    async def test_a_named_trial_must_have_completed(self, client, database):
        study = await submit(client, promotion="manual")
        await move(database, study["id"], "simulating", "awaiting_approval")
        await add_trial(database, study["id"], 0)
        await add_trial(database, study["id"], 1, state="diverged", value=None)

        refused = await client.post(f"/studies/{study['id']}/promote", json={"trial": 1})
        accepted = await client.post(f"/studies/{study['id']}/promote", json={"trial": 0})

        assert refused.status_code == 422
        assert refused.json()["errors"][0]["path"] == "trial"
        assert accepted.status_code == 202

    async def test_an_unknown_key_is_refused_by_name(self, client, database):
        study = await submit(client, promotion="manual")
        await move(database, study["id"], "simulating", "awaiting_approval")
        await add_trial(database, study["id"], 0)

        for body, path in (({"trail": 0}, "trail"), ({"trial": True}, "trial")):
            refused = await client.post(f"/studies/{study['id']}/promote", json=body)
            assert refused.status_code == 422
            assert refused.json()["errors"][0]["path"] == path
        assert (await client.get(f"/studies/{study['id']}")).json()["state"] == "awaiting_approval"

    async def test_without_a_body_the_choice_is_the_search_s(self, client, database):
        study = await submit(client, promotion="manual")
        await move(database, study["id"], "simulating", "awaiting_approval")
        await add_trial(database, study["id"], 0)
        assert (await client.post(f"/studies/{study['id']}/promote")).status_code == 202


class TestResults:
    @pytest.mark.parametrize("what", ["statement", "model"])
    async def test_they_do_not_exist_before_the_study_is_complete(self, client, what):
        study = await submit(client)
        response = await client.get(f"/studies/{study['id']}/{what}")
        assert response.status_code == 404
        assert "once it is completed" in response.json()["detail"]

    @pytest.mark.parametrize(
        ("place", "status"),
        [
            ("runs/{}-private/attempt-1/model.safetensors", 200),
            ("runs/{}-private/../s-other-private/attempt-1/model.safetensors", 404),
            ("runs/{}-private-too/model.safetensors", 404),
            ("runs/cache/node/files-0/data.csv", 404),
            ("outside.safetensors", 404),
        ],
    )
    async def test_only_a_file_of_the_run_s_own_is_served(
        self, client, database, settings, place, status
    ):
        """Its driver says which one: another tenant's model and the data that are kept lie beside it."""
        study = await submit(client)
        path = settings.home_path / place.format(study["id"])
        path.resolve().parent.mkdir(parents=True, exist_ok=True)
        (settings.storage_path / f"{study['id']}-private").mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"weights")
        await complete(database, study["id"], str(path))

        response = await client.get(f"/studies/{study['id']}/model")

        assert response.status_code == status
        assert (response.content == b"weights") is (status == 200)

    async def test_the_rest_of_a_model_is_sent_while_it_is_the_same_weights(
        self, client, database, settings
    ):
        study = await submit(client)
        path = settings.storage_path / f"{study['id']}-private" / "model.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"weights")
        await complete(database, study["id"], str(path))
        where = f"/studies/{study['id']}/model"
        tag = (await client.get(where)).headers["ETag"]

        rest = await client.get(where, headers={"Range": "bytes=3-", "If-Range": tag})
        other = await client.get(where, headers={"Range": "bytes=3-", "If-Range": '"other"'})

        assert (rest.status_code, rest.content) == (206, b"ghts")
        assert rest.headers["ETag"] == tag
        assert (other.status_code, other.content) == (200, b"weights")

    async def test_a_file_that_was_changed_since_is_not_the_model(self, client, database, settings):
        study = await submit(client)
        path = settings.storage_path / f"{study['id']}-private" / "model.safetensors"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"weights")
        await complete(database, study["id"], str(path))
        where = f"/studies/{study['id']}/model"
        assert (await client.get(where)).content == b"weights"

        path.write_bytes(b"Weights")
        refused = await client.get(where)

        assert refused.status_code == 404
        assert "no longer on storage: the SHA-256 of what lies there is" in refused.json()["detail"]

    async def test_a_link_out_of_the_run_s_folder_is_not_followed(self, client, database, settings):
        study = await submit(client)
        folder = settings.storage_path / f"{study['id']}-private"
        folder.mkdir(parents=True)
        (folder / "link").symlink_to("/etc/hostname")
        await complete(database, study["id"], str(folder / "link"))
        assert (await client.get(f"/studies/{study['id']}/model")).status_code == 404


async def complete(database, study_id, model_path):
    await move(database, study_id, "simulating", "training")
    async with database.session() as session:
        session.add(
            Run(
                id=f"{study_id}-private",
                study_id=study_id,
                kind="private",
                state="succeeded",
                assignment={},
                steps=100,
                step=100,
                result={
                    "model_path": model_path,
                    "model_sha256": hashlib.sha256(b"weights").hexdigest(),
                    "test_accuracy": 0.5,
                    "num_test": 10,
                },
            )
        )
    await move(database, study_id, "completed")


class TestUnknownStudy:
    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", ""),
            ("GET", "/trials"),
            ("GET", "/events"),
            ("GET", "/statement"),
            ("GET", "/model"),
            ("POST", "/cancel"),
            ("POST", "/promote"),
        ],
    )
    @pytest.mark.parametrize("study_id", ["nobody", "a%00b", "%F0%9F%A6%86"])
    async def test_it_is_not_found(self, client, method, path, study_id):
        response = await client.request(method, f"/studies/{study_id}{path}")
        assert response.status_code == 404
        assert response.headers["content-type"] == "application/problem+json"


def parse_events(text: str) -> list[dict[str, Any]]:
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    events = []
    for block in blocks:
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        data = json.loads(fields["data"])
        assert fields["id"] == str(data["seq"])
        assert fields["event"] == data["kind"]
        events.append(data)
    return events


class TestEvents:
    async def test_a_finished_study_is_replayed_whole_and_ends(self, client, database):
        study = await submit(client)
        await move(database, study["id"], "simulating", "failed")

        response = await client.get(f"/studies/{study['id']}/events")

        events = parse_events(response.text)
        assert response.headers["content-type"].startswith("text/event-stream")
        assert [event["seq"] for event in events] == [1, 2, 3]
        assert [event["state"] for event in events] == ["queued", "simulating", "failed"]
        assert events[-1]["progress"]["phase"] == "failed"

    @pytest.mark.parametrize("seen", [0, 1, 7, 19])
    async def test_replay_goes_on_exactly_after_the_last_event(self, client, database, seen):
        study = await submit(client)
        async with database.session() as session:
            row = await session.get(Study, study["id"])
            for number in range(18):
                await append_event(session, row, "step", {"step": number})
        await move(database, study["id"], "failed")

        headers = {"Last-Event-ID": str(seen)} if seen else {}
        response = await client.get(f"/studies/{study['id']}/events", headers=headers)

        assert [e["seq"] for e in parse_events(response.text)] == list(range(seen + 1, 21))

    async def test_a_client_that_has_seen_everything_is_told_not_to_come_back(
        self, client, database
    ):
        study = await submit(client)
        await move(database, study["id"], "failed")
        response = await client.get(
            f"/studies/{study['id']}/events", headers={"Last-Event-ID": "2"}
        )
        assert response.status_code == 204

    async def test_an_id_that_is_no_number_is_refused(self, client):
        study = await submit(client)
        response = await client.get(
            f"/studies/{study['id']}/events", headers={"Last-Event-ID": "x"}
        )
        assert response.status_code == 422

    async def test_events_arrive_while_they_are_made(self, client, database):
        study = await submit(client)

        async def later():
            await asyncio.sleep(0.3)
            await move(database, study["id"], "simulating")
            await asyncio.sleep(0.1)
            await move(database, study["id"], "cancelled")

        response, _ = await asyncio.gather(client.get(f"/studies/{study['id']}/events"), later())

        assert [e["state"] for e in parse_events(response.text)] == [
            "queued",
            "simulating",
            "cancelled",
        ]

    async def test_concurrent_writers_number_without_a_gap(self, client, database):
        study = await submit(client)

        async def write(number):
            async with database.session() as session:
                row = await session.get(Study, study["id"])
                await append_event(session, row, "step", {"step": number})

        await asyncio.gather(*(write(number) for number in range(12)))
        await move(database, study["id"], "failed")

        response = await client.get(f"/studies/{study['id']}/events")
        assert [e["seq"] for e in parse_events(response.text)] == list(range(1, 15))


class TestSetState:
    async def test_repeating_a_state_says_nothing_unless_the_reason_is_new(self, client, database):
        study = await submit(client)
        async with database.session() as session:
            row = await session.get(Study, study["id"])
            await set_state(session, row, "queued")
            await set_state(session, row, "queued", "waiting for a free slot")
            await set_state(session, row, "queued", "waiting for a free slot")
        async with database.session() as session:
            row = await session.get(Study, study["id"])
            assert row.event_seq == 2

    async def test_times_are_stamped(self, client, database):
        study = await submit(client)
        await move(database, study["id"], "simulating", "failed")
        view = (await client.get(f"/studies/{study['id']}")).json()
        assert view["created_at"] <= view["started_at"] <= view["finished_at"]


class TestBestTrial:
    async def test_the_best_trial_is_the_first_of_the_highest(self, client, database):
        study = await submit(client)
        for number, value in enumerate([0.5, 0.9, 0.9]):
            await add_trial(database, study["id"], number, value=value)
        view = (await client.get(f"/studies/{study['id']}")).json()
        assert view["best_trial"]["number"] == 1
        assert view["progress"]["best_accuracy"] == 0.9


class TestGate:
    async def test_a_rebound_name_gets_nothing(self, client):
        response = await client.get("/studies", headers={"Host": "evil.example"})
        assert response.status_code == 400

    async def test_another_site_s_page_cannot_ask_for_a_change(self, client):
        response = await client.post("/studies/x/cancel", headers={"Origin": "http://evil.example"})
        assert response.status_code == 403

    async def test_a_body_above_the_limit_is_refused(self, client):
        response = await client.post("/studies", content=b"x" * (1024 * 1024 + 1))
        assert response.status_code == 413

    async def test_a_chunked_body_above_the_limit_is_refused_too(self, client):
        async def chunks():
            for _ in range(17):
                yield b"x" * 65536

        response = await client.post("/studies", content=chunks())
        assert response.status_code == 413

    async def test_the_docs_fetch_nothing(self, client):
        page = await client.get("/docs")
        assert page.status_code == 200
        assert "/studies/{study_id}/events" in page.text
        assert "http://" not in page.text.replace("http://127.0.0.1", "")
        assert "<script" not in page.text

    async def test_json_is_needed(self, client):
        response = await client.post("/studies", content="a=1", headers={"Content-Type": "x/y"})
        assert response.status_code == 415

    async def test_a_bug_tells_nothing_but_an_id(self, client, monkeypatch, caplog):
        async def explode(*args, **kwargs):
            raise RuntimeError("secret detail")

        monkeypatch.setattr("service.studies.service.repository.page", explode)
        response = await client.get("/studies")
        assert response.status_code == 500
        assert "secret" not in response.text
        assert response.json()["instance"] in caplog.text
