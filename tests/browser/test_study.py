"""The list of studies and the page of one, as someone uses them."""

import asyncio
import csv
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from playwright.async_api import Dialog, Page, Route, expect

from service.context import Context
from tests.browser.axe import violations
from tests.browser.conftest import SCHEMES, Service, Tab, at_widths
from tests.integration.dashboard import rich, seeding

pytestmark = pytest.mark.browser


async def searching(context: Context, trials: int = 60) -> str:
    """The id of a study with many trials over four parameters."""
    study_id = await seeding.simulating(context, trials=0, **rich.spec_changes(80, "wide"))
    await rich.fill(context, study_id, trials)
    return study_id


async def settled(page: Page) -> None:
    """Until the charts of a study are drawn."""
    await expect(page.locator("#history canvas")).to_be_visible()
    await expect(page.locator("#slices path.dots").first).to_be_attached()


class TestLooking:
    @SCHEMES
    async def test_axe_finds_nothing(
        self, service: Service, tab: Tab, scheme: str, widths: tuple[int, ...]
    ) -> None:
        async with tab.open("/", scheme=scheme) as page:
            assert await violations(page, scheme=scheme) == []
        wide = await searching(service.context, 400)
        waiting = await seeding.awaiting_approval(service.context, name="waiting")
        failed = await seeding.failed(service.context, "every trial diverged", name="failed")
        done = await seeding.completed(service.context, name="done")
        await rich.report_steps(service.context, done)
        paths = ["/", "/?state=failed&tag=none", "/ui/new", f"/ui/new?like={wide}"]
        paths += [f"/ui/studies/{id_}" for id_ in (wide, waiting, failed, done)]

        found: list[str] = []
        for path in paths:
            async with tab.open(path, scheme=scheme, width=widths[0]) as page:
                if wide in path and "/studies/" in path:
                    await settled(page)
                await page.evaluate(
                    "document.querySelectorAll('details').forEach(d => d.open = true)"
                )
                async for width in at_widths(page, widths[:2]):
                    of_page = await violations(page, scheme=scheme)
                    found += [f"{path} {width}: {each}" for each in of_page]
        assert found == []

    async def test_a_line_of_one_value_is_seen(self, service: Service, tab: Tab) -> None:
        """A run that was over before its driver told its speed twice."""
        done = await seeding.completed(service.context)
        await rich.report_steps(service.context, done, last=0)
        inside = """canvas => {
            const { width, height } = canvas;
            const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            const style = getComputedStyle(document.documentElement);
            const accent = style.getPropertyValue("--accent").trim();
            const [r, g, b] = accent.match(/[0-9a-f]{2}/gi).map(each => parseInt(each, 16));
            let found = 0;
            for (let i = 0; i < data.length; i += 4)
                found += data[i] === r && data[i + 1] === g && data[i + 2] === b && data[i + 3] === 255;
            return found;
        }"""

        async with tab.open(f"/ui/studies/{done}", scheme="light") as page:
            chart = page.locator("#run-speed canvas")
            await chart.scroll_into_view_if_needed()

            assert await chart.evaluate(inside) > 10

    @pytest.mark.parametrize("width", [360, 1280, 2560, 3840])
    async def test_nothing_sticks_out(self, service: Service, tab: Tab, width: int) -> None:
        study_id = await searching(service.context)

        for path in ("/", f"/ui/studies/{study_id}", f"/ui/new?like={study_id}"):
            async with tab.open(path, width=width) as page:
                if "/studies/" in path:
                    await settled(page)
                root = "document.documentElement"
                assert await page.evaluate(f"{root}.scrollWidth - {root}.clientWidth") <= 0, path
        assert tab.complaints == []

    async def test_on_a_phone_no_table_of_a_study_scrolls_sideways(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await searching(service.context)

        for path in (f"/ui/studies/{study_id}", f"/ui/studies/{study_id}/trials/0"):
            async with tab.open(path, width=390) as page:
                if "trials" not in path:
                    await settled(page)
                await page.evaluate(
                    "document.querySelectorAll('.later').forEach(e => (e.style.contentVisibility = 'visible'))"
                )
                scrolling = await page.evaluate(
                    """() => [...document.querySelectorAll(".scroll:has(> table):not(.tall)")]
                    .filter(box => box.checkVisibility() && box.scrollWidth > box.clientWidth)
                    .map(box => [box.ariaLabel, box.scrollWidth, box.clientWidth])"""
                )
                assert scrolling == [], path
        assert tab.complaints == []

    async def test_no_two_curves_look_alike(self, service: Service, tab: Tab) -> None:
        study_id = await searching(service.context, 400)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await page.locator("#curves-chart").scroll_into_view_if_needed()
            markers = page.locator("#curves-chart .u-marker[style]")
            await expect(markers).to_have_count(12)
            looks = await markers.evaluate_all("all => all.map(each => each.style.border)")

            assert len(set(looks)) == 12, looks
        assert tab.complaints == []

    async def test_every_number_is_the_apis(self, service: Service, tab: Tab) -> None:
        study_id = await seeding.completed(service.context)
        async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
            known = _numbers((await client.get(f"/studies/{study_id}")).json())
            trials = (await client.get(f"/studies/{study_id}/trials")).json()
            run = (await client.get(f"/studies/{study_id}/run")).json()
        known |= _numbers(trials) | _numbers(run)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await settled(page)
            shown = await page.eval_on_selector_all(
                "data", "all => all.map(each => Number(each.value))"
            )

        assert len(shown) > 100
        assert set(shown) - known <= {float(len(trials["items"]))}  # how many there are


class TestWatching:
    async def test_a_new_trial_is_drawn_and_listed(self, service: Service, tab: Tab) -> None:
        study_id = await searching(service.context)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await settled(page)
            await expect(page.locator("#connection")).to_have_text("Live")
            await seeding.report_trial(service.context, study_id, 60, 0.9876)

            await expect(page.locator("#trial-60")).to_contain_text("98.8 %")
            history = page.locator("#history [data-lines]")
            await expect(history).to_have_attribute(
                "data-lines", re.compile(r"0\.9876"), timeout=15_000
            )
            await expect(page.locator("#history canvas")).to_have_count(1)
        assert tab.complaints == []

    async def test_the_table_stays_as_it_was_set(self, service: Service, tab: Tab) -> None:
        study_id = await searching(service.context)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await settled(page)
            await expect(page.locator("#connection")).to_have_text("Live")
            await page.locator("#tick-completed").check()
            await expect(page.locator("#trials tbody .chip", has_text="pruned")).to_have_count(0)
            await page.locator(r"#sort-param\.learning_rate").click()
            await expect(page.locator("th[aria-sort=ascending]")).to_contain_text("learning_rate")
            await seeding.report_trial(service.context, study_id, 60, 0.9876)
            await expect(page.locator("#progress")).to_contain_text("61 of 80 trials")

            await expect(page.locator("#tick-completed")).to_be_checked()
            await expect(page.locator("th[aria-sort=ascending]")).to_contain_text("learning_rate")
            states = await page.locator("#trials tbody .chip").all_inner_texts()
            assert set(states) == {"completed"}
            assert "trial_state=completed" in page.url
        assert tab.complaints == []

    async def test_a_chart_is_saved_as_csv_and_as_a_picture(
        self, service: Service, tab: Tab, tmp_path: Path
    ) -> None:
        study_id = await searching(service.context, 400)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await settled(page)
            saved: dict[str, bytes] = {}
            for figure, what in (
                ("history", "CSV"), ("history", "Picture"), ("slices", "Picture"),
                ("importance", "Picture"),
            ):  # fmt: skip
                box = page.locator(f"#{figure}")
                await box.evaluate(
                    "box => box.querySelectorAll('.numbers').forEach((each) => (each.open = true))"
                )
                async with page.expect_download() as download:
                    await box.get_by_text(what, exact=True).click()
                done = await download.value
                await done.save_as(tmp_path / "saved")
                saved[f"{figure} {what}"] = (tmp_path / "saved").read_bytes()

        rows = list(csv.DictReader(saved["history CSV"].decode().splitlines()))
        assert len(rows) > 40
        assert saved["history Picture"].startswith(b"\x89PNG")
        assert saved["slices Picture"].startswith(b"<svg")
        bars = ElementTree.fromstring(saved["importance Picture"])
        drawn = [mark.tag.rpartition("}")[2] for mark in bars.iter()]
        labels = [mark.text for mark in bars.iter() if mark.tag.endswith("text")]
        # A row is a name, a bar on its ground, a share, and a rank correlation.
        assert 3 * (drawn.count("rect") - 1) == 2 * len(labels) >= 12
        assert "learning_rate" in labels
        assert labels[1].endswith("%")
        assert tab.complaints == []

    async def test_every_chart_has_its_numbers_as_a_table_and_as_a_file(
        self, service: Service, tab: Tab
    ) -> None:
        searched = await searching(service.context, 400)
        done = await seeding.completed(service.context, name="done")
        await rich.report_steps(service.context, done)
        lacking = """() => [...document.querySelectorAll("figure.chart")]
            .filter((each) => !each.querySelector("table tbody tr") || !each.querySelector("a[download]"))
            .map((each) => each.id || each.outerHTML.slice(0, 80))"""

        for study_id, least in ((searched, 5), (done, 7)):
            async with tab.open(f"/ui/studies/{study_id}") as page:
                await settled(page)
                last = "#run-spending" if study_id == done else "#curves-chart"
                await expect(page.locator(f"{last} canvas")).to_have_count(1)
                assert await page.evaluate(lacking) == []
                assert await page.locator("figure.chart").count() >= least
                for link in await page.locator("figure.chart a[download]").all():
                    address = await link.get_attribute("href")
                    answer = await page.request.get(address or "")
                    assert answer.headers["content-type"].startswith("text/csv"), address
        assert tab.complaints == []


class TestChoosing:
    async def test_a_part_of_an_axis_chooses_lines_and_rows_and_a_click_chooses_all(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await searching(service.context)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await settled(page)
            marks = page.locator("#parallel svg")
            await marks.scroll_into_view_if_needed()
            box = await marks.bounding_box()
            assert box is not None
            chart = await page.locator("#parallel .parallel").get_attribute("data-axes")
            names = [axis["name"] for axis in json.loads(chart or "")]
            across = box["x"] + box["width"] * names.index("learning_rate") / (len(names) - 1)
            await page.mouse.move(across + 2, box["y"] + 0.9 * box["height"])
            await page.mouse.down()
            await page.mouse.move(across + 5, box["y"] + 0.5 * box["height"], steps=5)
            await expect(marks).to_have_class("is-chosen")
            await page.mouse.up()

            await page.wait_for_url("**high.learning_rate=1*")
            table = await _trials(service, study_id)
            low, high = [
                float(await page.locator(f"#{end}-learning_rate").input_value())
                for end in ("low", "high")
            ]
            assert 0.15 < low < 0.25 < 0.9 < high < 1.1
            fit = [one for one in table if low <= one["params"]["learning_rate"] <= high]
            await expect(page.locator("#trials")).to_contain_text(f"{len(fit)} trials")
            drawn = await page.locator("#parallel .chosen").get_attribute("d") or ""
            assert drawn.count("M") == sum(one["state"] == "completed" for one in fit)

            await page.mouse.click(across + 2, box["y"] + 0.5 * box["height"])
            await expect(page.locator("#trials")).to_contain_text("60 trials")
            await expect(marks).not_to_have_class("is-chosen")
            await page.get_by_text("Parameters", exact=True).last.click()
            await page.get_by_label("0.98", exact=True).check()
            await expect(marks).to_have_class("is-chosen")
        assert tab.complaints == []

    async def test_a_dot_of_a_slice_is_told_stands_out_everywhere_and_leads_to_its_trial(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await searching(service.context)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await settled(page)
            rate = page.locator("#slices .points").first
            await rate.scroll_into_view_if_needed()
            # The last dot is that of the worst trial, which no other one is near to.
            number = (await rate.get_attribute("data-trials") or "").split(",")[-1]
            dots = await rate.locator("path.dots").first.get_attribute("d") or ""
            x, y = dots.split("M")[-1].removesuffix("h0").split()
            box = await rate.locator("svg").bounding_box()
            assert box is not None
            at = box["x"] + box["width"] * int(x) / 1000, box["y"] + box["height"] * int(y) / 1000

            await page.mouse.move(at[0] + 2, at[1] + 2)
            await expect(page.locator(".tip")).to_contain_text(f"trial {number}: ")
            for pointed in await page.locator("#slices .pointed, #parallel .pointed").all():
                assert (await pointed.get_attribute("d") or "").startswith("M")
            await page.mouse.click(at[0] + 2, at[1] + 2)
            await page.wait_for_url(f"**/ui/studies/{study_id}/trials/{number}")
        assert tab.complaints == []

    async def test_the_charts_over_the_space_stay_at_the_batch_that_was_asked_for(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await searching(service.context)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await settled(page)
            first = [one for one in await _trials(service, study_id) if one["scores"]]
            await page.locator("#search-rung").select_option("0")
            lines = page.locator("#parallel")
            await expect(lines).to_contain_text(f"One line for each of {len(first)} trials")
            await seeding.report_trial(service.context, study_id, 60, 0.9)
            await expect(lines).to_contain_text(f"One line for each of {len(first) + 1} trials")

            await page.locator("#tick-completed").check()
            await page.wait_for_url("**trial_state=completed**")
            await page.reload()
            await expect(page.locator("#search-rung")).to_have_value("0")
            await expect(page.locator("#tick-completed")).to_be_checked()
            await page.locator("#search-rung").select_option("1")
            await expect(lines).not_to_contain_text(f"One line for each of {len(first) + 1} trials")
            await expect(page.locator("#search-rung")).to_have_value("1")
            assert "trial_state=completed&chart_rung=1" in page.url
        assert tab.complaints == []

    async def test_two_parameters_are_chosen_turned_round_and_kept(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await searching(service.context)

        async with tab.open(f"/ui/studies/{study_id}?chart_rung=0") as page:
            await settled(page)
            up, across = page.locator("#pair-up"), page.locator("#pair-across")
            title = page.locator("#pair h3")
            await across.select_option("momentum")
            await up.select_option("learning_rate")
            await expect(title).to_have_text("learning_rate over momentum")
            await across.select_option("learning_rate")  # what stands for the other one
            await expect(title).to_have_text("momentum over learning_rate")
            await expect(up).to_have_value("momentum")
            await page.wait_for_url("**across=learning_rate**")

            before = await page.locator("#pair .points").get_attribute("data-trials") or ""
            await seeding.report_trial(service.context, study_id, 60, 0.9)
            drawn = page.locator("#pair .points")
            await expect(drawn).to_have_attribute("data-trials", re.compile(r"\b60\b"))
            assert "60" not in before.split(",")
            await expect(title).to_have_text("momentum over learning_rate")
            await page.locator("#tick-completed").check()
            await page.wait_for_url("**trial_state=completed**")
            await page.reload()
            await expect(title).to_have_text("momentum over learning_rate")
            await expect(page.locator("#search-rung")).to_have_value("0")
        assert tab.complaints == []

    async def test_a_dot_of_two_parameters_leads_to_its_trial(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await searching(service.context)

        async with tab.open(f"/ui/studies/{study_id}?up=ema_decay&across=momentum") as page:
            await settled(page)
            points = page.locator("#pair .points")
            await points.scroll_into_view_if_needed()
            numbers = (await points.get_attribute("data-trials") or "").split(",")
            paths = await points.locator("[data-marks]").evaluate_all(
                "all => all.map(each => each.getAttribute('d')).join('')"
            )
            places = re.findall(r"M(\d+) (\d+)h0", paths)
            assert len(places) == len(numbers)
            x, y = places[0]
            box = await points.locator("svg").bounding_box()
            assert box is not None
            at = box["x"] + box["width"] * int(x) / 1000, box["y"] + box["height"] * int(y) / 1000

            await page.mouse.move(*at)
            await expect(page.locator(".tip")).to_contain_text(f"trial {numbers[0]}: ")
            assert await page.locator("#slices .pointed").first.get_attribute("d")
            await page.mouse.click(*at)
            await page.wait_for_url(f"**/ui/studies/{study_id}/trials/{numbers[0]}")
        assert tab.complaints == []

    async def test_a_bar_of_the_timeline_is_told_stands_out_everywhere_and_leads_to_its_trial(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await searching(service.context)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await settled(page)
            host = page.locator("#timeline .points")
            await host.scroll_into_view_if_needed()
            numbers = (await host.get_attribute("data-trials") or "").split(",")
            marks = await host.locator("[data-marks]").get_attribute("d") or ""
            completed = [t["number"] for t in await _trials(service, study_id) if t["state"] == "completed"]  # fmt: skip
            index = numbers.index(str(completed[0]))
            left, y, right, _ = re.findall(r"M(\d+) (\d+)L(\d+) (\d+)", marks)[index]
            box = await host.locator("svg").bounding_box()
            assert box is not None
            x = (int(left) + int(right)) / 2
            at = box["x"] + box["width"] * x / 1000, box["y"] + box["height"] * int(y) / 1000

            await page.mouse.move(*at)
            await expect(page.locator(".tip")).to_have_text(f"trial {completed[0]}: completed, 7s")
            for pointed in await page.locator("#timeline .pointed, #pair .pointed").all():
                assert (await pointed.get_attribute("d") or "").startswith("M")
            await page.mouse.click(*at)
            await page.wait_for_url(f"**/ui/studies/{study_id}/trials/{completed[0]}")
        assert tab.complaints == []

    async def test_the_learning_curves_stay_at_the_batch_that_was_asked_for(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await searching(service.context)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await settled(page)
            await page.locator("#curves-rung").select_option("0")
            await page.wait_for_url("**?curves_rung=0")
            await page.locator("#tick-completed").check()
            await page.wait_for_url("**trial_state=completed&curves_rung=0")
            await page.reload()
            await expect(page.locator("#curves-rung")).to_have_value("0")
        assert tab.complaints == []

    async def test_a_point_of_the_history_leads_to_its_trial(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await searching(service.context)
        (best,) = [one for one in await _trials(service, study_id) if one["number"] == 30]

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await settled(page)
            place = await page.evaluate(
                """([number, value]) => {
                  const over = document.querySelector("#history .u-over");
                  over.scrollIntoView({ block: "center" });
                  const { x, y, width, height } = over.getBoundingClientRect();
                  return { x, y, width, height };
                }""",
                [30, best["value"]],
            )
            await page.mouse.move(place["x"] + 5, place["y"] + 5)
            across = place["x"] + place["width"] * 30 / 59
            for part in range(40):  # down the trial's column, until its point is met
                await page.mouse.click(across, place["y"] + place["height"] * (part + 0.5) / 40)
                await page.wait_for_timeout(50)
                if "/trials/" in page.url:
                    break
            await page.wait_for_url(f"**/ui/studies/{study_id}/trials/30")
            await expect(page.get_by_role("heading", name="Trial 30")).to_be_visible()


class TestManyStudies:
    async def test_tags_are_written_in_the_list_and_on_the_page(
        self, service: Service, tab: Tab
    ) -> None:
        ids = [
            await seeding.completed(service.context, name="one"),
            await seeding.submitted(service.context, name="other"),
        ]

        async with tab.open("/") as page:
            await page.get_by_role("checkbox", name="Choose all on this page").check()
            await page.get_by_role("textbox", name="Tags").fill("paper fig:2")
            await page.get_by_role("button", name="Tag", exact=True).click()
            for study_id in ids:
                await expect(page.locator(f"#row-{study_id} .tag")).to_have_text(["paper", "fig:2"])

            await page.goto(f"/ui/studies/{ids[0]}")
            tags = page.locator("#tagging .tag a")
            await page.get_by_role("button", name="Take away the tag paper").click()
            await expect(tags).to_have_text(["fig:2"])
            await page.get_by_role("textbox", name="Tags to add").fill("kept")
            await page.keyboard.press("Enter")
            await expect(tags).to_have_text(["fig:2", "kept"])
            await expect(page.get_by_role("textbox", name="Tags to add")).to_have_value("")
            await page.get_by_role("link", name="kept").click()
            await expect(page.locator("#studies tbody tr")).to_have_count(1)
        assert tab.complaints == []

    @pytest.mark.parametrize("width", [1280, 1440])
    async def test_a_study_takes_three_lines_of_a_wide_list(
        self, service: Service, tab: Tab, width: int
    ) -> None:
        study_id = await seeding.completed(service.context, name="one")

        async with tab.open("/", width=width) as page:
            row = await page.locator(f"#row-{study_id}").bounding_box()
            table = page.locator("#studies .scroll")

            assert row is not None
            assert row["height"] < 100
            assert await table.evaluate("box => box.scrollWidth - box.clientWidth") == 0
        assert tab.complaints == []

    async def test_filters_narrow_the_list_as_one_types(self, service: Service, tab: Tab) -> None:
        first = await seeding.submitted(service.context, name="alpha")
        await seeding.copies(service.context, first, 30)
        await seeding.failed(service.context, "lost", name="omega")

        async with tab.open("/") as page:
            await page.get_by_role("searchbox", name="Name").fill("omeg")

            await expect(page.locator("#studies tbody tr")).to_have_count(1)
            assert page.url.endswith("/?name_contains=omeg&archived=exclude&sort=-created_at")
            await page.get_by_role("searchbox", name="Name").fill("nothing")
            await expect(page.get_by_text("No study fits these filters")).to_be_visible()
            await page.get_by_role("searchbox", name="Name").fill("not a name!")
            await expect(page.get_by_role("alert")).to_contain_text("name_contains")

    async def test_several_are_cancelled_archived_and_compared(
        self, service: Service, tab: Tab
    ) -> None:
        running = await seeding.submitted(service.context, name="running")
        done = await seeding.completed(service.context, name="done")

        async with tab.open("/") as page:
            page.on("dialog", Dialog.accept)
            bulk = page.get_by_role("group", name="With the chosen studies")
            await expect(bulk).to_be_hidden()
            await page.get_by_role("checkbox", name="Choose all on this page").check()
            await bulk.get_by_role("button", name="Cancel").click()
            await expect(page.get_by_role("alert")).to_contain_text("1 of 2 done")
            await expect(page.locator(f"#row-{running}")).to_contain_text("cancelled by a user")

            await page.get_by_role("checkbox", name="Choose running").uncheck()
            await bulk.get_by_role("button", name="Archive").click()
            await expect(page.locator(f"#row-{done}")).to_have_count(0)

            await page.goto("/?archived=include")
            await page.get_by_role("checkbox", name="Choose all on this page").check()
            await bulk.get_by_role("button", name="Compare").click()
            await page.wait_for_url("**/ui/compare?study=*&study=*")


class TestWriting:
    async def test_a_study_is_checked_mended_and_submitted(
        self, service: Service, tab: Tab
    ) -> None:
        await seeding.ensure_digits(service.context.database)

        async with tab.open("/ui/new") as page:
            editor = page.get_by_role("textbox", name="study.yaml")
            text = await editor.input_value()
            await editor.fill(text.replace("trials: 12", "trials: 0"))
            await page.get_by_role("button", name="Check").click()
            await expect(page.locator("#verdict")).to_contain_text("search.trials")
            await page.locator("#verdict").get_by_role("button").click()
            chosen = "e => e.value.slice(e.selectionStart, e.selectionEnd)"
            assert "trials: 0" in await editor.evaluate(chosen)

            await editor.fill(text)
            await page.get_by_role("button", name="Check").click()
            await expect(page.locator("#verdict")).to_contain_text("It fits", timeout=60_000)
            await page.get_by_role("button", name="Submit").click()

            await page.wait_for_url("**/ui/studies/s-*")
            await expect(page.get_by_role("heading", name="digits-eps3")).to_be_visible()

    async def test_a_check_that_takes_long_is_said_to_be_under_way(
        self, service: Service, tab: Tab
    ) -> None:
        await seeding.ensure_digits(service.context.database)
        answered = asyncio.Event()

        async def hold(route: Route) -> None:
            await answered.wait()
            await route.continue_()

        async with tab.open("/ui/new") as page:
            await page.route("**/ui/new", hold)
            verdict = page.locator("#verdict[aria-live=polite]")
            editor = page.get_by_role("textbox", name="study.yaml")
            await editor.fill((await editor.input_value()).replace("trials: 12", "trials: 0"))
            await page.get_by_role("button", name="Check").click()
            await expect(verdict).to_contain_text("Checking …")
            await expect(verdict).to_contain_text("Before you submit")
            answered.set()

            await expect(verdict).to_contain_text("search.trials")
            await expect(verdict).not_to_contain_text("Checking")
            await expect(verdict.get_by_role("button")).to_be_visible()

            await page.unroute("**/ui/new")
            await page.route("**/ui/new", lambda route: route.abort())
            await page.get_by_role("button", name="Submit").click()
            await expect(page.get_by_role("alert")).to_contain_text("No connection")
            await expect(verdict).not_to_contain_text("Submitting")

    async def test_a_dataset_is_checked_and_registered_once_one_is_sure(
        self, service: Service, tab: Tab, tmp_path: Path
    ) -> None:
        rows = [f"{row % 7},{row % 2}" for row in range(40)]
        (tmp_path / "visits.csv").write_text("\n".join(["age,label", *rows]) + "\n")
        described = f"name: visits\npath: {tmp_path / 'visits.csv'}\ndelta: 1.0e-4\n"

        async with tab.open("/ui/datasets") as page:
            await page.get_by_role("link", name="Register a dataset").click()
            editor = page.get_by_role("textbox", name="dataset.yaml")
            verdict, check = page.locator("#verdict"), page.get_by_role("button", name="Check")
            register = page.get_by_role("button", name="Register")
            await editor.fill(f"{described}epsilon: none\n")
            await check.click()
            await expect(verdict).to_contain_text("epsilon")
            await verdict.get_by_role("button").click()
            chosen = "e => e.value.slice(e.selectionStart, e.selectionEnd)"
            assert await editor.evaluate(chosen) == "epsilon: none"

            await editor.fill(f"{described}epsilon: 8\n")
            await check.click()
            await expect(verdict).to_contain_text("What was found", timeout=60_000)
            page.once("dialog", Dialog.dismiss)
            await register.click()
            assert (await page.request.get("/datasets/visits")).status == 404
            page.once("dialog", Dialog.accept)
            await register.click()
            await expect(verdict).to_contain_text("Registered", timeout=60_000)
            await verdict.get_by_role("link", name="visits").click()

            await expect(page.get_by_role("heading", name="visits")).to_be_visible()

    async def test_an_id_is_copied_and_who_does_not_see_it_is_told(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await seeding.completed(service.context)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
            copy = page.get_by_role("button", name="Copy the id of the study")
            box = await copy.bounding_box()
            assert box is not None
            assert min(box["width"], box["height"]) >= 24
            await copy.click()
            await expect(page.locator("#said")).to_have_text("Copied")
            assert await page.evaluate("navigator.clipboard.readText()") == study_id
            await expect(copy).to_be_visible()
            await expect(page.locator("#said")).to_be_empty()
        assert tab.complaints == []

    @pytest.mark.parametrize("verb", ["Cancel", "Approve the private run"])
    async def test_the_focus_goes_to_how_the_study_is_now(
        self, service: Service, tab: Tab, verb: str
    ) -> None:
        study_id = await seeding.awaiting_approval(service.context)

        async with tab.open(f"/ui/studies/{study_id}") as page:
            meta = page.locator("#meta")
            await expect(meta).to_contain_text("waiting for approval")
            await expect(meta).not_to_contain_text("tan-cli")
            page.on("dialog", Dialog.accept)
            await page.get_by_role("button", name=verb).focus()
            await page.keyboard.press("Enter")
            await expect(meta).to_be_focused()
        assert tab.complaints == []

    @pytest.mark.parametrize("width", [740, 768, 900, 1024, 1152, 1160, 1280])
    async def test_the_list_is_read_without_scrolling_sideways(
        self, service: Service, tab: Tab, width: int
    ) -> None:
        await seeding.training(service.context, name="a-name-of-many-words-that-somebody-chose")
        await seeding.completed(service.context)
        await seeding.awaiting_approval(service.context)

        async with tab.open("/", width=width) as page:
            sideways = "box => box.scrollWidth - box.clientWidth"
            assert await page.locator("#studies .scroll").evaluate(sideways) <= 0
            assert await page.locator("html").evaluate(sideways) <= 0
            assert await violations(page) == []

    async def test_text_is_copied_where_the_browser_gives_no_clipboard_too(
        self, service: Service, tab: Tab
    ) -> None:
        study_id = await searching(service.context, 4)

        async with tab.open(f"/ui/studies/{study_id}/trials/0") as page:
            # As on a page that came by plain HTTP from another machine.
            await page.evaluate("delete Navigator.prototype.clipboard")
            text = await page.locator("#params").text_content()
            copy = page.get_by_role("button", name="Copy")
            await copy.click()
            said = page.get_by_role("button", name="Copied")
            await said.click()  # impatiently
            await expect(copy).to_be_visible()
            await expect(said).to_have_count(0)
            await page.wait_for_timeout(1500)
            await expect(copy).to_be_visible()

            await page.goto("/ui/new")
            editor = page.get_by_role("textbox", name="study.yaml")
            await editor.press("ControlOrMeta+a")
            await editor.press("ControlOrMeta+v")
            assert await editor.input_value() == (text or "").strip()
        assert tab.complaints == []


async def _trials(service: Service, study_id: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        return (await client.get(f"/studies/{study_id}/trials?limit=1000")).json()["items"]


def _numbers(value: Any) -> set[float]:
    """Every number in an answer."""
    if isinstance(value, dict):
        return set().union(*map(_numbers, value.values()), set())
    if isinstance(value, list):
        return set().union(*map(_numbers, value), set())
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {float(value)} if is_number else set()
