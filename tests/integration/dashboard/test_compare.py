"""Studies side by side, over the real application and database."""

import httpx
import pytest

from service.context import Context
from service.dashboard.compare import spec_rows
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import get


@pytest.fixture
async def two(context: Context) -> list[str]:
    wide = {"name": "mlp", "hidden": [128]}
    return [
        await seeding.completed(context, name="narrow"),
        await seeding.training(context, name="wide", model=wide),
    ]


def path_of(ids: list[str], name: str = "") -> str:
    return f"/ui/compare{name}?{'&'.join(f'study={id_}' for id_ in ids)}"


class TestComparing:
    async def test_every_number_is_the_apis(
        self, client: httpx.AsyncClient, two: list[str]
    ) -> None:
        page = await get(client, path_of(two))
        studies = [(await client.get(f"/studies/{id_}")).json() for id_ in two]

        expected = {
            value
            for one in studies
            for value in (
                one["privacy"]["epsilon"],
                one["best_trial"]["value"],
                one["prediction"]["accuracy"],
                one["plan"]["cost"]["search_examples"],
                one["plan"]["cost"]["private_run_examples"],
                one["plan"]["cost"]["saving"],
                one["privacy"]["charged_steps"],
                one["progress"]["trials_finished"],
            )
        } | {studies[0]["run"]["test_accuracy"]}
        assert expected <= set(page.data["results"])

    async def test_accuracies_of_two_kinds_are_said_not_to_compare(
        self, client: httpx.AsyncClient, context: Context, two: list[str]
    ) -> None:
        shares = {"class_shares": [1.0] * 10}
        alike = await seeding.completed(
            context, name="alike", search={"metric": "balanced_accuracy"}, train=shares
        )

        both = await get(client, path_of([two[0], alike]))
        assert "a balanced accuracy and one of all records do not compare" in both.text["main"]
        assert "balanced: the mean over the classes" in both.text["main"]
        assert "balanced" not in (await get(client, path_of(two))).text["main"]

    async def test_differences_are_marked_and_agreements_are_not(
        self, client: httpx.AsyncClient, two: list[str]
    ) -> None:
        response = await client.get(path_of(two, "/spec.csv"))
        page = await get(client, path_of(two))

        rows = dict(line.split(",", 1) for line in response.text.splitlines())
        assert rows["field"] == "narrow,wide"
        assert rows["model.hidden"] == "[64],[128]"
        assert rows["train.steps"] == "300,300"
        marked = [a for a in page.all("tr") if a.get("class") == "differs"]
        assert len(marked) == 2  # as it was asked for, and as it was trained

    async def test_what_was_trained_stands_beside_each_other(
        self, client: httpx.AsyncClient, two: list[str]
    ) -> None:
        page = await get(client, path_of(two))
        response = await client.get(path_of(two, "/trained.csv"))
        studies = [(await client.get(f"/studies/{id_}")).json() for id_ in two]

        rows = dict(line.split(",", 1) for line in response.text.splitlines())
        best = [study["best_trial"] for study in studies]
        rate = "learning_rate"
        assert rows[f"train.{rate}"] == ",".join(str(one["params"][rate]) for one in best)
        assert rows["train.ema_decay"] == "0.0,0.0"  # was searched, and no trial has one
        assert rows["model.hidden"] == "[64],[128]"
        assert "train.clip_norm" not in rows  # fixed, and the same
        assert "train.learning_rate" in page.text["trained"]
        for study, one in zip(studies, best, strict=True):
            address = f"/ui/studies/{study['id']}/trials/{one['number']}"
            assert address in {a.get("href") for a in page.all("a")}
        assert "promoted" in page.text["results"]

    async def test_searches_and_predictions_can_be_downloaded(
        self, client: httpx.AsyncClient, two: list[str]
    ) -> None:
        history = await client.get(path_of(two, "/history.csv"))
        predictions = await client.get(path_of(two, "/predictions.csv"))

        spending = await client.get(path_of(two, "/spending.csv"))
        updates = await client.get(path_of(two, "/updates.csv"))

        assert spending.text.splitlines()[0] == "steps charged,narrow,wide"
        assert updates.text.splitlines()[0] == "step,narrow,wide"
        for place, id_ in enumerate(two, start=1):
            run = (await client.get(f"/studies/{id_}/run")).json()
            shown = [row.split(",") for row in spending.text.splitlines()[1:]]
            drawn = {int(row[0]): float(row[place]) for row in shown if row[place]}
            assert drawn == {
                point["charged_steps"]: point["epsilon"]
                for point in run["spending"]
                if point["charged_steps"] <= run["charged_steps"]
            }
        assert history.text.splitlines()[0] == "trial,narrow,wide"
        api = (await client.get(f"/studies/{two[0]}")).json()["prediction"]
        rows = [line.split(",") for line in predictions.text.splitlines()]
        (predicted,) = [row for row in rows if row[:2] == ["narrow", "predicted"]]
        assert float(predicted[3]) == api["accuracy"]

    async def test_equal_specs_differ_nowhere(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        twins = [await seeding.submitted(context, name=name) for name in ("one", "other")]

        page = await get(client, path_of(twins))

        assert not [a for a in page.all("tr") if a.get("class") == "differs"]

    async def test_a_study_without_a_trial_stands_beside_others(
        self, client: httpx.AsyncClient, context: Context, two: list[str]
    ) -> None:
        queued = await seeding.submitted(context, name="queued")

        page = await get(client, path_of([queued, *two]))

        assert "queued" in page.text["results"]

    async def test_what_is_not_known_yet_is_no_difference(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        queued = await seeding.submitted(context, name="queued")
        done = await seeding.completed(context, name="done")

        for ids in ([queued, done], [done, queued]):
            page = await get(client, path_of(ids))
            assert "no trial" in page.text["trained"]
            assert not [cell for cell in page.all("td") if cell.get("class") == "other"]


class TestRefusals:
    @pytest.mark.parametrize("count", [0, 1, 7])
    async def test_two_to_six_are_compared(self, client: httpx.AsyncClient, count: int) -> None:
        response = await client.get(path_of([f"s-{i:012d}" for i in range(count)]))

        assert response.status_code == 422
        assert f"2 to 6 studies can be compared: tick them in the list of studies; got {count}" in (
            response.text
        )

    async def test_a_study_twice_is_one(self, client: httpx.AsyncClient, two: list[str]) -> None:
        response = await client.get(path_of([two[0], two[0]]))

        assert response.status_code == 422

    async def test_an_unknown_one_is_named(self, client: httpx.AsyncClient, two: list[str]) -> None:
        response = await client.get(path_of([two[0], "s-nowhere"]))

        assert response.status_code == 404
        assert "s-nowhere" in response.text


def test_a_field_that_one_study_lacks_differs() -> None:
    rows = spec_rows([{"model": {"name": "mlp", "hidden": [64]}}, {"model": {"name": "linear"}}])

    assert [(row.path, row.values, row.differs) for row in rows] == [
        ("model.name", ["mlp", "linear"], True),
        ("model.hidden", [[64], None], True),
    ]
