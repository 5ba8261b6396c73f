"""How a study searched is in the journal, beside every epsilon of its budget, and bound to its statement."""

import json
from typing import Any

import httpx
import psycopg
import pytest
from alembic import command
from sqlalchemy import create_engine, select

from service.db.embedded import APP
from service.db.migrate import _config, upgrade
from service.db.session import Database, normalise_url
from service.db.tables import Study
from service.ledger import burndown, export, repository
from service.ledger.notes import BASELINE_NOTE
from service.ledger.service import Ledger, LedgerArgumentError
from service.publication.keys import signing_key
from service.publication.signing import sign
from service.settings import Settings
from service.statements.export_check import verify_export
from service.statements.service import make_statement
from service.statements.statement import StatementError
from tan_core.accounting import SearchAccounting
from tan_core.mechanism import Mechanism
from tests.fixtures.postgres import DatabaseUrls
from tests.support.world import World

NOTE = "search on private data NOT accounted"
SCOPE = "dataset:digits"
LEDGER = "/datasets/digits/ledger"


async def test_entries_of_before_and_after_chain_and_fold_together(
    empty_database: DatabaseUrls, mechanism: Mechanism, tmp_path: Any
) -> None:
    engine = create_engine(normalise_url(empty_database.owner))
    with engine.begin() as connection:
        command.upgrade(_config(connection), "0010")
    engine.dispose()
    with psycopg.connect(empty_database.owner) as connection:
        connection.execute(
            "SELECT ledger_open_scope('s', 's', 'record', 'add_or_remove_one', %s, %s, 'pld', 'me')",
            ((2.0).hex(), (1e-5).hex()),
        )
        connection.execute(
            "SELECT ledger_reserve('s', 1, 'old', 'study-old', 'local', %s, %s, 'me')",
            (json.dumps(mechanism.to_json()), mechanism.steps),
        )
    upgrade(empty_database.owner, APP)

    database = Database(empty_database.app)
    async with database.session() as session:
        await Ledger().admit_and_reserve(
            session, scope_id="s", reservation_id="new", study_id="study-new", mechanism=mechanism,
            actor="me", search_accounting=SearchAccounting.DECLARED_UNACCOUNTED,
        )  # fmt: skip
        report = await Ledger().verify_chain(session, "s")
        entries = await repository.entries(session, "s")
        account = await Ledger().account(session, "s")
        document = await export.document(session, "s", "s")
    await database.close()

    assert report.is_valid, report.fault
    assert [json.loads(one.body).get("search_accounting", "not said") for one in entries] == [
        "not said", "not said", "declared_unaccounted",
    ]  # fmt: skip
    assert [held.search_accounting for held in account.reservations] == [
        None,
        "declared_unaccounted",
    ]
    assert (account.unaccounted_searches, account.search_note) == (1, NOTE)
    checks = {one.name: one for one in verify_export(sign(document, signing_key(tmp_path)))}
    assert not any(one.is_bad for one in checks.values()), checks
    assert checks["search"].detail == (
        f"{NOTE} of 1 study; 1 of 2 reservations are of before the journal said it"
    )


async def test_it_stands_beside_every_epsilon_also_when_the_study_was_cancelled(
    client: httpx.AsyncClient, settings: Settings, database: Database
) -> None:
    before = (await client.get(LEDGER)).json()
    assert (before["unaccounted_searches"], before.get("search_note")) == (0, None)
    world = World(client, settings, database)
    study_id = await world.submit()
    await world.tick(3)
    await client.post(f"/studies/{study_id}/cancel")
    await world.tick(3)

    assert (await world.study(study_id))["state"] == "cancelled"
    account = (await client.get(LEDGER)).json()
    assert account["committed_epsilon"] == 0.0
    assert (account["unaccounted_searches"], account["search_note"]) == (1, NOTE)
    [reserved] = [one for one in account["entries"] if one["kind"] == "reserve"]
    assert json.loads(reserved["body"])["search_accounting"] == "declared_unaccounted"
    down = (await client.get(f"{LEDGER}/burndown")).json()
    assert (down["unaccounted_searches"], down["search_note"]) == (1, NOTE)
    exported = (await client.get(f"{LEDGER}/export")).json()
    assert exported["search"] == {"unaccounted": 1, "note": NOTE}
    assert exported["reservations"][0]["search_accounting"] == "declared_unaccounted"


async def test_a_baseline_is_counted_like_a_search(
    client: httpx.AsyncClient, settings: Settings, database: Database, database_urls: DatabaseUrls
) -> None:
    """It reads the training and validation data without any privacy, and no charge is for it."""
    world = World(client, settings, database)
    await world.submit()
    account = (await client.get(LEDGER)).json()
    assert (account["unaccounted_baselines"], account.get("baseline_note")) == (0, None)
    await world.submit(evaluation={"baseline": True})
    for path in (LEDGER, f"{LEDGER}/burndown"):
        told = (await client.get(path)).json()
        assert (told["unaccounted_baselines"], told["baseline_note"]) == (1, BASELINE_NOTE)
    account = (await client.get(LEDGER)).json()
    said = [json.loads(one["body"]) for one in account["entries"] if one["kind"] == "reserve"]
    assert [one["baseline"] for one in said] == [False, True]
    assert [held["baseline"] for held in account["reservations"]] == [False, True]
    exported = (await client.get(f"{LEDGER}/export")).json()
    assert exported["baselines"] == {"unaccounted": 1, "note": BASELINE_NOTE}
    checks = {one.name: one for one in verify_export(exported)}
    assert checks["baselines"].detail == f"{BASELINE_NOTE}, of 1 study"
    assert not any(one.is_bad for one in checks.values())
    for page in ("/ui/datasets", "/ui/datasets/digits"):
        assert BASELINE_NOTE in (await client.get(page)).text
    with psycopg.connect(database_urls.owner) as connection:
        connection.execute("UPDATE ledger_reservation SET baseline = NULL")
    async with database.session() as session:  # as of before the journal said it
        assert await repository.unaccounted_baselines(session, SCOPE) == 1
    report = (await client.get(f"{LEDGER}/verify")).json()
    assert "baseline is None, the journal says" in report["fault"]


