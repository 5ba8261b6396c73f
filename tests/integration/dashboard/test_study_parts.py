"""The parts of a study's page: what they draw and list is what the API says."""

import csv
import gzip
import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from service import text
from service.context import Context
from service.db.tables import Run, Trial
from service.ledger.service import Ledger
from service.studies import repository
from tan_core.accounting import price
from tan_core.mechanism import Accountant, Mechanism
from tests.integration.dashboard import rich, seeding
from tests.integration.dashboard.page import Page, get


@pytest.fixture
async def study_id(context: Context) -> str:
    """A study of eighty trials over four parameters, still searching."""
    made = await seeding.simulating(context, trials=0, **rich.spec_changes(80))
    await rich.fill(context, made, 80)
    return made


async def trials_of(client: httpx.AsyncClient, study_id: str) -> list[dict[str, Any]]:
    return (await client.get(f"/studies/{study_id}/trials?limit=1000")).json()["items"]


async def table_of(client: httpx.AsyncClient, address: str) -> list[dict[str, str]]:
    answer = await client.get(address)
    assert answer.headers["content-type"].startswith("text/csv")
    return list(csv.DictReader(io.StringIO(answer.text)))


def drawn(page: Page, figure: str) -> dict[str, Any]:
    """What the lines of a figure are drawn of."""
    ids = [a.get("id") for _, a in page.elements]
    lines = [a for _, a in page.elements[ids.index(figure) :] if "data-lines" in a]
    return json.loads(lines[0]["data-lines"] or "")


