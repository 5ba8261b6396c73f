"""Migrations on a real PostgreSQL."""

import asyncio
import subprocess
import sys
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, text

from service.db import migrate
from service.db.embedded import APP
from service.db.migrate import (
    ADVISORY_LOCK,
    MigrationError,
    SchemaError,
    _config,
    expect_schema,
    head_revision,
    upgrade,
)
from service.db.session import Database, normalise_url
from service.db.tables import Base
from tests.fixtures.postgres import DatabaseUrls

SCHEMA = """
SELECT 'column', c.relname || '.' || a.attname,
       format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' '
           || coalesce(trim(both '''' from split_part(pg_get_expr(d.adbin, d.adrelid), '::', 1)), '')
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
  LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
 WHERE c.relname = ANY(%(tables)s) AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'constraint', conname, pg_get_constraintdef(oid) FROM pg_constraint
 WHERE conrelid::regclass::text = ANY(%(tables)s) AND contype <> 'n'
UNION ALL
SELECT 'index', indexname, indexdef FROM pg_indexes WHERE tablename = ANY(%(tables)s)
ORDER BY 1, 2
"""


def schema(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(SCHEMA, {"tables": list(Base.metadata.tables)}).fetchall()


def test_alembic_sees_no_drift_between_models_and_migrations(database_urls: DatabaseUrls) -> None:
    engine = create_engine(normalise_url(database_urls.owner))
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={"include_name": lambda name, kind, _: kind != "table" or not is_ledger(name)},
        )
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def is_ledger(table: str | None) -> bool:
    return (table or "").startswith("ledger_")


def test_migrations_make_the_very_columns_constraints_and_indexes_of_the_models(
    database_urls: DatabaseUrls, empty_database: DatabaseUrls
) -> None:
    engine = create_engine(normalise_url(empty_database.owner))
    Base.metadata.create_all(engine)
    engine.dispose()
    assert schema(database_urls.owner) == schema(empty_database.owner)


def test_the_studies_of_a_dataset_are_found_by_an_index(database_urls: DatabaseUrls) -> None:
    with psycopg.connect(database_urls.owner) as connection:
        connection.execute("SET enable_seqscan = off")
        lines = connection.execute("EXPLAIN SELECT FROM study WHERE dataset = 'digits'").fetchall()
    assert "ix_study_dataset" in str(lines)


def test_an_upgrade_repeats_harmlessly(database_urls: DatabaseUrls) -> None:
    upgrade(database_urls.owner, APP)
    with psycopg.connect(database_urls.app) as connection:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    assert row == (head_revision(),)


@pytest.mark.parametrize(
    "forbidden",
    [
        "UPDATE dataset_file SET dataset = 'other'",
        "DELETE FROM dataset_file",
        "DELETE FROM dataset",
        "UPDATE dataset SET public = true, scope_id = NULL",
        "UPDATE dataset SET waiver = 'me: no reason', allowed_modes = '[]'",
        "UPDATE dataset SET num_train = 1000000",
        "UPDATE study SET search_accounting = 'public_proxy'",
        "UPDATE study SET spec = '{}', plan = '{}'",
        "UPDATE study SET tenant = 'another'",
        "DELETE FROM study",
    ],
)
def test_the_service_cannot_change_what_was_registered_or_asked_for(
    database_urls: DatabaseUrls, forbidden: str
) -> None:
    with psycopg.connect(database_urls.owner) as connection:  # as versions of before granted
        connection.execute(
            f"GRANT UPDATE, DELETE ON dataset, dataset_file, study TO {APP}".encode()
        )
    upgrade(database_urls.owner, APP)
    with psycopg.connect(database_urls.app) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(forbidden.encode())
        connection.rollback()
        connection.execute("SELECT count(*) FROM dataset_file")
        connection.execute("UPDATE dataset SET approval = 'required'")
        connection.execute("SELECT 1 FROM study FOR UPDATE")


def test_an_owner_that_serves_keeps_what_later_upgrades_need(
    empty_database: DatabaseUrls,
) -> None:
    role = normalise_url(empty_database.owner).username
    upgrade(empty_database.owner, role)
    with psycopg.connect(empty_database.owner) as connection:
        connection.execute("DELETE FROM dataset_file")