async def test_a_study_of_before_the_journal_said_it_is_counted_by_its_row(
    client: httpx.AsyncClient,
    settings: Settings,
    database: Database,
    owner: Database,
    database_urls: DatabaseUrls,
) -> None:
    study_id = await World(client, settings, database).submit()
    with psycopg.connect(database_urls.owner) as connection:
        connection.execute("UPDATE ledger_reservation SET search_accounting = NULL")
    async with owner.session() as session:
        assert await repository.unaccounted_searches(session, SCOPE) == 1
        study = await session.get_one(Study, study_id)
        study.search_accounting = "public_proxy"
    async with database.session() as session:
        assert await repository.unaccounted_searches(session, SCOPE) == 0


async def test_a_mode_that_was_changed_after_the_search_is_not_stated(
    client: httpx.AsyncClient, settings: Settings, database: Database, owner: Database
) -> None:
    world = World(client, settings, database)
    study_id = await world.trained()
    async with owner.session() as session:
        study = await session.get_one(Study, study_id)
        study.search_accounting = "public_proxy"
        study.spec = {
            **study.spec,
            "search": {**study.spec["search"], "accounting": "public_proxy"},
        }
    await world.tick(3)

    study = await world.study(study_id)
    assert study["state"] == "training"
    assert "ledger's entry says declared_unaccounted" in study["reason"]
    assert (await client.get(f"/studies/{study_id}/statement")).status_code == 404


@pytest.mark.parametrize("where", ["row", "spec"])
async def test_the_row_and_the_spec_must_say_the_same(
    client: httpx.AsyncClient, settings: Settings, database: Database, owner: Database, where: str
) -> None:
    world = World(client, settings, database)
    study_id = await world.trained()
    await world.tick(1)
    async with owner.session() as session:
        study = (await session.scalars(select(Study))).one()
        if where == "row":
            study.search_accounting = "public_proxy"
        else:
            study.spec = {
                **study.spec,
                "search": {**study.spec["search"], "accounting": "public_proxy"},
            }
    with pytest.raises(StatementError, match="declared_unaccounted and public_proxy of its search"):
        await make_statement(database, study_id, settings)


async def test_a_reservation_that_is_missing_is_not_taken_for_public_data(
    client: httpx.AsyncClient, settings: Settings, database: Database
) -> None:
    world = World(client, settings, database)
    study_id = await world.trained()
    await world.tick(1)
    async with database.session() as session:
        (await session.get_one(Study, study_id)).reservation_id = None

    with pytest.raises(StatementError, match="nothing is reserved of it"):
        await make_statement(database, study_id, settings)


async def test_a_reservation_of_another_study_is_not_stated(
    client: httpx.AsyncClient, settings: Settings, database: Database
) -> None:
    world = World(client, settings, database)
    study_id = await world.trained()
    await world.tick(1)
    other = await world.to_training(name="other")
    async with database.session() as session:
        (await session.get_one(Study, study_id)).reservation_id = other

    with pytest.raises(StatementError, match=f"which is that of study '{other}'"):
        await make_statement(database, study_id, settings)


async def test_what_is_reserved_in_its_place_says_the_same(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism
) -> None:
    async with database.session() as session:
        await ledger.admit_and_reserve(
            session, scope_id=scope, reservation_id="a", study_id="s", mechanism=mechanism,
            actor="me", search_accounting=SearchAccounting.DECLARED_UNACCOUNTED, baseline=True,
        )  # fmt: skip
        await ledger.swap(
            session, "a", new_reservation_id="b", study_id="s",
            mechanism=mechanism.with_steps(50), actor="me",
        )  # fmt: skip
        held = await repository.reservation(session, "b")
        assert (held.search_accounting, held.baseline) == ("declared_unaccounted", True)
        assert await repository.unaccounted_baselines(session, scope) == 1
        assert await repository.unaccounted_searches(session, scope) == 1
        assert (await burndown.burndown(session, scope)).unaccounted_searches == 1
        assert (await ledger.verify_chain(session, scope)).is_valid


async def test_a_mode_that_nobody_knows_is_refused(
    database: Database, scope: str, mechanism: Mechanism
) -> None:
    async with database.session() as session:
        with pytest.raises(LedgerArgumentError):
            await repository.call(
                session, "ledger_reserve", scope, 1, "x", "s", "local",
                json.dumps(mechanism.to_json()), mechanism.steps, "me", "unheard_of",
            )  # fmt: skip


async def test_a_row_that_says_another_mode_than_the_journal_is_found(
    client: httpx.AsyncClient, settings: Settings, database: Database, database_urls: DatabaseUrls
) -> None:
    await World(client, settings, database).submit()
    with psycopg.connect(database_urls.owner) as connection:
        connection.execute("UPDATE ledger_reservation SET search_accounting = 'public_proxy'")
    report = (await client.get(f"{LEDGER}/verify")).json()
    assert not report["is_valid"]
    assert "search_accounting is 'public_proxy'" in report["fault"]
