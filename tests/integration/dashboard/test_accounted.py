"""The pages of studies whose search is charged: nothing on them is a simulation, and every score says its noise."""

import csv
import io

import httpx
import pytest
import yaml

from service.context import Context
from service.datasets.service import ensure_digits
from service.db.session import Database
from service.db.tables import Trial
from service.ledger import names
from tests.fixtures.api import make_spec
from tests.integration.dashboard.charged import (
    CHARGED,
    STEPS,
    completed,
    noise_of,
    searched,
    searching,
)
from tests.integration.dashboard.page import get
from tests.support.world import World

FALSE_WORDS = ("simulat", "not private", "climb", "finals", "pruned", "fresh seed")
"""Of a search that is charged."""


@pytest.fixture
async def world(client: httpx.AsyncClient, context: Context, database: Database) -> World:
    await ensure_digits(database)
    return World(client, context.settings, database)


class TestStudy:
    @pytest.mark.slow
    async def test_before_its_first_trial_it_says_what_will_be_paid(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        study_id = await searching(world)

        page = await get(client, f"/ui/studies/{study_id}")

        assert "charged with its noisy score before it runs" in page.text["trials"]
        assert "the noisy scores of all trials" in page.text["prediction"]
        assert "its trials and their scores" in page.text["plan"]
        assert "4 trials of 100 steps" in page.text["plan"]
        for part in ("the private run alone", "its 3 trials alone", "their scores alone"):
            assert part in page.text["plan"]
        assert f"Noise on a score{await noise_of(world, study_id)}" in page.text["plan"]
        assert "curves" not in page.text
        for part in ("figures", "progress", "prediction", "plan", "run"):
            assert not [word for word in FALSE_WORDS if word in page.text[part].lower()], part

    @pytest.mark.slow
    async def test_scores_stand_beside_their_noise_and_what_was_charged_for_them(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        study_id = await searched(world)
        noise = await noise_of(world, study_id)

        page = await get(client, f"/ui/studies/{study_id}")

        assert f"noisy by {noise}, paid for" in page.text["figures"]
        assert noise in page.text["trials-noise"]
        mechanism = (await client.get(f"/studies/{study_id}")).json()["plan"]["charged_search"]
        told = page.data["trials-noise"]
        for figure in ("sampling_rate", "noise_multiplier", "steps"):
            assert mechanism[figure] in told
        assert "from the noisy scores of all trials" in page.text["prediction"]
        assert f"noise of {noise}" in page.text["prediction"]
        assert "a noisy score is drawn towards" in page.text["beside-the-line"]
        assert "Seeds" not in page.text["candidates-scroll"]
        assert "Fresh seeds" not in page.text["trials"]
        assert f"{3 * STEPS} of {4 * STEPS}" in page.text["run"]
        assert "3 of 4" in page.text["run"]
        for part in ("figures", "progress", "prediction", "plan", "run", "trials-scroll"):
            assert not [word for word in FALSE_WORDS if word in page.text[part].lower()], part

    async def test_its_parts_draw_no_curve_and_tell_the_noise(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        study_id = await searched(world)
        address = f"/ui/studies/{study_id}"

        search = await client.get(f"{address}/search")
        curves = await client.get(f"{address}/curves")
        rows = list(csv.DictReader(io.StringIO((await client.get(f"{address}/trials.csv")).text)))
        chart = (await client.get(f"{address}/charts/prediction.csv")).text

        assert f"noise of {await noise_of(world, study_id)}" in search.text
        assert "simulated" not in search.text
        assert "all that is told of a private trial is its score" in curves.text
        assert "<select" not in curves.text
        assert [row["accuracy"] for row in rows] == [row["rung 0"] for row in rows]
        assert "noisy score" in chart
        assert "simulation" not in chart

    async def test_a_trials_page_has_its_score_and_nothing_else(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        study_id = await searched(world)
        async with world.database.session() as session:
            trial = await session.get_one(Trial, (study_id, 1))
            # What no worker sends, and no page would show.
            trial.scores = [{**trial.scores[0], "train_loss": 0.3, "clipped_fraction": 0.625}]

        page = await get(client, f"/ui/studies/{study_id}/trials/1")

        assert await noise_of(world, study_id) in page.text["reached"]
        assert "from all noisy scores" in page.text["reached"]
        assert "Training loss" not in page.text["simulations"]
        assert "62.5 %" not in page.text["simulations"]
        assert "clipped" not in page.text["main"].lower()
        assert not {"learning", "learning-head"} & page.text.keys()


async def test_of_a_trial_that_went_on_it_is_said_from_which_and_it_is_not_drawn_over_parameters(
    client: httpx.AsyncClient, world: World
) -> None:
    study_id = await searched(world, goes_on=True)
    address = f"/ui/studies/{study_id}"

    study = await get(client, address)
    trial = await get(client, f"{address}/trials/2")
    search = (await client.get(f"{address}/search")).text
    table = list(csv.DictReader(io.StringIO((await client.get(f"{address}/trials.csv")).text)))
    sliced = (await client.get(f"{address}/charts/slices.csv")).text
    history = (await client.get(f"{address}/charts/history.csv")).text

    assert (
        "on from trial 1, at a learning rate of 1, 0.5 times that of its parameters"
        in study.text["trials"]
    )
    assert "The first 2 of 3 trials begin anew" in study.text["plan"]
    assert "trial 2, at learning rate 0.5" in study.text["run"]
    assert (
        "from the weights of trial 1, at a learning rate of 1, 0.5 times"
        in trial.text["began-from"]
    )
    assert {row["trial"]: row["goes on from"] for row in table} == {"0": "", "1": "", "2": "1"}
    assert "What follows is of the 2 trials that began anew" in search
    assert "trial 1, the best of these" in search
    assert {line.split(",")[0] for line in sliced.splitlines()[1:]} == {"0", "1"}
    assert len(history.splitlines()) == 4


@pytest.mark.slow
async def test_the_statement_says_what_each_mechanism_is_of_and_what_the_search_cost(
    client: httpx.AsyncClient, world: World
) -> None:
    study_id = await completed(world)
    said = (await client.get(f"/studies/{study_id}/statement")).json()

    page = await get(client, f"/ui/studies/{study_id}/statement")

    assert "3 trials with their scores" in page.text["guarantee"]
    assert page.data["guarantee"][:3] == [
        said["privacy"]["epsilon"], said["privacy"]["delta"], said["search"]["epsilon"],
    ]  # fmt: skip
    heads = [a for a in page.all("h3") if a.get("class") == "event"]
    assert len(heads) == 3
    html = (await client.get(f"/ui/studies/{study_id}/statement")).text
    assert "Trials of the search: 3 private runs of their own" in html
    assert html.index(">Private run<") < html.index("Trials of the search:") < html.index(
        ">Scores of the trials<"
    )  # fmt: skip


async def test_the_dataset_tells_its_three_reservations_apart(
    client: httpx.AsyncClient, world: World
) -> None:
    study_id = await searched(world)

    page = await get(client, "/ui/datasets/digits")

    told = page.text["reservations"]
    assert all(each in told for each in (study_id, *names.of_search(study_id)))
    assert told.count("its trials") == told.count("their scores") == 1
    assert told.count("in the study’s") == 2
    assert "their scores" in page.text["journal"]


@pytest.mark.slow
async def test_beside_other_studies_it_says_what_its_epsilon_is_of(
    client: httpx.AsyncClient, world: World
) -> None:
    charged = await searched(world)
    free = await world.submit(name="free")
    both = f"study={charged}&study={free}"

    page = await get(client, f"/ui/compare?{both}")
    alone = await get(client, f"/ui/compare?study={free}&study={await world.submit(name='also')}")

    assert "and of a search that is accounted" in page.text["results"]
    assert await noise_of(world, charged) in page.text["results"]
    assert "that is accounted" not in alone.text["results"]
    for page_, says in ((page, True), (alone, False)):
        assert ("The run goes on from" in page_.text["results"]) is says
        assert ("a part of the learning rate" in page_.text["trained"]) is says


async def test_the_editor_says_what_submitting_reserves(
    client: httpx.AsyncClient, world: World
) -> None:
    text = yaml.safe_dump(make_spec(search=CHARGED))

    checked = await client.post("/ui/new", data={"yaml": text, "action": "check"})

    assert checked.status_code == 200, checked.text
    assert "The private run with its trials and their scores ends at" in checked.text
    assert "and for the search 4 trials of 100 steps with a score each" in checked.text
    assert "Private trials at" in checked.text
    assert "Simulated" not in checked.text


class TestPlanner:
    DIALS = "epsilon=8&num_examples=1295&batch_size=256&steps=100&trials=3&model=linear"

    @pytest.mark.slow
    async def test_the_plan_is_of_all_of_it_and_the_sketch_says_that_it_is_not(
        self, client: httpx.AsyncClient
    ) -> None:
        query = f"{self.DIALS}&accounting=accounted&certified=true"

        page = await get(client, f"/ui/plan?{query}")
        numbers = (await client.get(f"/ui/plan/cost.csv?{query}")).text

        assert "for the private run alone" in page.text["sketch-figures"]
        assert "with its trials and their scores" in page.text["plan-privacy"]
        assert "4 trials of 100 steps" in page.text["plan-reserved"]
        assert "Noise on a score± " in page.text["plan-figures"]
        for part in ("the private run alone", "its 3 trials alone", "their scores alone"):
            assert part in page.text["plan-privacy"]
        assert "not asked" in page.text["plan-privacy"]
        assert "finals" not in page.text["plan-figures"]
        assert "plan-modes" not in page.text
        assert numbers.splitlines()[0] == (
            "expected_batch_size,private_run_examples,full_search_examples"
        )

    @pytest.mark.slow
    async def test_other_modes_keep_their_ladder_and_the_table_of_modes(
        self, client: httpx.AsyncClient
    ) -> None:
        query = f"{self.DIALS}&accounting=declared_unaccounted&certified=true"

        page = await get(client, f"/ui/plan?{query}")
        numbers = (await client.get(f"/ui/plan/cost.csv?{query}")).text

        assert "for the private run alone" not in page.text["sketch-figures"]
        assert "accounted" in page.text["plan-modes"]
        assert "search_examples" in numbers.splitlines()[0].split(",")
