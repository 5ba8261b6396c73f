"""Which earlier studies seed a search, over the API and on a real database."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from service.db.session import Database
from service.db.tables import Run, Study, Trial
from service.orchestrator.assignments import search_run
from service.warm_start.service import learnt_from
from tan_core.spec import StudySpec
from tests.fixtures.api import make_spec, register_table
from tests.support.reports import make_score

SPACE = {"learning_rate": {"low": 0.1, "high": 10.0, "log": True}}
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


START = {"trial": 0, "weights_sha256": "5b" * 32, "learning_rate_factor": 0.5}


class History:
    """Studies that came before, and what a new one would try first."""

    def __init__(self, client: httpx.AsyncClient, database: Database, owner: Database) -> None:
        self.client, self.database, self.owner = client, database, owner
        self._minutes = 0

    async def submit(self, search: dict[str, Any] | None = None, **changes: Any) -> httpx.Response:
        spec = make_spec(search={"space": SPACE, "trials": 24, **(search or {})}, **changes)
        return await self.client.post("/studies", json=spec)

    async def study(
        self,
        rates: dict[int, tuple[float, float]],
        *,
        standings: list[int] | None = None,
        state: str = "completed",
        went_on: Collection[int] = (),
        **changes: Any,
    ) -> str:
        """A study whose trials had these learning rates and accuracies, by number."""
        response = await self.submit(**changes)
        assert response.status_code == 201, response.text
        study_id = response.json()["id"]
        self._minutes += 1
        async with self.owner.session() as session:
            study = await session.get_one(Study, study_id)
            study.created_at = NOON + timedelta(minutes=self._minutes)
            if standings is not None:
                study.promotion = {"standings": [{"trial": number} for number in standings]}
            session.add_all(
                Trial(
                    study_id=study_id,
                    number=number,
                    state=state,
                    params={"learning_rate": rate},
                    scores=[make_score(0, value)],
                    value=value,
                    **({"began_from": START} if number in went_on else {}),
                    attempt=1,
                )
                for number, (rate, value) in rates.items()
            )
        return study_id

    async def points(
        self, search: dict[str, Any] | None = None, **changes: Any
    ) -> dict[str, float]:
        """The learning rate of each point that a new study begins with, by its source."""
        response = await self.submit(search, **changes)
        assert response.status_code == 201, response.text
        async with self.database.session() as session:
            study = await session.get_one(Study, response.json()["id"])
            run = await search_run(session, study, storage_path="/storage")
        points = run.assignment["points"]
        return {point["source"]: point["params"]["learning_rate"] for point in points}


@pytest.fixture
def history(client: httpx.AsyncClient, database: Database, owner: Database) -> History:
    return History(client, database, owner)


class TestAuto:
    async def test_the_best_two_trials_of_an_earlier_study_are_tried_first(
        self, history: History
    ) -> None:
        old = await history.study({0: (1.0, 0.7), 1: (2.0, 0.9), 2: (3.0, 0.8)})
        assert await history.points() == {f"{old} trial 1": 2.0, f"{old} trial 2": 3.0}

    async def test_one_that_went_on_from_another_is_not_taken_for_its_parameters(
        self, history: History
    ) -> None:
        rates = {0: (1.0, 0.7), 1: (1.0, 0.95), 2: (3.0, 0.8)}
        old = await history.study(rates, went_on=[1])
        assert await history.points() == {f"{old} trial 2": 3.0, f"{old} trial 0": 1.0}
        await history.study(rates, went_on=[1], standings=[1, 0, 2])
        assert {source.split()[-1] for source in await history.points()} == {"0", "2"}

    async def test_predictions_rank_them_where_there_are_any(self, history: History) -> None:
        rates = {0: (1.0, 0.7), 1: (2.0, 0.9), 2: (3.0, 0.8)}
        old = await history.study(rates, standings=[2, 0, 1])
        assert list(await history.points()) == [f"{old} trial 2", f"{old} trial 0"]

    async def test_only_the_newest_five_studies_are_asked(self, history: History) -> None:
        made = [await history.study({0: (1.0 + n, 0.9)}) for n in range(6)]
        found = await history.points(search={"trials": 100})
        assert list(found) == [f"{study_id} trial 0" for study_id in reversed(made[1:])]

    @pytest.mark.parametrize(
        "changes", [{"model": {"name": "mlp"}}, {"state": "pruned"}], ids=["model", "state"]
    )
    async def test_other_models_and_trials_that_were_cut_teach_nothing(
        self, history: History, changes: dict[str, Any]
    ) -> None:
        await history.study({0: (1.0, 0.9)}, **changes)
        assert await history.points() == {}

    @pytest.mark.parametrize("is_whitened", [False, True])
    async def test_whitened_features_are_learnt_from_where_features_are_whitened(
        self, history: History, is_whitened: bool
    ) -> None:
        plain = {"name": "scatter-linear"}
        whitened = {**plain, "normalization": "whitened"}
        made = [await history.study({0: (1.0, 0.9)}, model=each) for each in (plain, whitened)]

        found = await history.points(model=whitened if is_whitened else plain)

        assert found == {f"{made[is_whitened]} trial 0": 1.0}

    async def test_a_search_over_normalizations_learns_from_both_and_teaches_both(
        self, history: History
    ) -> None:
        plain = {"name": "scatter-linear"}
        whitened = {**plain, "normalization": "whitened"}
        both = {**SPACE, "normalization": {"choices": ["group", "whitened"]}}
        first = [await history.study({0: (1.0, 0.9)}, model=each) for each in (plain, whitened)]

        found = await history.points(model=plain, search={"space": both})

        assert found == {f"{each} trial 0": 1.0 for each in first}
        mixed = await history.study({0: (2.0, 0.9)}, model=plain, search={"space": both})
        # Its trial has the normalization that its model fixes, and is of that scale.
        assert f"{mixed} trial 0" in await history.points(model=plain)
        assert f"{mixed} trial 0" not in await history.points(model=whitened)

    async def test_trials_of_another_scale_crowd_nobody_out(
        self, history: History, database: Database
    ) -> None:
        """Of a study of both kinds the best trials of the wanted one count, and of those without one none."""
        plain = {"name": "scatter-linear"}
        both = {**SPACE, "normalization": {"choices": ["group", "whitened"]}}
        oldest = await history.study({0: (0.5, 0.9)}, model=plain)
        mixed = [
            await history.study(
                {0: (1.0, 0.95), 1: (2.0, 0.94), 2: (4.0, 0.8)}, model=plain, search={"space": both}
            )
            for _ in range(5)
        ]
        async with database.session() as session:
            for study_id in mixed:
                for number in (0, 1, 2):
                    trial = await session.get_one(Trial, (study_id, number))
                    is_last = number == 2 and study_id == mixed[0]
                    own = "group" if is_last else "whitened"
                    trial.params = {**trial.params, "normalization": own}

        found = await history.points(model=plain)

        assert found == {f"{oldest} trial 0": 0.5, f"{mixed[0]} trial 2": 4.0}

    @pytest.mark.parametrize(
        ("theirs", "ours", "space", "word"),
        [
            (
                {},
                {},
                {"normalization": "whitened"},
                "are not whitened, and those of this study are",
            ),
            (
                {"normalization": "whitened"},
                {"normalization": "whitened"},
                {"normalization": {"choices": ["group", "none"]}},
                "are whitened, and those of this study are not",
            ),
        ],
    )
    async def test_a_study_of_another_scale_is_refused_for_what_it_is(
        self,
        history: History,
        theirs: dict[str, Any],
        ours: dict[str, Any],
        space: dict[str, Any],
        word: str,
    ) -> None:
        name = {"name": "scatter-linear"}
        source = await history.study({0: (1.0, 0.9)}, model={**name, **theirs})

        response = await history.submit(
            {"warm_start": [source], "space": {**SPACE, **space}}, model={**name, **ours}
        )

        assert response.status_code == 422
        assert word in response.json()["errors"][0]["message"]

    @pytest.mark.parametrize(("trials", "count"), [(3, 0), (4, 1)])
    async def test_a_search_of_a_few_trials_looks_for_itself(
        self, history: History, trials: int, count: int
    ) -> None:
        await history.study({0: (1.0, 0.9), 1: (2.0, 0.8)})
        assert len(await history.points(search={"trials": trials})) == count

    async def test_none_is_none(self, history: History) -> None:
        await history.study({0: (1.0, 0.9)})
        assert await history.points(search={"warm_start": "none"}) == {}

    async def test_a_study_that_cannot_be_read_any_more_is_passed_over(
        self, history: History, owner: Database
    ) -> None:
        good, bad = await history.study({0: (1.0, 0.9)}), await history.study({0: (2.0, 0.9)})
        async with owner.session() as session:
            study = await session.get_one(Study, bad)
            study.spec = {**study.spec, "privacy": {"delta": 7}}
        assert await history.points() == {f"{good} trial 0": 1.0}


class TestOwnPoints:
    async def test_they_are_tried_before_what_is_learnt_and_are_nobody_else_s(
        self, history: History
    ) -> None:
        old = await history.study({0: (1.0, 0.7), 1: (2.0, 0.9)})
        response = await history.submit({"trials": 4, "first": [{"learning_rate": 4}]})
        assert response.status_code == 201, response.text
        async with history.database.session() as session:
            study = await session.get_one(Study, response.json()["id"])
            run = await search_run(session, study, storage_path="/storage")

        assert run.assignment["points"] == [
            {"params": {"learning_rate": 4.0}, "source": "the study's own list"},
            {"params": {"learning_rate": 2.0}, "source": f"{old} trial 1"},
        ]
        assert run.assignment["search"]["first"] == [{"learning_rate": 4}]

    async def test_one_outside_the_space_is_refused_by_its_place(
        self, history: History, client: httpx.AsyncClient
    ) -> None:
        first = [{"learning_rate": 4.0}, {"learning_rate": 40.0}]
        for path in ("/studies", "/plans"):
            body = make_spec(search={"space": SPACE, "first": first})
            response = await client.post(path, json=body)

            assert response.status_code == 422
            (error,) = response.json()["errors"]
            assert (error["path"], error["value"]) == ("search.first.1.learning_rate", 40.0)
            assert "accepted: numbers from 0.1 to 10.0" in error["message"]


class TestPrivacy:
    """What private data taught a search is never told to one that reads public data only."""

    PROXY = {"accounting": "public_proxy", "dataset": "open"}  # noqa: RUF012
    ON_TABLE = {"dataset": "secret", "train": {"batch_size": 16, "steps": 20}}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    async def tables(self, client: httpx.AsyncClient, tmp_path: Path) -> None:
        """A private and a public table that look alike."""
        secret = {"epsilon": 50.0, "delta": 1e-3, "waiver": "me: mine"}
        for shift, (name, fields) in enumerate([("secret", secret), ("open", {"public": True})]):
            await register_table(client, tmp_path, name=name, shift=shift, **fields)

    @pytest.mark.slow
    async def test_a_proxy_learns_from_searches_on_the_proxy_alone(self, history: History) -> None:
        await history.study({0: (1.0, 0.9)}, **self.ON_TABLE)
        proxy = await history.study({0: (2.0, 0.9)}, search=self.PROXY, **self.ON_TABLE)

        found = await history.points(search=self.PROXY, **self.ON_TABLE)

        assert found == {f"{proxy} trial 0": 2.0}

    @pytest.mark.slow
    async def test_nor_when_it_names_the_study(self, history: History) -> None:
        private = await history.study({0: (1.0, 0.9)}, **self.ON_TABLE)

        response = await history.submit(
            search={**self.PROXY, "warm_start": [private]}, **self.ON_TABLE
        )

        assert response.status_code == 422
        (error,) = response.json()["errors"]
        assert error["path"] == "search.warm_start.0"
        assert "its search read 'secret', this one reads 'open'" in error["message"]

    @pytest.mark.parametrize(
        "given", [{"space": {"learning_rate": 7.5}}, {"first": [{"learning_rate": 7.5}]}]
    )
    async def test_nor_from_one_that_was_told_what_private_data_had_shown(
        self, history: History, given: dict[str, Any]
    ) -> None:
        """A trial of the proxy whose parameters came from a search that nobody paid for would hide where they are from."""
        unpaid = await history.study({0: (7.5, 0.9)}, **self.ON_TABLE)
        tainted = await history.study(
            {0: (7.5, 0.9)}, search={**self.PROXY, **given}, **self.ON_TABLE
        )
        clean = await history.study({0: (2.0, 0.8)}, search=self.PROXY, **self.ON_TABLE)

        assert await history.points(search=self.PROXY, **self.ON_TABLE) == {f"{clean} trial 0": 2.0}
        response = await history.submit(
            search={**self.PROXY, "warm_start": [clean, tainted]}, **self.ON_TABLE
        )
        (error,) = response.json()["errors"]
        assert error["path"] == "search.warm_start.1"
        assert f"are those of trial 0 of {unpaid}" in error["message"]
        assert "this one reads public data only" in error["message"]

    async def test_whom_a_person_promoted_is_not_asked(
        self, history: History, database: Database
    ) -> None:
        """They may have looked at test accuracies, which are private data's."""
        source = await history.study(
            {0: (1.0, 0.9), 1: (2.0, 0.8), 2: (3.0, 0.7)}, search=self.PROXY, **self.ON_TABLE
        )
        async with database.session() as session:
            study = await session.get_one(Study, source)
            study.promoted_trial = 2
            standings = [{"trial": number} for number in (0, 1, 2)]
            study.promotion = {"trial": 2, "by": "user", "standings": standings}

        found = await history.points(search=self.PROXY, **self.ON_TABLE)

        assert list(found) == [f"{source} trial 0", f"{source} trial 1"]


