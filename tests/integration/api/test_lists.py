"""Pages of studies and of trials: every item once, whatever is stored between two pages."""

import base64
import json
from datetime import datetime
from typing import Any

import pytest

from service.db.tables import Run, Study, Trial
from tan_core.wire import RungScore
from tests.fixtures.api import make_spec
from tests.support.rows import clone_study

NOON = "2026-11-20T12:00:00+00:00"
NUMBERS = [
    f"{sign}{field}"
    for field in ("target_epsilon", "best_accuracy", "predicted_accuracy", "test_accuracy")
    for sign in ("", "-")
]
LATER = "2026-11-20T12:00:00.000001+00:00"


@pytest.fixture
async def studies(client, database) -> list[str]:
    """Seven studies: four of one moment, two of the next, the first as it was submitted."""
    made = (await client.post("/studies", json=make_spec(name="first"))).json()["id"]
    for number in range(6):
        await clone_study(
            database,
            made,
            id=f"s-00000000000{number}",
            name=f"Clone-{number % 2}",
            created_at=NOON if number < 4 else LATER,
            state="failed" if number % 3 == 0 else "queued",
            tags=["paper", f"n:{number}"],
            archived=number == 5,
        )
    return [*(f"s-00000000000{number}" for number in range(6)), made]


@pytest.fixture
async def numbered(client, database, owner) -> list[str]:
    """Eight studies: three with nothing but a target, the fourth without one, four with every number."""
    made = (await client.post("/studies", json=make_spec(name="first"))).json()["id"]
    clones = [f"s-00000000000{number}" for number in range(7)]
    for study_id in clones:
        await clone_study(database, made, id=study_id)
    for study_id, value in zip(clones, (0.9, 0.3, 0.3, 0.5), strict=False):
        await give_numbers(owner, study_id, value)
    for study_id in clones[4:6]:
        await give_numbers(owner, study_id, None)
    return [*clones, made]


async def give_numbers(owner, study_id: str, value: float | None) -> None:
    """What a list can be ordered by, from one number; None: there is none of it."""
    async with owner.session() as session:
        study = await session.get_one(Study, study_id)
        privacy = {**study.plan["privacy"], "target_epsilon": value}
        study.plan = {**study.plan, "privacy": privacy}
        if value is None:
            return
        study.prediction = {"accuracy": value, "low": value - 0.1, "high": value + 0.1}
        session.add(
            Run(
                id=f"{study_id}-private", study_id=study_id, kind="private", state="succeeded",
                assignment={}, result={"test_accuracy": value, "num_test": 10},
            )
        )  # fmt: skip
        for number, (state, share) in enumerate(
            [("completed", value), ("completed", value / 2), ("pruned", 1.0), ("completed", None)]
        ):
            session.add(
                Trial(
                    study_id=study_id, number=number, state=state, params={}, scores=[], value=share,
                    attempt=1,
                )
            )  # fmt: skip


async def walk(client, path: str, *, between=None, **params: Any) -> list[dict[str, Any]]:
    """Every item of every page, two by two; ``between`` runs after each page."""
    found, cursor = [], None
    while True:
        query = {"limit": 2, **params} | ({"cursor": cursor} if cursor else {})
        response = await client.get(path, params=query)
        assert response.status_code == 200, response.text
        page = response.json()
        assert len(page["items"]) <= 2
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found
        if between is not None:
            await between()


async def ids(client, **params: Any) -> list[str]:
    return [study["id"] for study in await walk(client, "/studies", **params)]


