from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import inspect

from service.calibration.repository import earlier_errors
from service.db.tables import Dataset, Run, Study
from service.studies.schemas import Prediction
from tests.fixtures.api import make_spec

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def make_prediction(**changes: Any) -> dict[str, Any]:
    """90 % within two points."""
    accuracy = changes.pop("accuracy", 0.95)
    fields = {
        "accuracy": accuracy,
        "low": accuracy - 0.02,
        "high": accuracy + 0.02,
        "level": 0.9,
        "expected_batch_size": 256.0,
        "trial": 3,
        "seeds": 2,
        "is_fresh": True,
        "method": "line",
        "slope": -0.01,
        "caution": None,
        **changes,
    }
    return Prediction.model_validate(fields).model_dump(mode="json")


@pytest.fixture
def finished(client, database):
    """Makes a study that was predicted, and has come to its end."""

    async def make(
        *,
        accuracy: float | None = 0.95,
        reached: float | None,
        state: str = "completed",
        minutes: int = 0,
        **changes: Any,
    ) -> str:
        study_id = (await client.post("/studies", json=make_spec(**changes))).json()["id"]
        async with database.session() as session:
            study = await session.get_one(Study, study_id)
            study.state, study.finished_at = state, NOON + timedelta(minutes=minutes)
            study.prediction = None if accuracy is None else make_prediction(accuracy=accuracy)
            study.statement = {"privacy": {"epsilon": 2.5}}
            run = Run(
                id=f"{study_id}-private",
                study_id=study_id,
                kind="private",
                state="succeeded",
                assignment={},
                result=None if reached is None else {"test_accuracy": reached, "num_test": 359},
            )
            session.add(run)
        return study_id

    return make


async def calibration(client, **params: Any) -> dict[str, Any]:
    response = await client.get("/calibration", params=params)
    assert response.status_code == 200, response.text
    return response.json()


class TestCalibration:
    async def test_a_service_without_studies_has_none(self, client) -> None:
        assert await calibration(client) == {
            "level": 0.9,
            "studies": 0,
            "inside": 0,
            "coverage": None,
            "mean_absolute_error": None,
            "items": [],
        }

    async def test_a_study_stands_with_what_it_was_predicted_and_reached(
        self, client, finished
    ) -> None:
        study_id = await finished(reached=0.96, name="one")

        (item,) = (await calibration(client))["items"]

        assert item.pop("error") == pytest.approx(0.01)
        assert item == {
            "study": study_id,
            "name": "one",
            "dataset": "digits",
            "model": "linear",
            "metric": "accuracy",
            "epsilon": 2.5,
            "trial": 3,
            "predicted": 0.95,
            "low": pytest.approx(0.93),
            "high": pytest.approx(0.97),
            "reached": 0.96,
            "inside": True,
            "finished_at": "2026-11-21T12:00:00Z",
        }

    async def test_all_are_counted_however_few_are_listed(self, client, finished) -> None:
        for minutes, reached in enumerate((0.95, 0.99, 0.93)):
            await finished(reached=reached, minutes=minutes)

        found = await calibration(client, limit=1)

        assert (found["studies"], found["inside"]) == (3, 2)
        assert found["coverage"] == pytest.approx(2 / 3)
        assert found["mean_absolute_error"] == pytest.approx((0.0 + 0.04 + 0.02) / 3)
        assert [item["reached"] for item in found["items"]] == [0.93]

    async def test_only_completed_studies_with_both_figures_count(self, client, finished) -> None:
        await finished(reached=0.9, state="failed")
        await finished(reached=None)
        await finished(reached=0.9, accuracy=None)

        assert (await calibration(client))["studies"] == 0

    async def test_filters_by_dataset_and_model(self, client, finished) -> None:
        linear = await finished(reached=0.95)
        mlp = await finished(reached=0.95, model={"name": "mlp"})

        async def listed(**params: str) -> list[str]:
            found = await calibration(client, **params)
            assert found["studies"] == len(found["items"])
            return [item["study"] for item in found["items"]]

        assert set(await listed(dataset="digits")) == {linear, mlp}
        assert await listed(dataset="mnist") == []
        assert await listed(model="mlp") == [mlp]
        assert await listed(model="mlp", dataset="digits") == [mlp]

    @pytest.mark.parametrize(
        "params", [{"limit": 0}, {"limit": 201}, {"dataset": "a b"}, {"model": "\x00"}]
    )
    async def test_what_cannot_be_asked_is_refused_by_name(self, client, params) -> None:
        response = await client.get("/calibration", params=params)
        assert response.status_code == 422
        assert [error["path"] for error in response.json()["errors"]] == list(params)


class TestPredictionOfAStudy:
    async def test_what_came_of_it_is_told_once_it_is_known(self, client, finished) -> None:
        study_id = await finished(reached=0.98)

        prediction = (await client.get(f"/studies/{study_id}")).json()["prediction"]

        assert prediction["reached"] == 0.98
        assert prediction["error"] == pytest.approx(0.03)
        assert prediction["inside"] is False

    async def test_before_that_it_stands_alone(self, client, finished) -> None:
        study_id = await finished(reached=None, state="training")

        prediction = (await client.get(f"/studies/{study_id}")).json()["prediction"]

        assert prediction == {
            **make_prediction(),
            "reached": None,
            "error": None,
            "inside": None,
        }


