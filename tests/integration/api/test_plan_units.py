"""What a plan counts where one guarantee is for one user."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.api import make_spec

DIALS = "dataset=clinic&batch_size=64&steps=20&epsilon=3&delta=1e-5&trials=4&model=linear"


@pytest.fixture
async def clinic(client: httpx.AsyncClient, tmp_path: Path) -> str:
    """A registered table of 200 users."""
    rows = (f"{i / 7:.3f},{i % 2},person-{i % 200}" for i in range(1000))
    path = tmp_path / "clinic.csv"
    path.write_text("\n".join(["a,label,person", *rows]) + "\n")
    body = {
        "name": "clinic", "path": str(path), "epsilon": 40.0, "delta": 1e-4, "unit": "person",
        "waiver": "dpo: a test",
    }  # fmt: skip
    answer = await client.post("/datasets", json=body)
    assert answer.status_code == 201, answer.text
    return "clinic"


def study(**changes: Any) -> dict[str, Any]:
    train = {"batch_size": 64, "steps": 20}
    return make_spec(dataset="clinic", model={"name": "linear"}, train=train, **changes)


@pytest.mark.slow
@pytest.mark.usefixtures("clinic")
async def test_users_are_counted_and_called_so(client: httpx.AsyncClient) -> None:
    plan = (await client.post("/plans", json=study())).json()
    assert plan["cost"]["counts"] == "users"

    made = await client.post("/studies", json=study())
    assert made.status_code == 201, made.text
    study_id = made.json()["id"]
    other = (await client.post("/studies", json=study(name="other"))).json()["id"]
    for page in (
        f"/ui/studies/{study_id}",
        f"/ui/plan?{DIALS}",
        f"/ui/plan?{DIALS}&certified=true",
    ):
        told = (await client.get(page)).text
        assert "Examples" not in told.replace("Examples per second", ""), page
    compared = (await client.get(f"/ui/compare?study={study_id}&study={other}")).text
    assert "</data> users" in compared


async def test_examples_are_the_rule_and_go_without_saying(client: httpx.AsyncClient) -> None:
    plan = (await client.post("/plans", json=make_spec())).json()
    assert "counts" not in plan["cost"]