class TestStudies:
    @pytest.mark.parametrize("sort", ["created_at", "-created_at", "name", "-name"])
    async def test_ties_are_in_the_order_of_the_id(self, client, studies, sort):
        found = await walk(client, "/studies", sort=sort, archived="include")
        field = sort.removeprefix("-")
        read = datetime.fromisoformat if field == "created_at" else str
        keys = [(read(study[field]), study["id"]) for study in found]
        assert sorted(study["id"] for study in found) == sorted(studies)
        assert keys == sorted(keys, reverse=sort.startswith("-"))

    @pytest.mark.parametrize("sort", ["created_at", "-created_at", "name", "-name"])
    async def test_what_is_stored_between_pages_repeats_and_hides_nothing(
        self, client, database, studies, sort
    ):
        stored = []

        async def store_one_before_and_one_after() -> None:
            for name, at in (("A", "2026-01-01T00:00Z"), ("z", "2027-01-01T00:00Z")):
                stored.append(f"s-{name}{len(stored):011}")
                await clone_study(database, studies[0], id=stored[-1], name=name, created_at=at)
                if len(stored) > 12:
                    return

        found = await ids(
            client, sort=sort, between=store_one_before_and_one_after, name_contains="c"
        )
        found += await ids(client, sort=sort, between=store_one_before_and_one_after, name="first")
        assert sorted(found) == sorted(set(studies) - {studies[5]})

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ({}, [0, 1, 2, 3, 4, 6]),
            ({"archived": "include"}, [0, 1, 2, 3, 4, 5, 6]),
            ({"archived": "only"}, [5]),
            ({"state": "failed"}, [0, 3]),
            ({"state": ["failed", "queued"]}, [0, 1, 2, 3, 4, 6]),
            ({"id_begins": "s-"}, [0, 1, 2, 3, 4, 6]),
            ({"id_begins": "S-"}, []),
            ({"id_begins": "_-"}, []),  # is no wildcard
            ({"name": "first"}, [6]),
            ({"name": "clone-0"}, []),
            ({"name_contains": "LONE-0"}, [0, 2, 4]),
            ({"name_contains": "_"}, []),  # is no wildcard
            ({"tag": "paper"}, [0, 1, 2, 3, 4]),
            ({"tag": ["paper", "n:2"]}, [2]),
            ({"tag": ["n:1", "n:2"]}, []),
            ({"created_after": NOON}, [4, 6]),
            ({"created_before": LATER}, [0, 1, 2, 3]),
            ({"created_after": "2026-11-20T13:59:59.999999+02:00", "created_before": LATER}, [0, 1, 2, 3]),
            ({"dataset": "digits"}, [0, 1, 2, 3, 4, 6]),
            ({"dataset": "mnist"}, []),
        ],
        ids=str,
    )  # fmt: skip
    async def test_filters(self, client, studies, filters, expected):
        assert sorted(await ids(client, **filters)) == sorted(studies[at] for at in expected)
        first = (await client.get("/studies", params={"limit": 1, **filters})).json()
        assert first["total"] == len(expected)
        if first["next_cursor"]:
            params = {"limit": 1, **filters, "cursor": first["next_cursor"]}
            assert (await client.get("/studies", params=params)).json()["total"] == len(expected)

    async def test_what_would_take_longer_to_count_than_to_list_is_not_counted(
        self, client, studies, monkeypatch
    ):
        async def total(**params: Any) -> int | None:
            return (await client.get("/studies", params=params)).json()["total"]

        assert (await total(model="linear"), await total(model="linear", limit=5)) == (6, None)
        monkeypatch.setattr("service.studies.repository.MOST_COUNTED", 6)
        assert await total(limit=1) == 6
        monkeypatch.setattr("service.studies.repository.MOST_COUNTED", 5)
        assert (await total(), await total(limit=1)) == (6, None)
        assert await total(limit=1, state="failed") == 2

    @pytest.mark.parametrize("sort", NUMBERS)
    async def test_numbers_order_and_who_has_none_comes_last(self, client, numbered, sort):
        found = await walk(client, "/studies", sort=sort)
        field = sort.removeprefix("-")
        keys = [(study[field], study["id"]) for study in found]
        known = [key for key in keys if key[0] is not None]
        unknown = [key[1] for key in keys if key[0] is None]
        is_backwards = sort.startswith("-")
        assert sorted(study["id"] for study in found) == sorted(numbered)
        assert len({value for value, _ in known}) >= 3  # ties among them, too
        assert len(unknown) >= 2
        assert keys[: len(known)] == sorted(known, reverse=is_backwards)
        assert unknown == sorted(unknown, reverse=is_backwards)

    @pytest.mark.parametrize("sort", NUMBERS)
    async def test_numbers_that_arrive_between_pages_hide_nobody_who_had_one(
        self, client, database, owner, numbered, sort
    ):
        stored = []

        async def store_best_and_worst() -> None:
            for value in (0.0, 1.0):
                stored.append(f"s-new-{len(stored):04}")
                await clone_study(database, numbered[0], id=stored[-1], archived=False)
                await give_numbers(owner, stored[-1], value)
                if len(stored) > 8:
                    return

        found = await ids(client, sort=sort, between=store_best_and_worst)
        assert len(found) == len(set(found))
        assert set(numbered) <= set(found)

    @pytest.mark.parametrize("other", [{"state": "queued"}, {"sort": "name"}, {"tag": "paper"}])
    async def test_a_cursor_of_other_filters_is_refused(self, client, studies, other):
        page = (await client.get("/studies", params={"limit": 1})).json()
        params = {"limit": 1, "cursor": page["next_cursor"]}
        assert (await client.get("/studies", params=params)).status_code == 200
        response = await client.get("/studies", params=params | other)
        assert response.status_code == 422
        (error,) = response.json()["errors"]
        assert error["path"] == "cursor"
        assert "other filters" in error["message"]

    @pytest.mark.parametrize("cursor", ["x", "AAAA", "é", "W10", "WyIyMDI2LTAxLTAxIiwgMV0"])
    async def test_a_cursor_of_nowhere_is_refused(self, client, cursor):
        for sort in ("name", "created_at"):
            response = await client.get("/studies", params={"cursor": cursor, "sort": sort})
            assert response.status_code == 422
            assert response.json()["errors"][0]["path"] == "cursor"

    @pytest.mark.parametrize(
        ("params", "path"),
        [
            ({"page": 2}, "page"),
            ({"sort": "epsilon"}, "sort"),
            ({"state": "resting"}, "state.0"),
            ({"created_after": "2026-11-20T12:00:00"}, "created_after"),
            ({"created_before": "0.5"}, "created_before"),
            ({"name_contains": "%"}, "name_contains"),
            ({"tag": "two words"}, "tag.0"),
            ({"limit": 0}, "limit"),
        ],
        ids=str,
    )
    async def test_an_unknown_filter_is_named(self, client, params, path):
        response = await client.get("/studies", params=params)
        assert response.status_code == 422
        assert [error["path"] for error in response.json()["errors"]] == [path]


