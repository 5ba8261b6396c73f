"""What a budget was opened for stands in the first entry of its journal, and nothing else is believed."""

import json
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb

from service.db.session import Database
from service.ledger import export, repository, words
from service.ledger.service import Ledger, LedgerArgumentError, ReservationReusedError
from service.publication.keys import signing_key
from service.publication.signing import sign
from service.statements.export_check import verify_export
from tan_core.mechanism import NeighboringRelation
from tests.fixtures.postgres import DatabaseUrls

SCOPE = "dataset:clinic"
WAIVER = "Dr. Rivera: pilot, approved by the board"


@pytest.fixture
async def clinic(client: httpx.AsyncClient, tmp_path: Path) -> dict[str, Any]:
    """A registered table of users; its first entry's registration."""
    rows = (f"{i / 7:.3f},{('well', 'ill')[i % 2]},person-{i % 50}" for i in range(500))
    path = tmp_path / "clinic.csv"
    path.write_text("\n".join(["a,label,person", *rows]) + "\n")
    body = {
        "name": "clinic", "path": str(path), "epsilon": 4.0, "delta": 1e-5, "unit": "person",
        "split_seed": 7, "allow": ["public_proxy", "declared_unaccounted"], "waiver": WAIVER,
        "classes": ["well", "ill"],
    }  # fmt: skip
    answer = await client.post("/datasets", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def opened(database: Database) -> Any:
    async with database.session() as session:
        return (await repository.entries(session, SCOPE))[0]


async def test_the_first_entry_says_which_data_and_what_may_be_done_with_them(
    clinic: dict[str, Any], database: Database
) -> None:
    entry = await opened(database)

    told = json.loads(entry.body)["registration"]
    assert told == {
        "dataset": "clinic", "source": "table", "label": "label", "classes": ["well", "ill"], "features": None,
        "sha256": clinic["content_sha256"], "unit": "person",
        "records_per_unit": clinic["records_per_unit"], "group": None,
        "num_train": clinic["num_train"], "num_train_records": clinic["num_train_records"],
        "num_validation": clinic["num_validation"],
        "num_validation_users": clinic["num_validation_users"], "num_test": clinic["num_test"], "split_seed": 7,
        "allowed_modes": ["public_proxy", "declared_unaccounted"], "waiver": WAIVER, "overlap": None,
    }  # fmt: skip
    said = words.what(entry)
    assert said.startswith("budget of ε 4 at δ 1e-05 for ")
    assert "by person" in said
    assert f"waiver of {WAIVER}" in said


@pytest.mark.usefixtures("clinic")
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("unit", "record"),
        ("num_train", 1_000_000),
        ("records_per_unit", 1),
        ("content_sha256", "0" * 64),
        ("split_seed", 8),
        ("allowed_modes", Jsonb(["public_proxy"])),
        ("waiver", None),
        ("classes", Jsonb(["ill", "well"])),
    ],
)
async def test_a_row_that_says_another_thing_is_found(
    column: str, value: Any, database: Database, database_urls: DatabaseUrls
) -> None:
    """Only the owner of the tables can edit it; the journal outlasts even that."""
    async with database.session() as session:
        assert (await Ledger().verify_chain(session, SCOPE)).is_valid
    with psycopg.connect(database_urls.owner) as connection:
        connection.execute(
            f"UPDATE dataset SET {column} = %s WHERE name = 'clinic'".encode(), (value,)
        )

    async with database.session() as session:
        report = await Ledger().verify_chain(session, SCOPE)

    assert not report.is_valid
    assert report.first_bad_seq == 1
    name = "sha256" if column == "content_sha256" else column
    assert f"opened for data with {name} = " in (report.fault or "")


@pytest.mark.usefixtures("clinic")
@pytest.mark.parametrize(
    "change", ["public = true", "public = true, scope_id = NULL", "scope_id = NULL"]
)
async def test_a_row_that_lets_its_data_go_without_a_budget_is_found(
    change: str, database: Database, database_urls: DatabaseUrls
) -> None:
    with psycopg.connect(database_urls.owner) as connection:
        connection.execute(f"UPDATE dataset SET {change} WHERE name = 'clinic'".encode())

    async with database.session() as session:
        report = await Ledger().verify_chain(session, SCOPE)

    assert (report.is_valid, report.first_bad_seq) == (False, 1)
    assert report.fault == (
        "the budget was opened for 'clinic', and no private dataset has it any more"
    )


@pytest.mark.usefixtures("clinic")
async def test_a_row_that_takes_the_budget_of_others_is_found(
    database: Database, database_urls: DatabaseUrls
) -> None:
    with psycopg.connect(database_urls.owner) as connection:
        connection.execute(
            "CREATE TEMP TABLE one AS SELECT * FROM dataset WHERE name = 'clinic';"
            "UPDATE one SET name = 'other', content_sha256 = repeat('0', 64);"
            "INSERT INTO dataset SELECT * FROM one"
        )

    async with database.session() as session:
        report = await Ledger().verify_chain(session, SCOPE)

    assert report.fault == (
        "the budget was opened for data with dataset = 'clinic', their row says 'other'"
    )


@pytest.mark.usefixtures("clinic")
async def test_a_second_budget_for_the_same_data_is_found(
    client: httpx.AsyncClient, database: Database, database_urls: DatabaseUrls
) -> None:
    told = json.loads((await opened(database)).body)["registration"]
    async with database.session() as session:
        await Ledger().open_scope(
            session, scope_id="fresh", unit="user", epsilon=4.0, delta=1e-5, actor="me", registration=told,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        )  # fmt: skip
    with psycopg.connect(database_urls.owner) as connection:
        connection.execute("UPDATE dataset SET scope_id = 'fresh' WHERE name = 'clinic'")

    report = (await client.get("/datasets/clinic/ledger/verify")).json()

    assert (report["is_valid"], report["first_bad_seq"]) == (False, 1)
    assert "this is one more for the same data" in report["fault"]


@pytest.mark.usefixtures("clinic")
async def test_an_export_holds_it_and_is_good(database: Database, tmp_path: Path) -> None:
    async with database.session() as session:
        document = await export.document(session, SCOPE, "clinic")

    checks = verify_export(sign(document, signing_key(tmp_path)))

    assert not any(one.is_bad for one in checks), checks
    assert "person" in json.loads(document["entries"][0]["body"])["registration"]["unit"]


async def test_a_budget_is_not_opened_twice_for_unlike_data(database: Database) -> None:
    def opening(registration: Any) -> dict[str, Any]:
        return {
            "scope_id": "s", "unit": "record", "epsilon": 1.0, "delta": 1e-5, "actor": "me",
            "neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE, "registration": registration,
        }  # fmt: skip

    async with database.session() as session:
        ledger = Ledger()
        assert await ledger.open_scope(session, **opening({"sha256": "a", "n": 1})) == 1
        assert await ledger.open_scope(session, **opening({"sha256": "a", "n": 1})) == 1
        assert await ledger.open_scope(session, **opening(None)) == 1
        with pytest.raises(ReservationReusedError, match="open already, for other data"):
            await ledger.open_scope(session, **opening({"sha256": "b", "n": 1}))
        with pytest.raises(LedgerArgumentError, match="a registration must be a JSON object"):
            await ledger.open_scope(session, **opening([1]) | {"scope_id": "other"})