class TestNamed:
    async def test_they_are_asked_in_order_and_once(self, history: History) -> None:
        made = [await history.study({0: (1.0 + n, 0.9)}) for n in range(7)]
        asked = [made[0], made[2], made[0]]
        found = await history.points(search={"warm_start": asked})
        assert list(found) == [f"{made[0]} trial 0", f"{made[2]} trial 0"]

    async def test_the_shortest_search_takes_one_point(self, history: History) -> None:
        old = await history.study({0: (1.0, 0.9), 1: (2.0, 0.8)})
        found = await history.points(search={"warm_start": [old], "trials": 1})
        assert found == {f"{old} trial 0": 1.0}

    async def test_what_cannot_be_learnt_from_is_refused_by_its_place(
        self, history: History, client: httpx.AsyncClient
    ) -> None:
        good = await history.study({0: (1.0, 0.9)})
        other = await history.study({0: (1.0, 0.9)}, model={"name": "mlp"})
        search = {"space": SPACE, "warm_start": [good, "s-000000000000", other]}

        for path in ("/studies", "/plans"):
            response = await client.post(path, json=make_spec(search=search))

            assert response.status_code == 422
            errors = response.json()["errors"]
            assert [(error["path"], error["value"]) for error in errors] == [
                ("search.warm_start.1", "s-000000000000"),
                ("search.warm_start.2", other),
            ]
            assert "no study of this id" in errors[0]["message"]
            assert "a study of model mlp; accepted: studies of linear" in errors[1]["message"]

    async def test_nor_is_a_study_of_features_on_another_scale(
        self, history: History, client: httpx.AsyncClient
    ) -> None:
        plain = {"name": "scatter-linear"}
        made = await history.study({0: (1.0, 0.9)}, model=plain)
        search = {"space": SPACE, "warm_start": [made]}
        whitened = {**plain, "normalization": "whitened"}

        response = await client.post("/studies", json=make_spec(search=search, model=whitened))

        assert response.status_code == 422
        (error,) = response.json()["errors"]
        assert error["path"] == "search.warm_start.0"
        assert "accepted: studies whose features are" in error["message"]


