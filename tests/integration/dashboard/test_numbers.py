"""Every number that stands on a page is a number of the API, written as numbers are written for people.

Read are the texts of whole pages and of their parts, charts as they are drawn, and the exact figures beside
the short ones. Not read are ages and durations, identifiers, ticks of axes, what is quoted (code, logs) and
form fields.
"""

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from html.parser import HTMLParser
from statistics import fmean
from typing import Any

import httpx
import pytest

from service import text
from service.context import Context
from service.dashboard.charts.importance import LEAST_TRIALS
from tests.integration.dashboard import rich, seeding
from tests.integration.dashboard.page import VOID

NUMBER = re.compile(r"(?<![\w.:#-])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?(?![\w:-])")
QUOTED = ("time", "pre", "code", "script", "title", "option", "select", "textarea", "label", "h1")


class Shown(HTMLParser):
    """What a reader of a page sees of numbers."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.exact: list[float] = []
        self.short: list[str] = []
        """As the exact ones are written."""
        self.drawn: list[float] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)

    @property
    def written(self) -> list[str]:
        return [found for words in self.words for found in NUMBER.findall(words)]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag not in VOID:
            is_quoted = tag in QUOTED or "mono" in (attributes.get("class") or "").split()
            is_quoted |= attributes.get("aria-hidden") == "true"
            self._open.append("quoted" if is_quoted or self._open[-1:] == ["quoted"] else tag)
        if tag == "data":
            self.exact.append(float(attributes["value"] or "nan"))
        if lines := attributes.get("data-lines"):
            self.drawn += [value for column in json.loads(lines)["data"][1:] for value in column if value is not None]  # fmt: skip

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["data"]:
            self.short.append(data.removesuffix(" %"))
        if self._open[-1:] != ["quoted"]:
            self.words.append(data)


class Known:
    """The numbers of answers of the API, and how they may be written."""

    def __init__(self, *answers: Any) -> None:
        self.numbers: set[float] = set()
        for answer in answers:
            self.numbers |= set(numbers(answer))
        self._written = {form for number in self.numbers for form in forms(number)}

    def holds(self, number: float) -> bool:
        """Whether it is one of them, to the six digits that are drawn."""
        return number in self.numbers or any(
            abs(number - one) <= 1e-5 * abs(one) for one in self.numbers
        )

    def holds_as_text(self, written: str) -> bool:
        return written in self._written


def numbers(value: Any) -> Iterator[float]:
    """Every number in an answer, how long its lists are, and those in its sentences."""
    if isinstance(value, dict):
        for each in value.values():
            yield from numbers(each)
    elif isinstance(value, list):
        yield len(value)
        for each in value:
            yield from numbers(each)
    elif isinstance(value, str):
        yield from (float(found.replace(",", "")) for found in NUMBER.findall(value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def forms(number: float) -> Iterator[str]:
    """As pages write it: as a share, as an epsilon, as a count, as a parameter or as so many times as much."""
    yield from (f"{100 * number:.1f}", f"{abs(100 * number):.1f}", f"{100 * number:g}")
    yield from (
        text.number(number),
        text.epsilon(number),
        text.rounded_down(number),
        text.estimate(number),
        text.times(number),
    )
    yield from (f"{number:g}", f"{number:.4g}", f"{number:.6g}", str(number))


async def shown(client: httpx.AsyncClient, *paths: str) -> Shown:
    pages: list[str] = []
    for path in paths:
        response = await client.get(path)
        assert response.status_code == 200, path
        pages.append(response.text)
    return Shown("".join(pages))


async def answers(client: httpx.AsyncClient, *paths: str) -> list[Any]:
    found = [await client.get(path) for path in paths]
    assert all(response.status_code == 200 for response in found)
    return [response.json() for response in found]


def check(page: Shown, known: Known, *, least: int) -> None:
    assert len(page.exact) + len(page.written) >= least
    assert [number for number in page.exact if not known.holds(number)] == []
    pairs = zip(page.exact, page.short, strict=True)
    assert [(exact, short) for exact, short in pairs if short not in forms(exact)] == []
    assert [number for number in page.drawn if not known.holds(number)] == []
    assert [written for written in page.written if not known.holds_as_text(written)] == []


async def of_study(client: httpx.AsyncClient, study_id: str) -> list[Any]:
    """All that the API says of a study that its pages show, and what follows from it by a word."""
    at = f"/studies/{study_id}"
    found = await answers(client, at, f"{at}/trials?limit=1000", f"{at}/attempts")
    study = found[0]
    if study["run"]:
        (run,) = await answers(client, f"{at}/run")
        times = [datetime.fromisoformat(each["at"]) for each in run["progress"] + run["segments"]]
        starts = [min(times), datetime.fromisoformat(run["progress"][0]["at"])]
        elapsed = [round((each - start).total_seconds(), 3) for each in times for start in starts]
        found += [run, elapsed]
    best = study["best_trial"] or {"scores": [], "repeats": []}
    by_batch: dict[float, list[float]] = defaultdict(list)
    for score in best["scores"] + best["repeats"]:
        by_batch[score["expected_batch_size"]].append(score["accuracy"])
    # Said where there are fewer: nothing to compute from.
    found.append(LEAST_TRIALS)
    return [*found, [fmean(shares) for shares in by_batch.values()]]


def parts(study_id: str) -> list[str]:
    at = f"/ui/studies/{study_id}"
    return [at, f"{at}/search", f"{at}/curves", f"{at}/run"]


@pytest.fixture
async def studies(context: Context) -> dict[str, str]:
    """A study at each point of its way."""
    made = {
        "done": await seeding.completed(context, name="done"),
        "training": await seeding.training(context, name="wide"),
        "waiting": await seeding.awaiting_approval(context, name="waiting"),
        "failed": await seeding.failed(context, "every trial diverged", name="failed"),
        "queued": await seeding.submitted(context, name="queued"),
    }
    await rich.report_steps(context, made["done"], last=300)
    await rich.report_steps(context, made["training"], last=140)
    return made


class TestPages:
    @pytest.mark.slow
    async def test_a_study_at_every_point_of_its_way(
        self, client: httpx.AsyncClient, studies: dict[str, str]
    ) -> None:
        least = {"done": 800, "training": 500, "waiting": 300, "failed": 80, "queued": 60}
        for name, study_id in studies.items():
            page = await shown(client, *parts(study_id))

            check(page, Known(*await of_study(client, study_id)), least=least[name])

    async def test_the_list(self, client: httpx.AsyncClient, studies: dict[str, str]) -> None:
        page = await shown(client, "/")
        of_each = [answer for id_ in studies.values() for answer in await of_study(client, id_)]

        check(page, Known(*await answers(client, "/studies"), *of_each), least=50)

    async def test_the_comparison(self, client: httpx.AsyncClient, studies: dict[str, str]) -> None:
        chosen = list(studies.values())[:3]
        page = await shown(client, f"/ui/compare?{'&'.join(f'study={id_}' for id_ in chosen)}")

        of_each = [answer for id_ in chosen for answer in await of_study(client, id_)]
        table = await client.get(
            f"/ui/compare/spec.csv?{'&'.join(f'study={id_}' for id_ in chosen)}"
        )
        _, *fields = csv.reader(table.text.splitlines())
        agreeing = sum(len(set(values)) == 1 for _, *values in fields)
        counts = len(chosen), agreeing, len(fields) - agreeing
        check(page, Known(*of_each, *counts), least=300)

    async def test_datasets_and_their_ledger(
        self, client: httpx.AsyncClient, studies: dict[str, str]
    ) -> None:
        at = "/ui/datasets"
        page = await shown(client, at, f"{at}/digits", f"{at}/digits/chain")

        known = [
            "",
            "/digits",
            "/digits/ledger",
            "/digits/ledger/burndown",
            "/digits/ledger/verify",
        ]
        stated = f"/studies/{studies['done']}"
        paths = [*(f"/datasets{each}" for each in known), stated, f"{stated}/statement"]
        check(page, Known(*await answers(client, *paths)), least=150)

    async def test_calibration(self, client: httpx.AsyncClient, studies: dict[str, str]) -> None:
        page = await shown(client, "/ui/calibration")

        known = Known(*await answers(client, "/calibration", "/studies"))
        check(page, known, least=20)


class TestReading:
    """The reader of the pages finds what it is there for."""

    def test_a_number_that_is_nobodys_is_found_wherever_it_stands(self) -> None:
        known = Known({"epsilon": 2.9911, "steps": 1200, "shares": [0.951]})
        fine = Shown('<p>ε <data value="2.9911">2.992</data>, 1,200 steps, 95.1 %</p>')
        check(fine, known, least=4)

        for wrong in (
            '<p><data value="2.9912">2.992</data></p>',
            "<p>ε 2.990</p>",
            '<p><data value="2.9911">1,200</data></p>',
            "<p>1,201 steps</p>",
            "<div data-lines='{\"data\": [[7], [0.96]]}'></div>",
        ):
            with pytest.raises(AssertionError):
                check(Shown(wrong), known, least=0)