class TestEarlierErrors:
    @staticmethod
    async def errors(database, study_id: str) -> list[float]:
        async with database.session() as session:
            study = await session.get_one(Study, study_id)
            return [round(error, 6) for error in await earlier_errors(session, study)]

    async def test_they_are_those_of_studies_on_the_same_data_the_newest_first(
        self, client, database, finished
    ) -> None:
        await finished(accuracy=0.95, reached=0.97, minutes=1)
        await finished(accuracy=0.95, reached=0.94, minutes=2)
        await finished(accuracy=None, reached=0.94)
        await finished(reached=None)
        await finished(reached=0.5, state="failed")
        new = (await client.post("/studies", json=make_spec())).json()["id"]

        assert await self.errors(database, new) == [-0.01, 0.02]

    async def test_accuracies_of_another_kind_tell_nothing(
        self, client, database, owner, finished
    ) -> None:
        """Nor do those of studies from before there was a choice tell of a balanced one."""
        changes = {
            "search": {"metric": "balanced_accuracy"},
            "train": {"class_shares": [1.0] * 10},
        }
        await finished(accuracy=0.8, reached=0.85, minutes=1, **changes)
        of_all = await finished(accuracy=0.95, reached=0.97, minutes=2)
        new = (await client.post("/studies", json=make_spec())).json()["id"]
        balanced = (await client.post("/studies", json=make_spec(**changes))).json()["id"]

        assert await self.errors(database, new) == [0.02]
        assert await self.errors(database, balanced) == [0.05]
        async with owner.session() as session:
            for study_id in (of_all, new):
                study = await session.get_one(Study, study_id)
                search = {k: v for k, v in study.spec["search"].items() if k != "metric"}
                study.spec = {**study.spec, "search": search}
        assert await self.errors(database, new) == [0.02]
        assert await self.errors(database, balanced) == [0.05]

    async def test_what_nobody_paid_for_tells_a_charged_search_nothing(
        self, client, database, finished
    ) -> None:
        """Simulations on the private data were behind it, whose scores no price of the charged search covers."""
        charged = {"search": {"accounting": "accounted", "trials": 2, "rungs": [64]}}
        await finished(accuracy=0.95, reached=0.97, minutes=1)
        await finished(accuracy=0.95, reached=0.94, minutes=2, **charged)
        free = (await client.post("/studies", json=make_spec())).json()["id"]
        paid = (await client.post("/studies", json=make_spec(**charged))).json()["id"]

        assert await self.errors(database, paid) == [-0.01]
        assert await self.errors(database, free) == [-0.01, 0.02]

    async def test_what_a_prediction_had_learnt_itself_is_no_part_of_its_error(
        self, client, database, finished
    ) -> None:
        """Else what studies learn would be learnt away again."""
        earlier = await finished(accuracy=0.95, reached=0.95)
        async with database.session() as session:
            study = await session.get_one(Study, earlier)
            study.prediction = {**study.prediction, "shift": 0.01, "shift_studies": 3}
        new = (await client.post("/studies", json=make_spec())).json()["id"]

        assert await self.errors(database, new) == [0.01]

    @pytest.mark.parametrize(
        "told",
        [
            {"is_fresh": False},
            {"method": "largest_rung"},
            {"accuracy": 1.0, "shift": 0.02},
            {"accuracy": 0.0, "shift": -0.02},
        ],
    )
    async def test_what_was_wrong_for_another_reason_is_not_learnt(
        self, client, database, finished, told
    ) -> None:
        """Luck of the trial that was chosen, an assumed slope, and what lies past 0 and 1."""
        earlier = await finished(accuracy=0.95, reached=0.97)
        async with database.session() as session:
            study = await session.get_one(Study, earlier)
            study.prediction = {**study.prediction, **told}
        new = (await client.post("/studies", json=make_spec())).json()["id"]

        assert await self.errors(database, new) == []

    async def test_what_was_proposed_is_what_is_approved_whatever_ended_meanwhile(
        self, client, database, finished
    ) -> None:
        await finished(accuracy=0.95, reached=0.97, minutes=1)
        await finished(accuracy=0.95, reached=0.94, minutes=3)
        waiting = (await client.post("/studies", json=make_spec())).json()["id"]
        async with database.session() as session:
            search = Run(
                id=f"{waiting}-search",
                study_id=waiting,
                kind="search",
                state="succeeded",
                assignment={},
                finished_at=NOON + timedelta(minutes=2),
            )
            session.add(search)

        assert await self.errors(database, waiting) == [0.02]

    async def test_other_data_and_tenants_tell_nothing(
        self, client, database, owner, finished
    ) -> None:
        searched, trained, foreign = [await finished(reached=0.97) for _ in range(3)]
        new = (await client.post("/studies", json=make_spec())).json()["id"]
        async with owner.session() as session:
            source = await session.get_one(Dataset, "digits")
            columns = {one.key: getattr(source, one.key) for one in inspect(Dataset).column_attrs}
            own = {"name": "elsewhere", "content_sha256": "0" * 64, "public": True}
            session.add(Dataset(**{**columns, **own}))
            await session.flush()
            (await session.get_one(Study, searched)).search_dataset = "elsewhere"
            (await session.get_one(Study, trained)).dataset = "elsewhere"
            (await session.get_one(Study, foreign)).tenant = "another"

        assert await self.errors(database, new) == []