async def test_starters_that_race_migrate_once(empty_database: DatabaseUrls) -> None:
    await asyncio.gather(*(asyncio.to_thread(upgrade, empty_database.owner, APP) for _ in range(4)))
    with psycopg.connect(empty_database.app) as connection:
        assert connection.execute("SELECT count(*) FROM study").fetchone() == (0,)


async def test_a_second_starter_waits_for_the_first(empty_database: DatabaseUrls) -> None:
    with psycopg.connect(empty_database.owner) as first:
        first.execute("SELECT pg_advisory_xact_lock(%s)", (ADVISORY_LOCK,))
        second = asyncio.create_task(asyncio.to_thread(upgrade, empty_database.owner, APP))
        await asyncio.sleep(0.5)
        assert not second.done()
    await second


def test_a_failed_upgrade_leaves_no_trace(empty_database: DatabaseUrls) -> None:
    with pytest.raises(MigrationError, match="no role 'nobody_here'"):
        upgrade(empty_database.owner, "nobody_here")
    assert schema(empty_database.owner) == []


def test_a_table_that_is_in_use_ends_an_upgrade_with_what_to_do(
    empty_database: DatabaseUrls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "_WAITS_FOR_TABLES", (0.05, 0.05))
    bring_to(empty_database, "0001")
    with psycopg.connect(empty_database.owner) as reader:
        reader.execute("SELECT count(*) FROM study")
        with pytest.raises(MigrationError, match=r"a table is in use .* stop the service"):
            upgrade(empty_database.owner, APP)
        assert reader.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)
    upgrade(empty_database.owner, APP)


def bring_to(urls: DatabaseUrls, revision: str) -> None:
    engine = create_engine(normalise_url(urls.owner))
    with engine.begin() as connection:
        command.upgrade(_config(connection), revision)
    engine.dispose()


async def test_an_upgrade_ends_no_transaction_of_a_service_at_work_and_is_not_ended_by_one(
    empty_database: DatabaseUrls,
) -> None:
    bring_to(empty_database, "0022")  # the next one only shares the table that a later one changes
    with psycopg.connect(empty_database.owner) as service:
        service.execute("SELECT count(*) FROM study")
        upgrading = asyncio.create_task(asyncio.to_thread(upgrade, empty_database.owner, APP))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(service.execute, "UPDATE study SET reason = NULL")
        service.commit()
    await upgrading
    with psycopg.connect(empty_database.app) as connection:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    assert row == (head_revision(),)


def test_a_migrator_whose_machine_vanishes_has_its_locks_for_seconds(
    empty_database: DatabaseUrls, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    def look(config: Config, _: str) -> None:
        connection = config.attributes["connection"]
        names = ("tcp_keepalives_idle", "tcp_user_timeout", "idle_in_transaction_session_timeout")
        seen.extend(connection.scalar(text(f"SHOW {name}")) for name in names)

    monkeypatch.setattr(migrate.command, "upgrade", look)
    upgrade(empty_database.owner)
    assert seen == ["10", "10000", "15min"]


def test_a_newer_schema_is_refused(database_urls: DatabaseUrls) -> None:
    with psycopg.connect(database_urls.owner) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(MigrationError, match="schema 9999"):
        upgrade(database_urls.owner, APP)


def test_an_unreachable_database_is_named_without_its_password() -> None:
    with pytest.raises(MigrationError, match=r"127\.0\.0\.1:1/x") as error:
        upgrade("postgresql://who:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in str(error.value)


@pytest.mark.slow
def test_the_command_migrates_the_database_of_the_settings(empty_database: DatabaseUrls) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "service.db.migrate"],
        env={
            "PATH": "/usr/bin:/bin",
            "TAN_DATABASE_URL": empty_database.app,
            "TAN_DATABASE_OWNER_URL": empty_database.owner,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, f"schema is at {head_revision()}")
    with psycopg.connect(empty_database.app) as connection:
        assert connection.execute("SELECT count(*) FROM ledger_scope").fetchone() == (0,)


async def test_a_database_of_another_program_is_refused(
    database: Database, database_urls: DatabaseUrls
) -> None:
    async with database.reading() as session:
        await expect_schema(session)
    with psycopg.connect(database_urls.owner) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    async with database.reading() as session:
        with pytest.raises(
            SchemaError, match=f"at schema 9999, this version needs {head_revision()}"
        ):
            await expect_schema(session)
