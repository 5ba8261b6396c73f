"""A dataset is described, looked at and registered in the browser."""

import re
from pathlib import Path

import httpx
import numpy as np
import pytest
import yaml

from service.context import Context
from service.dashboard.register import FIRST
from service.datasets.schemas import DatasetRegistration
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import Page, get


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Patients: 40 to train on and 20 to test on, with a job that is text."""
    folder = tmp_path / "patients"
    folder.mkdir()
    draw = np.random.default_rng(0)
    for split, rows in (("train", 40), ("test", 20)):
        lines = [
            f"{draw.integers(0, 90)},{draw.choice(['clerk', 'nurse'])},{row % 2}"
            for row in range(rows)
        ]
        (folder / f"{split}.csv").write_text("\n".join(["age,job,label", *lines]) + "\n")
    return folder


def written(path: Path, **more: object) -> str:
    return yaml.safe_dump(
        {
            "name": "patients",
            "path": str(path),
            "epsilon": 8.0,
            "delta": 1e-4,
            "features": [
                {"column": "age", "low": 0, "high": 100},
                {"column": "job", "choices": ["clerk", "nurse"]},
            ],
            **more,
        },
        sort_keys=False,
    )


async def post(client: httpx.AsyncClient, text: str, action: str) -> httpx.Response:
    return await client.post("/ui/register", data={"yaml": text, "action": action})


async def names(client: httpx.AsyncClient) -> list[str]:
    return [each["name"] for each in (await client.get("/datasets")).json()["items"]]


class TestDescribing:
    async def test_the_first_text_is_a_registration_with_all_that_is_left_out(
        self, client: httpx.AsyncClient
    ) -> None:
        page = await get(client, "/ui/register")

        assert page.text["yaml"].strip() == FIRST.strip()
        as_it_is = DatasetRegistration.model_validate(yaml.safe_load(FIRST))
        assert (as_it_is.name, as_it_is.epsilon, as_it_is.unit) == ("my-data", 10.0, "record")
        whole = yaml.safe_load(re.sub(r"(?m)^# ?", "", FIRST))
        del whole["epsilon"], whole["delta"], whole["approval"]  # of data that are not public
        features = DatasetRegistration.model_validate(whole).features
        assert features is not None
        assert len(features) == 3

    async def test_the_list_leads_here(self, client: httpx.AsyncClient, context: Context) -> None:
        for _ in range(2):
            page = await get(client, "/ui/datasets")
            assert "/ui/register" in {a.get("href") for a in page.all("a")}
            await seeding.ensure_digits(context.database)


class TestChecking:
    async def test_it_says_what_is_there_and_stores_nothing(
        self, client: httpx.AsyncClient, table: Path
    ) -> None:
        answer = await post(client, written(table), "check")

        assert answer.status_code == 200
        page = Page(answer.text)
        assert "What was found" in page.text["verdict"]
        assert "Nothing is stored yet" in page.text["verdict"]
        assert {8.0, 1e-4, 20.0} <= {*page.data["verdict"]}
        assert "nurse" in page.text["verdict"]
        assert await names(client) == []

    async def test_a_fault_is_named_with_its_line(
        self, client: httpx.AsyncClient, table: Path
    ) -> None:
        text = written(table, epsilon=-1.0)

        answer = await post(client, text, "check")

        assert answer.status_code == 422
        page = Page(answer.text)
        line = 1 + text[: text.index("epsilon")].count("\n")
        assert [a["data-line"] for a in page.all("button") if "data-line" in a] == [str(line)]
        assert "epsilon" in page.text["verdict"]
        assert page.text["yaml"].strip() == text.strip()

    @pytest.mark.parametrize(
        "text", ["", "[1, 2]", "name: a\nname: b", "name: [\x00", "epsilon: 1"]
    )
    async def test_text_that_describes_nothing_is_refused_in_words(
        self, client: httpx.AsyncClient, text: str
    ) -> None:
        answer = await post(client, text, "register")

        assert answer.status_code == 422
        assert "Refused" in Page(answer.text).text["verdict"]
        assert await names(client) == []

    async def test_data_that_cannot_be_read_are_refused(
        self, client: httpx.AsyncClient, tmp_path: Path
    ) -> None:
        answer = await post(client, written(tmp_path / "nowhere"), "register")

        assert answer.status_code == 422
        assert "nowhere" in Page(answer.text).text["verdict"]


class TestRegistering:
    async def test_it_opens_the_budget_and_says_what_the_api_says(
        self, client: httpx.AsyncClient, table: Path
    ) -> None:
        answer = await post(client, written(table), "register")

        assert answer.status_code == 200
        page = Page(answer.text)
        assert page.text["verdict"].split()[0] == "Registered"
        assert "/ui/datasets/patients" in {a.get("href") for a in page.all("a")}
        made = (await client.get("/datasets/patients")).json()
        assert (made["budget"]["epsilon"], made["num_train"] + made["num_validation"]) == (8.0, 40)

    async def test_twice_is_a_refusal(self, client: httpx.AsyncClient, table: Path) -> None:
        await post(client, written(table), "register")

        answer = await post(client, written(table), "register")

        assert answer.status_code == 422
        assert "registered already" in Page(answer.text).text["verdict"]

    async def test_what_its_owner_may_overlook_is_told(
        self, client: httpx.AsyncClient, table: Path
    ) -> None:
        """It is told once, to whoever brings the records: so the answer is a page and no way to another one."""
        unread = written(table, features=None)

        for action in ("check", "register"):
            told = await client.post("/datasets?dry_run=true", json=yaml.safe_load(unread))
            answer = await post(client, unread, action)
            if action == "check":
                warnings = told.json()["warnings"]
                assert warnings
            assert all(each in Page(answer.text).text["verdict"] for each in warnings)
