"""Records of one dataset in another: refused, or accepted by name in the ledger."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.db.session import Database
from service.ledger import repository
from service.settings import Settings

ACCEPTED = "Dr. Rivera: the shared records are of the staff, who were asked"


def write(folder: Path, name: str, rows: Iterable[int]) -> str:
    path = folder / name
    lines = (f"{i / 7:.4f},{i % 11},{i % 2}" for i in rows)
    path.write_text("\n".join(["a,b,label", *lines]) + "\n")
    return str(path)


def body(name: str, path: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "path": path, "epsilon": 4.0, "delta": 1e-5} | changes


def public(name: str, path: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "path": path, "public": True} | changes


@pytest.fixture
async def alpha(client: httpx.AsyncClient, tmp_path: Path) -> None:
    answer = await client.post(
        "/datasets", json=body("alpha", write(tmp_path, "a.csv", range(3000)))
    )
    assert answer.status_code == 201, answer.text
    assert answer.json()["overlap"] is None


@pytest.mark.usefixtures("alpha")
async def test_a_fresh_budget_for_the_same_people_is_refused(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    """One record less makes other bytes; it makes no other people."""
    answer = await client.post(
        "/datasets", json=body("again", write(tmp_path, "b.csv", range(1, 3000)))
    )

    assert answer.status_code == 409
    assert answer.json()["detail"].startswith(
        "2,999 of its 2,999 distinct records are records of the private dataset 'alpha' too: no budget "
        "alone protects whoever is in both. Leave them out; or say who accepts it and why, as accept_overlap: "
        '"owner: reason", which stands in the ledger and in every statement'
    )
    names = [one["name"] for one in (await client.get("/datasets")).json()["items"]]
    assert "again" not in names


@pytest.mark.usefixtures("alpha")
async def test_public_data_hold_no_private_records(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    answer = await client.post(
        "/datasets", json=public("open", write(tmp_path, "b.csv", range(2900, 9000)))
    )

    assert answer.status_code == 409
    assert (
        "100 of its 6,100 distinct records are records of the private dataset 'alpha'"
        in answer.text
    )
    assert "a search on them would read private data and count nothing" in answer.text
    assert "which is shown with the dataset and in every statement" in answer.text


async def test_private_data_hold_no_records_of_public_ones_but_public_ones_may(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    first = await client.post("/datasets", json=public("one", write(tmp_path, "a.csv", range(500))))
    second = await client.post(
        "/datasets", json=public("two", write(tmp_path, "b.csv", range(400)))
    )
    third = await client.post("/datasets", json=body("own", write(tmp_path, "c.csv", range(300))))

    assert (first.status_code, second.status_code, third.status_code) == (201, 201, 409)
    assert "what is registered as public is read without being counted" in third.text


@pytest.mark.usefixtures("alpha")
async def test_a_few_alike_are_nothing(client: httpx.AsyncClient, tmp_path: Path) -> None:
    answer = await client.post(
        "/datasets", json=body("other", write(tmp_path, "b.csv", range(2990, 6000)))
    )

    assert answer.status_code == 201, answer.text
    assert answer.json()["overlap"] is None


@pytest.mark.usefixtures("alpha")
@pytest.mark.parametrize(("guess", "status"), [(17, 409), (9000, 200)], ids=["there", "not"])
async def test_who_may_register_learns_whether_a_guessed_record_is_there(
    client: httpx.AsyncClient, tmp_path: Path, guess: int, status: int
) -> None:
    """No epsilon covers it, and docs/sharp_edges.md says so: it is for admins alone, and in the audit."""
    path = write(tmp_path, "b.csv", [guess, *range(5000, 5098)])

    answer = await client.post("/datasets?dry_run=true", json=body("guess", path))

    assert answer.status_code == status, answer.text
    assert ("1 of its 99 distinct records" in answer.text) is (status == 409)
    said = (await client.get("/audit")).json()["items"][0]
    assert (said["target"], said["status"]) == ("guess/dry run", status)


@pytest.mark.usefixtures("alpha")
async def test_who_accepts_it_is_in_the_ledger(
    client: httpx.AsyncClient, database: Database, tmp_path: Path
) -> None:
    path = write(tmp_path, "b.csv", range(1500, 4000))
    nameless = await client.post(
        "/datasets", json=body("staff", path, accept_overlap="nobody in particular")
    )
    assert nameless.status_code == 422
    assert nameless.json()["errors"][0]["path"] == "accept_overlap"

    answer = await client.post("/datasets", json=body("staff", path, accept_overlap=ACCEPTED))

    assert answer.status_code == 201, answer.text
    overlap = answer.json()["overlap"]
    assert overlap == {
        "accepted": ACCEPTED,
        "others": [{"dataset": "alpha", "public": False, "shared": 1500, "of": 2500}],
    }
    async with database.session() as session:
        (entry,) = await repository.entries(session, "dataset:staff")
    assert json.loads(entry.body)["registration"]["overlap"] == overlap
    page = await client.get("/ui/datasets/staff")
    assert "1,500</data> of" in page.text
    assert ACCEPTED in page.text


@pytest.mark.usefixtures("alpha")
async def test_what_was_registered_under_another_secret_is_named(
    client: httpx.AsyncClient, settings: Settings, tmp_path: Path
) -> None:
    """A lost secret is made anew: whether the same people are there once more is known to nobody from then on."""
    same = body("again", write(tmp_path, "b.csv", range(1, 3000)))
    other = body("other", write(tmp_path, "c.csv", range(4000, 6000)))
    secret = settings.home_path / "secret"
    compared = await client.post("/datasets?dry_run=true", json=other)
    assert "not compared" not in compared.text

    secret.write_bytes(bytes(len(secret.read_bytes())))
    answer = await client.post("/datasets", json=same)

    assert answer.status_code == 201, answer.text
    (warning,) = (each for each in answer.json()["warnings"] if "not compared" in each)
    assert "those of 1 dataset ('alpha'), registered under another TAN_HOME/secret" in warning