class TestKnownSource:
    """Parameters that an earlier search on the same data found without being accounted, in studies of other modes."""

    RATE = 1.2345678901234567
    NOTE = "search on private data NOT accounted"
    GIVEN: ClassVar[dict[str, Any]] = {"accounting": "no_search", "trials": 0, "space": {}}
    CHARGED: ClassVar[dict[str, Any]] = {"accounting": "accounted", "trials": 1, "rungs": [64]}

    @pytest.fixture
    async def source(self, history: History) -> str:
        return await history.study({0: (2.0, 0.7), 3: (self.RATE, 0.9)})

    async def submitted(self, history: History, **changes: Any) -> dict[str, Any]:
        response = await history.submit(**changes)
        assert response.status_code == 201, response.text
        return response.json()

    async def test_what_was_found_for_nothing_is_said_beside_every_epsilon(
        self, history: History, client: httpx.AsyncClient, source: str
    ) -> None:
        made = await self.submitted(history, search=self.GIVEN, train={"learning_rate": self.RATE})

        note = (
            "hyper-parameters given with the study, nothing searched; they are those of trial 3 of "
            f"{source}: {self.NOTE}"
        )
        assert made["plan"]["learnt_from"] == f"trial 3 of {source}"
        assert made["plan"]["search_privacy"]["note"] == note
        assert made["privacy"]["search_note"] == note
        (listed, _) = (await client.get("/studies")).json()["items"]
        assert listed["search_note"] == note
        async with history.owner.session() as session:
            private = {"kind": "private", "state": "active", "assignment": {}}
            session.add(Run(id=f"{made['id']}-private", study_id=made["id"], **private))
        curves = await client.get(f"/studies/{made['id']}/run")
        assert curves.json()["search_note"] == note

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "space",
        [
            {"learning_rate": RATE},
            {"train.learning_rate": RATE},
            {"learning_rate": {"choices": [RATE]}},
        ],
        ids=["fixed", "dotted", "one choice"],
    )
    async def test_a_search_that_is_paid_for_and_fixes_them_says_it_too(
        self, history: History, source: str, space: dict[str, Any]
    ) -> None:
        search = {**self.CHARGED, "space": space}

        made = await self.submitted(history, search=search)

        assert made["privacy"]["search_note"] == (
            "search on private data accounted, every trial of it; hyper-parameters that it fixes are those of "
            f"trial 3 of {source}: {self.NOTE}"
        )

    @pytest.mark.slow
    async def test_so_does_one_that_tries_them_first(self, history: History, source: str) -> None:
        search = {**self.CHARGED, "trials": 4}

        made = await self.submitted(
            history,
            search={**search, "first": [{"learning_rate": 0.5}, {"learning_rate": self.RATE}]},
        )
        other = await self.submitted(history, search={**search, "first": [{"learning_rate": 0.5}]})

        assert made["plan"]["learnt_from"] == f"trial 3 of {source}"
        assert self.NOTE in made["privacy"]["search_note"]
        assert "learnt_from" not in other["plan"]

    @pytest.mark.slow
    async def test_and_no_other_search_that_is_paid_for_learns_from_it(
        self, history: History, source: str
    ) -> None:
        fixed = {**self.CHARGED, "space": {"learning_rate": self.RATE}}
        made = await history.study({0: (self.RATE, 0.9)}, search=fixed)

        assert await history.points(search={**self.CHARGED, "trials": 4}) == {}
        response = await history.submit(search={**self.CHARGED, "warm_start": [made]})
        (error,) = response.json()["errors"]
        assert error["path"] == "search.warm_start.0"
        assert f"are those of trial 3 of {source}, whose search on these data" in error["message"]

    @pytest.mark.parametrize(
        "changes",
        [
            {"train": {"learning_rate": 1.2345678901234565}},
            {"train": {"learning_rate": RATE}, "model": {"name": "mlp"}},
            {"search": CHARGED, "train": {"learning_rate": RATE}},
        ],
        ids=["another value", "another model", "searched anew"],
    )
    async def test_nothing_is_said_of_what_cannot_be_known(
        self, history: History, source: str, changes: dict[str, Any]
    ) -> None:
        made = await self.submitted(history, **{"search": self.GIVEN, **changes})

        assert "learnt_from" not in made["plan"]
        assert self.NOTE not in made["privacy"]["search_note"]

    @pytest.mark.slow
    async def test_nor_of_trials_of_other_data_of_searches_that_were_paid_for_or_that_nobody_saw(
        self, history: History, owner: Database, tmp_path: Path
    ) -> None:
        await register_table(
            history.client, tmp_path, name="other", epsilon=50.0, delta=1e-3, waiver="me: mine"
        )
        train = {"learning_rate": self.RATE}
        on_table = {"dataset": "other", "privacy": {"delta": 1e-3}}
        await history.study(
            {0: (self.RATE, 0.9)}, **on_table, train={"batch_size": 16, "steps": 50}
        )
        await history.study({0: (self.RATE, 0.9)}, search={**self.CHARGED, "trials": 3})
        unseen = await history.study({0: (self.RATE, 0.9)})
        async with owner.session() as session:
            (await session.get_one(Trial, (unseen, 0))).scores = []

        made = await self.submitted(history, search=self.GIVEN, train=train)

        assert "learnt_from" not in made["plan"]

    async def test_nor_of_what_another_tenant_found(
        self, history: History, owner: Database, database: Database, source: str
    ) -> None:
        async with owner.session() as session:
            (await session.get_one(Study, source)).tenant = "another"
        spec = StudySpec.model_validate(
            make_spec(search=self.GIVEN, train={"learning_rate": self.RATE})
        )
        async with database.session() as session:
            asked = {
                tenant: await learnt_from(session, spec, dataset="digits", tenant=tenant)
                for tenant in ("local", "another", None)
            }
        known = f"trial 3 of {source}"
        assert asked == {"local": None, "another": known, None: known}