class TestSearch:
    @pytest.mark.slow
    async def test_history_has_every_scored_trial_and_the_best_of_the_api(
        self, client: httpx.AsyncClient, study_id: str
    ) -> None:
        history = drawn(await get(client, f"/ui/studies/{study_id}/search"), "history")
        trials = await trials_of(client, study_id)
        best = (await client.get(f"/studies/{study_id}")).json()["best_trial"]

        numbers, other, completed, best_so_far = history["data"]
        scored = {one["number"]: one["value"] for one in trials if one["value"] is not None}
        shown = {
            number: one if one is not None else two
            for number, one, two in zip(numbers, other, completed, strict=True)
        }
        assert shown == pytest.approx(scored, abs=1e-6)
        assert best_so_far[-1] == pytest.approx(best["value"], abs=1e-6)

    async def test_every_searched_parameter_has_an_axis_and_a_slice(
        self, client: httpx.AsyncClient, study_id: str
    ) -> None:
        page = await get(client, f"/ui/studies/{study_id}/search")

        for name in rich.SPACE:
            assert name in page.text["parallel"]
            assert name in page.text["slices"]

    async def test_importance_is_said_once_there_are_trials_enough(
        self, client: httpx.AsyncClient, context: Context, study_id: str
    ) -> None:
        await rich.fill(context, study_id, 20)
        few = await get(client, f"/ui/studies/{study_id}/search")
        await rich.fill(context, study_id, 400)
        await seeding.end(context, study_id, "cancelled")  # an event: the charts are kept till then

        many = await get(client, f"/ui/studies/{study_id}/search")

        table = await table_of(client, f"/ui/studies/{study_id}/charts/importance.csv")
        at_first = await table_of(client, f"/ui/studies/{study_id}/charts/importance.csv?rung=0")
        assert "Rank correlation" in few.text["importance"]
        assert "Fewer than 20 trials do not tell" in few.text["importance"]
        assert sum(float(row["importance"]) for row in table) == pytest.approx(1)
        assert table != at_first  # at a smaller batch there are more trials
        for row in table:
            shown = f"{float(row['rank correlation']):+.2f}".replace("-", "−")
            assert shown in many.text["importance"], row
        assert many.text["importance"].index("learning_rate") < many.text["importance"].index(
            "ema_decay"
        )

    async def test_two_parameters_are_those_that_mattered_most_or_those_that_are_named(
        self, client: httpx.AsyncClient, study_id: str
    ) -> None:
        def chosen(page: Page) -> list[str | None]:
            return [each["value"] for each in page.all("option") if "selected" in each][-2:]

        rows = await table_of(client, f"/ui/studies/{study_id}/charts/importance.csv?rung=0")
        most = [row["parameter"] for row in rows][:2]
        page = await get(client, f"/ui/studies/{study_id}/search?rung=0")
        assert chosen(page) == most[::-1]

        query = "rung=0&across=ema_decay&up=momentum"
        page = await get(client, f"/ui/studies/{study_id}/search?{query}")
        assert chosen(page) == ["momentum", "ema_decay"]
        (link,) = [a["href"] or "" for a in page.all("a") if "pair.csv" in (a.get("href") or "")]
        table = await table_of(client, link)
        scored = {t["number"]: t for t in await trials_of(client, study_id) if t["scores"]}
        assert {int(row["trial"]) for row in table} == scored.keys()
        for row in table:
            trial = scored[int(row["trial"])]
            assert float(row["ema_decay"]) == trial["params"]["ema_decay"]
            assert float(row["momentum"]) == trial["params"]["momentum"]
            assert float(row["accuracy"]) == trial["scores"][0]["accuracy"]

    async def test_the_address_of_a_study_names_what_its_charts_are_asked_for_with(
        self, client: httpx.AsyncClient, study_id: str
    ) -> None:
        address = f"/ui/studies/{study_id}"
        page = await get(client, f"{address}?chart_rung=1&across=ema_decay&up=momentum")

        (search,) = [each for each in page.all("div") if each.get("id") == "search"]
        assert search["hx-get"] == f"{address}/search?rung=1&across=ema_decay&up=momentum"
        await get(client, f"{address}/search?across=odd", status=200)
        await get(client, f"{address}?across=%3Cscript%3E", status=422)

    async def test_of_few_trials_or_one_parameter_no_two_are_shown(
        self, client: httpx.AsyncClient, context: Context, study_id: str
    ) -> None:
        await rich.fill(context, study_id, 3)
        page = await client.get(f"/ui/studies/{study_id}/search")

        assert 'id="slices"' in page.text
        assert 'id="pair"' not in page.text
        await get(client, f"/ui/studies/{study_id}/charts/pair.csv", status=404)

    async def test_the_space_is_drawn_at_the_largest_batch_with_ten_trials_or_at_one_that_is_named(
        self, client: httpx.AsyncClient, context: Context, study_id: str
    ) -> None:
        for count in (80, 15):
            await rich.fill(context, study_id, count)
            await seeding.report_trial(
                context, study_id, count, 0.5
            )  # news: charts are kept till then
            trials = await trials_of(client, study_id)
            by_rung = [
                {t["number"]: t["scores"][r]["accuracy"] for t in trials if len(t["scores"]) > r}
                for r in range(3)
            ]
            largest = max(r for r in range(3) if len(by_rung[r]) >= 10)
            for query, rung in (("", largest), ("?rung=0", 0), ("?rung=2", 2)):
                rows = await table_of(client, f"/ui/studies/{study_id}/charts/slices.csv{query}")
                shown = {int(row["trial"]): float(row["accuracy"]) for row in rows}
                assert shown == by_rung[rung], (count, query)
            page = await get(client, f"/ui/studies/{study_id}/search?rung=0")
            assert f"({len(by_rung[0])} trials)" in page.text["search-rung"]
            assert (largest == 2) is (count == 80)

    async def test_an_accuracy_is_asked_for_where_the_trials_were_scored(
        self, client: httpx.AsyncClient, study_id: str
    ) -> None:
        rows = await table_of(client, f"/ui/studies/{study_id}/trials.csv?rung=0&low.accuracy=0.94")
        trials = await trials_of(client, study_id)

        first = {t["number"]: t["scores"][0]["accuracy"] for t in trials if t["scores"]}
        assert {int(row["trial"]) for row in rows} == {n for n, a in first.items() if a >= 0.94}
        assert any(first[t["number"]] >= 0.94 > t["value"] for t in trials if t["scores"])

    async def test_charts_follow_what_happens(
        self, client: httpx.AsyncClient, context: Context, study_id: str
    ) -> None:
        before = drawn(await get(client, f"/ui/studies/{study_id}/search"), "history")
        await seeding.report_trial(context, study_id, 80, 0.9876)

        after = drawn(await get(client, f"/ui/studies/{study_id}/search"), "history")

        assert after["data"][0] == [*before["data"][0], 80]
        assert after["data"][3][-1] == 0.9876

    @pytest.mark.slow
    async def test_ten_thousand_trials_are_read_in_pages_and_drawn_thinned(
        self, client: httpx.AsyncClient, context: Context, study_id: str
    ) -> None:
        await rich.fill(context, study_id, 10_000)

        whole = await client.get(f"/ui/studies/{study_id}")
        search = await client.get(f"/ui/studies/{study_id}/search")
        history = drawn(Page(search.text), "history")
        page = await get(client, f"/ui/studies/{study_id}?trials=200&order=number")

        assert len(gzip.compress(whole.content)) + len(gzip.compress(search.content)) < 80_000
        assert len(history["data"][0]) < 3000
        assert history["data"][0][-1] > 9900
        assert "Page 200 of 200, 10,000 trials" in page.text["trials"]
        assert "9999" in page.text["trials"]

    async def test_without_a_trial_there_is_nothing_to_draw(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        queued = await seeding.submitted(context)

        for part in ("search", "curves", "run"):
            assert "data-lines" not in (await client.get(f"/ui/studies/{queued}/{part}")).text


class TestCurves:
    async def test_the_last_rung_is_drawn_unless_another_is_named(
        self, client: httpx.AsyncClient, study_id: str
    ) -> None:
        trials = await trials_of(client, study_id)

        for query, rung in (("", 2), ("?rung=0", 0)):
            page = await get(client, f"/ui/studies/{study_id}/curves{query}")
            chart = drawn(page, "curves-chart")
            reached = [one for one in trials if len(one["scores"]) > rung]
            best = max(reached, key=lambda one: one["scores"][rung]["accuracy"])
            assert chart["series"][0]["label"] == f"trial {best['number']}"
            curve = best["scores"][rung]["curve"]
            assert chart["data"][1] == pytest.approx([p["accuracy"] for p in curve], abs=1e-6)

    async def test_where_no_batch_has_any_a_study_that_ended_lets_none_be_chosen(
        self, client: httpx.AsyncClient, context: Context, study_id: str
    ) -> None:
        empty = await seeding.submitted(context)
        assert "<select" in (await client.get(f"/ui/studies/{empty}/curves")).text
        for each in (empty, study_id):
            await seeding.end(context, each, "cancelled")

        for query in ("", "?rung=0"):
            assert "<select" not in (await client.get(f"/ui/studies/{empty}/curves{query}")).text
            assert "<select" in (await client.get(f"/ui/studies/{study_id}/curves{query}")).text


class TestPrivateRun:
    async def test_charged_and_reported_steps_are_the_apis(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.training(context)
        await rich.report_steps(context, study_id, last=140)
        study = (await client.get(f"/studies/{study_id}")).json()

        chart = drawn(await get(client, f"/ui/studies/{study_id}/run"), "run-steps")

        _, charged, done = chart["data"]
        assert max(each for each in charged if each) == study["privacy"]["charged_steps"]
        assert max(each for each in done if each) == study["run"]["step"]

    async def test_a_run_that_has_ended_is_drawn_to_its_last_step(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.training(context)
        await rich.report_steps(context, study_id, last=280)
        await seeding.complete(context, study_id)
        async with context.database.session() as session:
            run = await repository.run_of(session, study_id, "private")
            assert run is not None
            run.finished_at = datetime.now(UTC) + timedelta(seconds=5)

        chart = drawn(await get(client, f"/ui/studies/{study_id}/run"), "run-steps")
        told = (await client.get(f"/studies/{study_id}/run")).json()["progress"]

        assert [each["step"] for each in told[-2:]] == [280, 300]
        assert (chart["data"][2][-1], chart["data"][0][-1]) == (300, max(chart["data"][0]))

    async def test_what_is_spent_is_the_price_of_the_charged_steps(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.training(context)
        study = (await client.get(f"/studies/{study_id}")).json()
        curves = (await client.get(f"/studies/{study_id}/run")).json()

        privacy, reference = study["privacy"], study["plan"]["reference"]
        by_steps = {point["charged_steps"]: point["epsilon"] for point in curves["spending"]}
        run = Mechanism(
            **{
                name: reference[name] for name in ("sampling_rate", "noise_multiplier", "clip_norm")
            },
            steps=privacy["charged_steps"],
        )
        # By Rényi divergences, which share nothing with the loss distributions: never below, and not far above.
        bound = price([run], delta=privacy["delta"], accountant=Accountant.RDP).epsilon
        spent = by_steps[privacy["charged_steps"]]
        assert 0.85 * bound < spent <= bound
        # What is promised is rounded up in its fourth digit.
        assert 0 <= privacy["epsilon_reserved"] - by_steps[privacy["reserved_steps"]] < 1e-4
        assert list(by_steps.values()) == sorted(by_steps.values())

        chart = drawn(await get(client, f"/ui/studies/{study_id}/run"), "run-spending")
        steps, reserved, paid = chart["data"]
        assert dict(
            zip(steps, [r or p for r, p in zip(reserved, paid, strict=True)], strict=True)
        ) == (pytest.approx(by_steps, rel=1e-5))
        assert max(n for n, p in zip(steps, paid, strict=True) if p) == privacy["charged_steps"]

    async def test_what_was_given_back_is_not_drawn_of_a_study_that_ended(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.training(context)
        during = await get(client, f"/ui/studies/{study_id}/run")
        async with context.database.session() as session:
            await Ledger().release(session, study_id, actor="test", reason="cancelled")
        await seeding.end(context, study_id, "cancelled")

        page = await get(client, f"/ui/studies/{study_id}/run")

        steps, paid = drawn(page, "run-spending")["data"]
        charged = (await client.get(f"/studies/{study_id}")).json()["privacy"]["charged_steps"]
        assert max(steps) == charged
        assert None not in paid
        assert "still reserved" in during.text["run-spending"]
        assert "still reserved" not in page.text["run-spending"]
        assert "the run ended before the 300 that were planned" in page.text["run-spending"]

    @pytest.mark.parametrize("part", ["search", "curves"])
    async def test_a_study_that_ended_waits_for_nothing(
        self, client: httpx.AsyncClient, context: Context, part: str
    ) -> None:
        study_id = await seeding.submitted(context)
        waiting = await client.get(f"/ui/studies/{study_id}/{part}")
        await seeding.end(context, study_id, "cancelled")

        over = await client.get(f"/ui/studies/{study_id}/{part}")
        whole = await get(client, f"/ui/studies/{study_id}")

        assert " yet" in waiting.text
        assert " yet" not in over.text
        assert "never started" in whole.text["run"]

    async def test_noisy_gradients_are_told_only_when_the_run_is_over(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        running = await seeding.training(context, name="running")
        done = await seeding.completed(context, name="done")

        during = await client.get(f"/ui/studies/{running}/run")
        after = await get(client, f"/ui/studies/{done}/run")
        updates = (await client.get(f"/studies/{done}/run")).json()["updates"]

        assert (await client.get(f"/studies/{running}/run")).json()["updates"] == []
        assert "run-updates" not in during.text
        assert "would owe the price of every planned step" in during.text
        assert drawn(after, "run-updates")["data"][1] == pytest.approx(
            [point["gradient_norm"] for point in updates], rel=1e-5
        )
        assert "average. Both follow from what each step released" in after.text["run-updates"]

    async def test_what_never_ran_is_said_to_be_given_back_once_it_is(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        running = await get(
            client, f"/ui/studies/{await seeding.training(context, name='running')}"
        )
        done = await get(client, f"/ui/studies/{await seeding.completed(context, name='done')}")

        assert "what never ran was given back" not in running.text["run"]
        assert "what never ran was given back" in done.text["run"]

    async def test_without_an_average_no_distance_from_it_is_said_to_be_drawn(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.completed(context)
        async with context.database.session() as session:
            run = await repository.run_of(session, study_id, "private")
            assert run is not None
            assert run.result is not None
            bare = [{**each, "ema_distance": None} for each in run.result["updates"]]
            run.result = {**run.result, "updates": bare}

        page = await get(client, f"/ui/studies/{study_id}/run")

        assert "It follows from what each step released" in page.text["run-updates"]
        assert "Both follow" not in page.text["run-updates"]

    async def test_there_is_none_before_it_begins(
        self, client: httpx.AsyncClient, study_id: str
    ) -> None:
        answer = await client.get(f"/studies/{study_id}/run")

        assert answer.status_code == 404
        assert "no private run yet" in answer.json()["detail"]


class TestTable:
    @pytest.mark.parametrize(
        ("order", "key", "is_rising"),
        [
            ("number", lambda one: one["number"], True),
            ("-rung.1", lambda one: one["scores"][1]["accuracy"], False),
            ("param.learning_rate", lambda one: one["params"]["learning_rate"], True),
            ("-seconds", lambda one: sum(each["seconds"] for each in one["scores"]), False),
        ],
    )
    async def test_every_column_orders_it(
        self, client: httpx.AsyncClient, study_id: str, order: str, key: Any, is_rising: bool
    ) -> None:
        trials = {one["number"]: one for one in await trials_of(client, study_id)}
        address = f"/ui/studies/{study_id}/trials.csv?order={order}&rung=1"

        shown = [trials[int(row["trial"])] for row in await table_of(client, address)]

        assert len(shown) == sum(len(one["scores"]) > 1 for one in trials.values())
        values = [key(one) for one in shown]
        assert values == sorted(values, reverse=not is_rising)

    @pytest.mark.parametrize(("order", "sort"), [("best", "-value"), ("-best", "value")])
    async def test_the_best_are_those_of_the_api(
        self, client: httpx.AsyncClient, study_id: str, order: str, sort: str
    ) -> None:
        rows = await table_of(client, f"/ui/studies/{study_id}/trials.csv?order={order}")
        asked = await client.get(f"/studies/{study_id}/trials?sort={sort}&limit=1000")

        items = asked.json()["items"]
        assert [int(row["trial"]) for row in rows] == [one["number"] for one in items]
        reached = [len(one["scores"]) for one in items if one["value"] is not None]
        assert len(set(reached)) > 1
        assert reached == sorted(reached, reverse=order == "best")
        values = [one["value"] for one in items if len(one["scores"]) == max(reached)]
        assert values == sorted(values, reverse=order == "best")

    async def test_the_part_is_the_table_of_the_page_and_tells_its_address(
        self, client: httpx.AsyncClient, study_id: str
    ) -> None:
        query = "order=best&trial_state=completed"
        whole = await get(client, f"/ui/studies/{study_id}?{query}")
        answer = await client.get(f"/ui/studies/{study_id}/trials?{query}")

        assert Page(answer.text).text["trials"] == whole.text["trials"]
        assert answer.headers["HX-Replace-Url"] == f"/ui/studies/{study_id}?{query}"
        source = {"HX-Source": "section#trials"}
        news = await client.get(f"/ui/studies/{study_id}/trials?{query}", headers=source)
        assert "HX-Replace-Url" not in news.headers
        sections = Page(news.text).all("section")
        assert [each["id"] for each in sections if "hx-get" in each] == ["trials"]

    async def test_states_filter_and_columns_hide(
        self, client: httpx.AsyncClient, study_id: str
    ) -> None:
        address = f"/ui/studies/{study_id}/trials?trial_state=diverged&hide=params&hide=time"
        page = await get(client, address)
        diverged = [t for t in await trials_of(client, study_id) if t["state"] == "diverged"]

        rows = re.findall(r"trial-(\d+)'", str(page.all("tr")))
        assert sorted(map(int, rows)) == sorted(one["number"] for one in diverged)
        headings = {button["id"] for button in page.all("button") if button.get("class") == "sort"}
        assert headings == {"sort-number", *(f"sort-rung.{rung}" for rung in range(3))}

    async def test_where_clip_norm_is_searched_it_has_what_was_clipped(
        self, client: httpx.AsyncClient, context: Context, study_id: str
    ) -> None:
        changes = rich.spec_changes(2, name="clipping")
        changes["search"]["space"] = {**rich.SPACE, "clip_norm": {"low": 0.1, "high": 1.0}}
        clipping = await seeding.submitted(context, **changes)
        await rich.fill(context, clipping, 4)

        page = await get(client, f"/ui/studies/{clipping}")
        hidden = await get(client, f"/ui/studies/{clipping}?hide=clipped")
        other = await get(client, f"/ui/studies/{study_id}")

        for trial in await trials_of(client, clipping):
            share = trial["scores"][-1]["clipped_fraction"] if trial["scores"] else None
            assert share is None or text.percent(share) in page.text[f"trial-{trial['number']}"]
        assert "larger than it has to be" in page.text["trials-clipped"]
        assert "trials-clipped" not in hidden.text
        assert "trials-clipped" not in other.text

    @pytest.mark.parametrize(
        ("query", "fits"),
        [
            ("low.learning_rate=0.5&high.learning_rate=2", lambda one: 0.5 <= one["params"]["learning_rate"] <= 2),
            ("one_of.ema_decay=0.9&one_of.ema_decay=0.98", lambda one: one["params"]["ema_decay"] < 0.985),
            ("low.augmentation_multiplicity=7", lambda one: one["params"]["augmentation_multiplicity"] >= 7),
            ("low.accuracy=0.94&rung=2", lambda one: len(one["scores"]) > 2 and one["value"] >= 0.94),
            ("high.nothing=1", lambda one: False),
            ("one_of.learning_rate=NaN", lambda one: False),
            ("low.learning_rate=&one_of.ema_decay=", lambda one: True),
        ],
        ids=lambda each: each if isinstance(each, str) else "",
    )  # fmt: skip
    async def test_trials_are_chosen_by_what_they_tried_and_reached(
        self, client: httpx.AsyncClient, study_id: str, query: str, fits: Any
    ) -> None:
        expected = [one["number"] for one in await trials_of(client, study_id) if fits(one)]

        rows = await table_of(client, f"/ui/studies/{study_id}/trials.csv?{query}&order=number")
        page = await get(client, f"/ui/studies/{study_id}?{query}")

        assert [int(row["trial"]) for row in rows] == expected
        counted = f"{len(expected)} trial{'' if len(expected) == 1 else 's'}"
        assert re.search(rf"\b{counted}\b", page.text["trials"])
        (form,) = [form for form in page.all("form") if form.get("id") == "trials-filter"]
        assert form["action"] == f"/ui/studies/{study_id}"

    async def test_the_form_holds_what_the_address_says(
        self, client: httpx.AsyncClient, study_id: str
    ) -> None:
        query = "low.learning_rate=0.5&one_of.ema_decay=0.9"
        page = await get(client, f"/ui/studies/{study_id}?{query}")
        answer = await client.get(f"/ui/studies/{study_id}/trials?{query}&high.momentum=")

        fields = {field.get("id"): field for field in page.all("input")}
        assert fields["low-learning_rate"]["value"] == "0.5"
        assert fields["high-learning_rate"]["value"] == ""
        ticked = [field["value"] for field in fields.values() if field["name"] == "one_of.ema_decay" and "checked" in field]  # fmt: skip
        assert ticked == ["0.9"]
        assert answer.headers["HX-Replace-Url"] == f"/ui/studies/{study_id}?{query}"

    async def test_words_are_chosen_as_they_are_written(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        changes = rich.spec_changes(2)
        changes["search"]["space"] = {"optimizer": {"choices": ["sgd", "adamw"]}, "horizontal_flip": {"choices": [True, False]}}  # fmt: skip
        study_id = await seeding.submitted(context, **changes)
        await rich.fill(context, study_id, 4)
        async with context.database.session() as session:
            for trial in await session.scalars(select(Trial).where(Trial.study_id == study_id)):
                trial.params = {"optimizer": ["sgd", "adamw"][trial.number % 2], "horizontal_flip": trial.number < 2}  # fmt: skip

        for query, expected in (("one_of.optimizer=adamw", [1, 3]), ("one_of.horizontal_flip=true", [0, 1]), ("low.optimizer=0", [])):  # fmt: skip
            rows = await table_of(client, f"/ui/studies/{study_id}/trials.csv?{query}&order=number")
            assert [int(row["trial"]) for row in rows] == expected, query

    async def test_csv_has_every_figure_of_the_api(
        self, client: httpx.AsyncClient, study_id: str
    ) -> None:
        rows = await table_of(client, f"/ui/studies/{study_id}/trials.csv?order=number")

        for row, trial in zip(rows, await trials_of(client, study_id), strict=True):
            assert row["state"] == trial["state"]
            assert row["accuracy"] == ("" if trial["value"] is None else repr(trial["value"]))
            assert row["learning_rate"] == repr(trial["params"]["learning_rate"])
            for score in trial["scores"]:
                assert row[f"rung {score['rung']}"] == repr(score["accuracy"])
            clipped = trial["scores"][-1]["clipped_fraction"] if trial["scores"] else None
            assert row["clipped fraction"] == ("" if clipped is None else repr(clipped))


class TestCharts:
    async def test_each_gives_away_its_numbers(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.completed(context, **rich.spec_changes(80))
        rows = await table_of(client, f"/ui/studies/{study_id}/charts/prediction.csv")
        assert {"predicted", "reached", "low end", "high end"} <= {row["what"] for row in rows}

        await rich.fill(context, study_id, 400)
        await rich.report_steps(context, study_id)

        names = (
            "history",
            "parallel",
            "slices",
            "importance",
            "pair",
            "timeline",
            "curves",
            "run",
            "speed",
            "spending",
        )
        for name in (*names, "learning_rate", "updates"):
            assert await table_of(client, f"/ui/studies/{study_id}/charts/{name}.csv"), name

    async def test_one_that_is_not_there_is_said_so(
        self, client: httpx.AsyncClient, study_id: str
    ) -> None:
        for name in ("noise", "prediction", "run", "spending", "by_name", "odd"):
            await get(client, f"/ui/studies/{study_id}/charts/{name}.csv", status=404)


class TestFeatures:
    async def test_features_have_a_bar_while_they_are_computed(
        self, client: httpx.AsyncClient, context: Context
    ) -> None:
        study_id = await seeding.simulating(context)
        run_id = f"{study_id}-search"

        async def shown(done: int) -> str:
            async with context.database.session() as session:
                run = await session.get_one(Run, run_id)
                run.features = {"done": done, "number": 45_000, "per_second": 25.0}
            return (await get(client, f"/ui/studies/{study_id}")).text["progress"]

        assert "12,000 of 45,000 records" in (half := await shown(12_000))
        assert re.search("before the first trial\\s+· about 22m00s left", half)
        assert "records" not in await shown(45_000)
