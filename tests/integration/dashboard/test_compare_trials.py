"""Trials of one study side by side, over the real application and database."""

import csv
import io

import httpx
import pytest

from service.context import Context
from service.dashboard.compare_trials import param_rows
from service.datasets.service import ensure_digits
from service.db.session import Database
from service.trials.service import view as trial_view
from tests.integration.dashboard import charged, rich, seeding
from tests.integration.dashboard.page import get
from tests.integration.dashboard.test_accounted import FALSE_WORDS
from tests.integration.dashboard.test_numbers import Known, check, shown
from tests.support.world import World


def path_of(study_id: str, numbers: list[int], name: str = "", more: str = "") -> str:
    chosen = "&".join(f"trial={number}" for number in numbers)
    return f"/ui/studies/{study_id}/trials/compare{name}?{chosen}{more}"


async def trials_of(client: httpx.AsyncClient, study_id: str) -> list[dict]:
    return (await client.get(f"/studies/{study_id}/trials?limit=1000")).json()["items"]


class TestComparing:
    async def test_every_number_is_the_apis(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.completed(context)
        study = (await client.get(f"/studies/{study_id}")).json()
        best = study["promotion"]["trial"]
        trials = await trials_of(client, study_id)

        page = await get(client, path_of(study_id, [best, 0, 2]))

        known = Known(study, [trials[number] for number in (best, 0, 2)])
        check(await shown(client, path_of(study_id, [best, 0, 2])), known, least=40)
        results = page.text["results"]
        for said in ("promoted", "2 fresh seeds", "not private", "below the best at batch 16"):
            assert said in results
        for said in ("taken from s-0123456789ab trial 7", "training loss is not finite at step 41"):
            assert said in results
        again = sorted(each["accuracy"] for each in trials[best]["repeats"] if each["rung"] == 2)
        assert {again[0], again[-1]} <= set(page.data["results"])
        standing = next(one for one in study["promotion"]["standings"] if one["trial"] == best)
        assert standing["accuracy"] in page.data["results"]

    async def test_differences_of_parameters_are_marked(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.simulating(context)

        page = await get(client, path_of(study_id, [3, 7]))

        assert len([a for a in page.all("tr") if a.get("class") == "differs"]) == 1
        assert len([a for a in page.all("td") if a.get("class") == "other"]) == 1
        assert "learning_rate" in page.text["params"]
        assert "momentum" in page.text["params"]

    async def test_curves_are_a_chart_and_a_file_for_each_rung(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.simulating(context, trials=0, **rich.spec_changes(20))
        await rich.fill(context, study_id, 20)
        trials = await trials_of(client, study_id)
        highest = next(one for one in trials if len(one["scores"]) == 3)
        lowest = next(one for one in trials if len(one["scores"]) == 1)
        numbers = [lowest["number"], highest["number"]]

        page = await get(client, path_of(study_id, numbers))

        figures = [a["id"] for a in page.all("figure")]
        assert figures == ["curves-0", "curves-1", "curves-2"]
        for rung, told in ((0, [lowest, highest]), (2, [highest])):
            answer = await client.get(path_of(study_id, numbers, "/curves.csv", f"&rung={rung}"))
            assert path_of(study_id, numbers, "/curves.csv", f"&rung={rung}") in {
                a.get("href") for a in page.all("a")
            }
            rows = list(csv.DictReader(io.StringIO(answer.text)))
            assert [(int(row["trial"]), float(row["accuracy"])) for row in rows] == [
                (one["number"], point["accuracy"])
                for one in told
                for point in one["scores"][rung]["curve"]
            ]

    async def test_the_file_is_that_of_all_trials_with_the_chosen_alone(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.simulating(context)

        every = (await client.get(f"/ui/studies/{study_id}/trials.csv?order=number")).text
        some = await client.get(path_of(study_id, [7, 3], "/trials.csv"))

        head, *rows = every.splitlines()
        assert some.text.splitlines() == [head, rows[7], rows[3]]

    async def test_trials_that_were_charged_have_a_score_and_no_curve(
        self, client: httpx.AsyncClient, context: Context, database: Database
    ) -> None:
        await ensure_digits(database)
        world = World(client, context.settings, database)
        study_id = await charged.searched(world, goes_on=True)

        page = await get(client, path_of(study_id, [1, 2]))

        results = page.text["results"]
        assert f"noisy by {await charged.noise_of(world, study_id)}, paid for" in results
        assert "on from trial 1, at a learning rate of 1" in results
        assert not [word for word in (*FALSE_WORDS, "clipped") if word in results.lower()]
        assert "all that is told of a private trial is its score" in page.text["main"]

    async def test_the_table_of_trials_leads_there(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.simulating(context)

        page = await get(client, f"/ui/studies/{study_id}")

        ticks = [a for a in page.all("input") if a.get("name") == "trial"]
        assert {str(a["value"]) for a in ticks} == {str(number) for number in range(12)}
        assert all(a["aria-label"] == f"Choose trial {a['value']}" for a in ticks)
        assert path_of(study_id, []).rstrip("?") in {a.get("action") for a in page.all("form")}


class TestRefusals:
    @pytest.mark.parametrize("numbers", [[], [3], [3, 3], [0, 1, 2, 3, 4, 5, 6]])
    async def test_two_to_six_are_compared(
        self, client: httpx.AsyncClient, context: Context, numbers: list[int]
    ) -> None:
        study_id = await seeding.simulating(context)

        page = await get(client, path_of(study_id, numbers), status=422)

        said = f"2 to 6 trials can be compared: tick them in the study's table of trials; got {len(set(numbers))}"
        assert said in page.text["main"]
        assert f"/ui/studies/{study_id}#trials-head" in {a.get("href") for a in page.all("a")}

    async def test_unknown_ones_are_named(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.simulating(context)

        page = await get(client, path_of(study_id, [98, 3, 99]), status=404)

        assert "has no trial 98, 99" in page.text["main"]
        assert f"/ui/studies/{study_id}#trials-head" in {a.get("href") for a in page.all("a")}
        for name, more in (("/trials.csv", ""), ("/curves.csv", "&rung=0")):
            missing = await client.get(path_of(study_id, [3, 99], name, more))
            assert missing.status_code == 404

    @pytest.mark.parametrize("number", ["x", "-1", "2147483648"])
    async def test_what_is_no_number_of_a_trial_is_said_to_be_none(
        self, client: httpx.AsyncClient, context: Context, number: str
    ) -> None:
        study_id = await seeding.simulating(context)

        page = await get(client, f"{path_of(study_id, [3])}&trial={number}", status=422)

        assert "trial" in page.text["main"]

    async def test_curves_that_nobody_told_are_none(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.simulating(context)

        page = await get(client, path_of(study_id, [3, 7]))
        missing = await client.get(path_of(study_id, [3, 7], "/curves.csv", "&rung=0"))

        assert "None of these trials has told one yet." not in page.text["main"]
        assert "None of these trials has told one." in page.text["main"]
        assert missing.status_code == 404


def test_a_parameter_that_one_trial_lacks_differs() -> None:
    made = [seeding.trial("s-1", number) for number in (3, 7)]
    made[1].params = {"learning_rate": made[0].params["learning_rate"]}
    for each in made:
        each.started_at = each.updated_at = rich.BEGAN

    rows = param_rows([trial_view(each) for each in made])

    assert [(row.path, row.values[1], row.differs) for row in rows] == [
        ("learning_rate", made[0].params["learning_rate"], False),
        ("momentum", None, True),
    ]