VALUES = [0.5, None, 0.9, 0.1, None, 0.9]


@pytest.fixture
async def trials_path(client, database) -> str:
    study_id = (await client.post("/studies", json=make_spec())).json()["id"]
    for number, value in enumerate(VALUES):
        await store_trial(database, study_id, number, value)
    return f"/studies/{study_id}/trials"


async def store_trial(
    database, study_id: str, number: int, value: float | None, *, rungs: int = 0
) -> None:
    scores = [
        RungScore(
            rung=rung, expected_batch_size=8.0 * 2**rung, noise_multiplier=1.0, steps=10,
            accuracy=0.5, train_loss=1.0, seconds=1.0,
        ).model_dump(mode="json")
        for rung in range(rungs)
    ]  # fmt: skip
    async with database.session() as session:
        session.add(
            Trial(
                study_id=study_id,
                number=number,
                state="diverged" if value is None else "completed",
                params={"learning_rate": 1.0},
                scores=scores,
                value=value,
                attempt=1,
            )
        )


class TestTrials:
    @pytest.mark.parametrize(
        ("sort", "expected"),
        [
            ("number", [0, 1, 2, 3, 4, 5]),
            ("-number", [5, 4, 3, 2, 1, 0]),
            ("value", [3, 0, 2, 5, 1, 4]),
            ("-value", [2, 5, 0, 3, 1, 4]),
        ],
    )
    async def test_orders(self, client, trials_path, sort, expected):
        found = await walk(client, trials_path, sort=sort)
        assert [trial["number"] for trial in found] == expected

    async def test_states(self, client, trials_path):
        found = await walk(client, trials_path, state="completed", sort="-value")
        assert [trial["number"] for trial in found] == [2, 5, 0, 3]
        assert len(await walk(client, trials_path, state=["completed", "diverged"])) == 6
        assert await walk(client, trials_path, state="failed") == []

    async def test_a_better_trial_between_pages_hides_none(self, client, database, trials_path):
        study_id, number = trials_path.split("/")[2], iter(range(6, 20))

        async def store_a_better_one() -> None:
            await store_trial(database, study_id, next(number), 0.99)

        found = await walk(client, trials_path, sort="-value", between=store_a_better_one)
        assert [trial["number"] for trial in found] == [2, 5, 0, 3, 1, 4]

    async def test_those_of_a_larger_batch_are_better_than_all_of_a_smaller_one(
        self, client, database, trials_path
    ):
        study_id = trials_path.split("/")[2]
        for number, (value, rungs) in enumerate([(0.99, 1), (0.4, 3), (None, 2), (0.6, 3)], 6):
            await store_trial(database, study_id, number, value, rungs=rungs)

        for sort, expected in (
            ("-value", [9, 7, 6, 2, 5, 0, 3, 1, 4, 8]),
            ("value", [3, 0, 2, 5, 6, 7, 9, 1, 4, 8]),
        ):
            found = await walk(client, trials_path, sort=sort)
            assert [trial["number"] for trial in found] == expected

    async def test_a_cursor_of_another_order_is_refused(self, client, trials_path):
        page = (await client.get(trials_path, params={"limit": 1})).json()
        params = {"limit": 1, "cursor": page["next_cursor"], "sort": "-value"}
        response = await client.get(trials_path, params=params)
        assert response.status_code == 422
        assert response.json()["errors"][0]["path"] == "cursor"

    async def test_a_cursor_of_another_list_is_refused(self, client, studies, trials_path):
        cursor = (await client.get("/studies", params={"limit": 1})).json()["next_cursor"]
        assert (await client.get(trials_path, params={"cursor": cursor})).status_code == 422

    async def test_a_cursor_of_a_place_that_cannot_be_is_refused(self, client, trials_path):
        listing = {"limit": 1, "sort": "value"}
        cursor = (await client.get(trials_path, params=listing)).json()["next_cursor"]
        digest, (_, value, number) = json.loads(base64.urlsafe_b64decode(f"{cursor}=="))
        raw = json.dumps([digest, [2**80, value, number]]).encode()
        made_up = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        response = await client.get(trials_path, params={**listing, "cursor": made_up})
        assert response.status_code == 422
        assert response.json()["errors"][0]["path"] == "cursor"
