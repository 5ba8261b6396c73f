"""Predictions on the pages: of one study, of those who may be promoted, and of all studies."""

import json
from typing import Any

import httpx
import pytest

from service import text
from service.context import Context
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import Page, get

SHOWN_WITHIN = 10
"""Candidates of a long list."""


async def study_of(client: httpx.AsyncClient, study_id: str) -> dict[str, Any]:
    return (await client.get(f"/studies/{study_id}")).json()


def marks(page: Page, kind: str) -> int:
    """Dots of one kind, over all charts of a page."""
    return sum((a.get("d") or "").count("h0") for a in page.all("path") if a.get("class") == kind)


class TestPrediction:
    async def test_its_figures_are_the_apis(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.completed(context)

        page = await get(client, f"/ui/studies/{study_id}")
        study = await study_of(client, study_id)

        prediction, standings = study["prediction"], study["promotion"]["standings"]
        shown = page.data["prediction"]
        figures = [prediction[name] for name in ("accuracy", "expected_batch_size", "reached")]
        assert shown[:3] == figures
        assert shown[-len(standings) :] == [one["accuracy"] for one in standings]
        assert study["promotion"]["reason"] in page.text["promotion-reason"]
        assert "inside the interval" in page.text["prediction"]
        assert "from 3 batch sizes, 3 seeds" in page.text["prediction"]
        assert "chosen by the search" in page.text["prediction"]

    async def test_the_chart_holds_every_simulation_of_the_trial_and_its_outcome(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        page = await get(client, f"/ui/studies/{await seeding.completed(context)}")

        assert marks(page, "dots") == 9  # three rungs of the search, and of two fresh seeds
        assert marks(page, "dots faint") == 0  # none of them was luck
        assert marks(page, "dots predicted") == marks(page, "dots reached") == 1
        (interval,) = [a for a in page.all("path") if a.get("class") == "interval"]
        assert interval["d"]

    async def test_before_the_search_has_ended_there_is_none(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        page = await get(client, f"/ui/studies/{await seeding.simulating(context)}")

        assert "When the search has ended" in page.text["prediction"]
        assert "prediction" not in page.data

    async def test_before_the_run_has_ended_nothing_is_reached(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        page = await get(client, f"/ui/studies/{await seeding.training(context)}")

        assert "measured once, at the end" in page.text["prediction"]
        assert marks(page, "dots reached") == 0


class TestChoosing:
    async def test_each_candidate_has_a_button_that_promotes_it(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.awaiting_approval(context)

        page = await get(client, f"/ui/studies/{study_id}")
        study = await study_of(client, study_id)
        promotion, privacy = study["promotion"], study["privacy"]

        buttons = [a for a in page.all("button") if (a.get("id") or "").startswith("choose-")]
        assert [json.loads(a["hx-vals"] or "") for a in buttons] == [
            {"trial": one["trial"]} for one in promotion["standings"]
        ]
        assert {a["hx-post"] for a in buttons} == {f"/studies/{study_id}/promote"}
        spent, most = (text.epsilon(privacy[key]) for key in ("epsilon", "epsilon_reserved"))
        (approve,) = [a for a in page.all("button") if a.get("id") == "approve"]
        for question in (approve["hx-confirm"], *(a["hx-confirm"] for a in buttons)):
            spends = f"It spends ε {spent}, or {most} with every spare step, at δ 1e-05 (PLD"
            assert spends in (question or "")
            assert "NOT accounted" in (question or "")
        primary = [a["id"] for a in buttons if "primary" in (a["class"] or "")]
        assert primary == [f"choose-{promotion['trial']}"]

    async def test_a_choice_is_shown_and_cannot_be_made_twice(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.awaiting_approval(context)
        other = (await study_of(client, study_id))["promotion"]["standings"][1]["trial"]
        done = await client.post(f"/studies/{study_id}/promote", json={"trial": other})
        assert done.status_code == 202

        page = await get(client, f"/ui/studies/{study_id}")

        buttons = [
            a for a in page.all("button") if "hx-post" in a and a["id"] not in ("pause", "cancel")
        ]
        assert all("disabled" in a for a in buttons)
        chosen = [
            id_ for id_, said in page.text.items() if id_[:7] == "choose-" and "Chosen" in said
        ]
        assert chosen == [f"choose-{other}"]

    async def test_another_sites_page_cannot_choose(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.awaiting_approval(context)

        refused = await client.post(
            f"/studies/{study_id}/promote", json={}, headers={"Origin": "http://elsewhere.example"}
        )

        assert refused.status_code == 403
        page = await get(client, f"/ui/studies/{study_id}")
        assert not [a for a in page.all("button") if "disabled" in a]

    @pytest.mark.slow
    async def test_a_long_list_of_candidates_is_cut_and_says_so(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.awaiting_approval(
            context, trials=200, search={"trials": 200, "rungs": list(seeding.RUNGS)}
        )

        page = await get(client, f"/ui/studies/{study_id}")
        standings = (await study_of(client, study_id))["promotion"]["standings"]

        assert len(standings) > SHOWN_WITHIN
        assert sum((a.get("id") or "")[:7] == "choose-" for a in page.all("button")) == SHOWN_WITHIN
        assert f"And {len(standings) - SHOWN_WITHIN} more" in page.text["prediction"]


class TestTrialsTable:
    async def test_each_rung_is_a_column_and_what_was_cut_says_why(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.completed(context)

        page = await get(client, f"/ui/studies/{study_id}?order=number")
        trials = (await client.get(f"/studies/{study_id}/trials")).json()["items"]

        scored = {
            score["accuracy"]
            for trial in trials
            for score in trial["scores"]
            if score["accuracy"] is not None
        }
        assert scored <= set(page.data["trials-scroll"])
        for words in ("b = 16", "b = 32", "b = 64", "below the best at batch 16"):
            assert words in page.text["trials-scroll"]
        assert "taken from s-0123456789ab trial 7" in page.text["trials-scroll"]
        seeds = [a for a in page.all("td") if a.get("data-label") == "fresh seeds"]
        assert sum("empty" not in (a["class"] or "") for a in seeds) == 2

    async def test_the_finals_are_told_beside_the_search(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        page = await get(client, f"/ui/studies/{await seeding.awaiting_approval(context)}")

        assert "finals: 4 repetitions with fresh seeds" in page.text["progress"]


class TestNoise:
    @pytest.mark.slow
    async def test_searched_steps_are_shown_over_the_noise_they_leave(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.searching_steps(context)

        page = await get(client, f"/ui/studies/{study_id}/search")
        trials = (await client.get(f"/studies/{study_id}/trials")).json()["items"]

        compared = [score for trial in trials for score in trial["scores"] if score["rung"] == 2]
        best = max(compared, key=lambda score: score["accuracy"])
        private_noise = best["noise_multiplier"] * 256 / best["expected_batch_size"]
        shown = page.text["noise"]
        assert f"Best: {100 * best['accuracy']:.1f} % at σ {private_noise:.4g}" in shown
        assert "150 steps" in shown
        assert sum(marks(page, f"dots mark-{number}") for number in range(1, 5)) > 0

    async def test_fixed_steps_have_no_such_chart(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        page = await get(client, f"/ui/studies/{await seeding.simulating(context)}/search")

        assert "history" in page.text
        assert "noise" not in page.text


class TestCalibrationPage:
    async def test_without_a_study_it_says_what_adds_one(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.training(context)

        page = await get(client, "/ui/calibration")

        assert "Each study that completes is counted here" in page.text["calibration"]
        assert not page.all("table")

    async def test_it_shows_what_the_api_says(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        await seeding.calibrated(context, 20)

        page = await get(client, "/ui/calibration")
        calibration = (await client.get("/calibration?limit=200")).json()

        assert calibration["studies"] == 20
        inside, missed = marks(page, "dots predicted"), marks(page, "dots missed")
        assert (inside, inside + missed) == (calibration["inside"], 20)
        assert missed > 0
        assert page.data["calibration"][:3] == [inside, 20, calibration["coverage"]]
        shown = {one[name] for one in calibration["items"] for name in ("predicted", "reached")}
        assert shown <= set(page.data["calibration"])

    @pytest.mark.parametrize(
        ("query", "count"), [("dataset=digits", 3), ("model=tanh-cnn", 0), ("model=mlp", 3)]
    )
    async def test_it_can_be_narrowed_down(
        self, client: httpx.AsyncClient, context: Context, query: str, count: int
    ) -> None:
        await seeding.calibrated(context, 3)

        page = await get(client, f"/ui/calibration?{query}")

        assert sum("/ui/studies/" in (a.get("href") or "") for a in page.all("a")) == count
        assert "Show all" in page.text["main"]
