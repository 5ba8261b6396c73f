"""A backup is whole or not there, and comes back as what it was."""

import asyncio
import stat
import subprocess
import threading
from pathlib import Path

import psycopg
import pytest

from service.app import create_app
from service.db.embedded import APP, EmbeddedPostgres, find_installation
from service.db.migrate import head_revision
from service.db.session import Database
from service.maintenance.backup import backup, restore
from service.maintenance.errors import MaintenanceError
from service.maintenance.schema import bring_up, status
from service.maintenance.target import Target, open_target
from service.maintenance.tools import Tools
from service.settings import Settings
from tests.fixtures.postgres import DatabaseUrls
from tests.integration.dashboard import seeding

# Everything that a restored database must have again: columns, rules, code, and who may do what.
PICTURE = """
SELECT 'table', c.relname, c.relacl::text, (SELECT string_agg(attname || ' ' || atttypid::regtype
       || attnotnull, ',' ORDER BY attnum) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0)
  FROM pg_class c WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i', 'S')
UNION ALL
SELECT 'function', p.oid::regprocedure::text, proacl::text, md5(pg_get_functiondef(p.oid))
  FROM pg_proc p WHERE pronamespace = 'public'::regnamespace
UNION ALL
SELECT 'trigger', tgname || ' ' || tgrelid::regclass, tgenabled::text, md5(pg_get_triggerdef(oid))
  FROM pg_trigger WHERE NOT tgisinternal
UNION ALL
SELECT 'constraint', conname || ' ' || conrelid::regclass, '', pg_get_constraintdef(oid)
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace
ORDER BY 1, 2
"""


def target(urls: DatabaseUrls) -> Target:
    return Target(urls.owner, APP)


def picture(urls: DatabaseUrls) -> tuple[list, dict[str, list]]:
    """The schema with its grants, and every row."""
    with psycopg.connect(urls.owner) as connection:
        schema = [
            # The order of entries in a grant list means nothing.
            (kind, name, sorted((acl or "").strip("{}").split(",")), body)
            for kind, name, acl, body in connection.execute(PICTURE).fetchall()
        ]
        tables = [name for kind, name, _, _ in schema if kind == "table"]
        ordinary = connection.execute(
            "SELECT relname FROM pg_class WHERE relname = ANY(%s) AND relkind = 'r'", (tables,)
        ).fetchall()
        rows = {
            name: connection.execute(f"SELECT t::text FROM {name} t ORDER BY 1").fetchall()
            for (name,) in ordinary
        }
    return schema, rows


@pytest.fixture
async def seeded(database_urls: DatabaseUrls, tmp_path: Path) -> DatabaseUrls:
    """A database with a study in training: budgets, charges, trials, events."""
    database = Database(database_urls.app)
    app = create_app(Settings(home=tmp_path / "home"), database)
    await seeding.training(app.state.context)
    await database.close()
    return database_urls


def test_a_backup_comes_back_as_what_it_was(seeded, empty_database, tmp_path):
    file = tmp_path / "tan.backup"
    written = backup(target(seeded), file)
    assert (written.schema_version, written.scopes) == (head_revision(), 1)
    assert written.size_bytes == file.stat().st_size
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.glob(".tan*")) == []

    restored = restore(target(empty_database), file)
    assert restored == written
    schema, rows = picture(seeded)
    assert len(rows["trial"]) == 12
    assert picture(empty_database) == (schema, rows)


async def test_the_service_works_on_a_restored_database(seeded, empty_database, tmp_path):
    await asyncio.to_thread(backup, target(seeded), tmp_path / "tan.backup")
    await asyncio.to_thread(restore, target(empty_database), tmp_path / "tan.backup")
    database = Database(empty_database.app)
    app = create_app(Settings(home=tmp_path / "home"), database)
    study_id = await seeding.submitted(app.state.context, name="after")  # admission and the journal
    await database.close()
    assert study_id


def test_who_may_not_read_all_is_told_whose_url_is_needed(seeded, tmp_path):
    with pytest.raises(MaintenanceError, match=f"^{APP} may not .* set TAN_DATABASE_OWNER_URL"):
        backup(Target(seeded.app, APP), tmp_path / "tan.backup")
    assert list(tmp_path.glob("*.backup*")) == []


def test_nothing_is_replaced_unasked(seeded, database_urls, tmp_path):
    file = tmp_path / "tan.backup"
    backup(target(seeded), file)
    with pytest.raises(MaintenanceError, match="exists already"):
        backup(target(seeded), file)
    with pytest.raises(MaintenanceError, match=r"not empty: `--force`"):
        restore(target(seeded), file)

    with psycopg.connect(seeded.owner) as connection:
        connection.execute("DELETE FROM trial")
        connection.execute("CREATE TABLE stranger (id int)")
    restore(target(seeded), file, is_forced=True)
    _, rows = picture(seeded)
    assert len(rows["trial"]) == 12
    assert "stranger" not in rows


@pytest.mark.slow
def test_a_database_in_use_is_not_restored(seeded, tmp_path):
    backup(target(seeded), tmp_path / "tan.backup")
    with (
        psycopg.connect(seeded.app, application_name="tan-search"),
        pytest.raises(MaintenanceError, match=r"in use \(1 connection: tan-search\): stop"),
    ):
        restore(target(seeded), tmp_path / "tan.backup", is_forced=True)


def test_a_client_that_is_leaving_is_waited_for(seeded, tmp_path):
    backup(target(seeded), tmp_path / "tan.backup")
    leaving = psycopg.connect(seeded.app)
    hang_up = threading.Timer(0.5, leaving.close)
    hang_up.start()
    try:
        assert restore(target(seeded), tmp_path / "tan.backup", is_forced=True).scopes == 1
        assert leaving.closed
    finally:
        hang_up.join()


def tamper(seeded: DatabaseUrls) -> None:
    with psycopg.connect(seeded.owner) as connection:
        connection.execute("ALTER TABLE ledger_entry DISABLE TRIGGER refuse_rows")
        connection.execute("UPDATE ledger_entry SET body = replace(body, '60', '50') WHERE seq = 4")
        connection.execute("ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER refuse_rows")


def test_a_broken_ledger_is_not_backed_up(seeded, tmp_path):
    tamper(seeded)
    with pytest.raises(MaintenanceError, match="does not verify at entry 4"):
        backup(target(seeded), tmp_path / "tan.backup")
    assert [path for path in tmp_path.iterdir() if path.is_file()] == []


def test_a_broken_ledger_in_a_file_is_found(seeded, empty_database, tmp_path):
    tamper(seeded)
    with subprocess.Popen(  # as somebody else's backup: ours refuses
        [find_installation().tool("pg_dump"), "--format=custom", "--no-owner",
         f"--file={tmp_path / 'x'}", f"--dbname={seeded.owner}"],
    ) as process:  # fmt: skip
        assert process.wait() == 0
    with pytest.raises(MaintenanceError, match=r"does not verify at entry 4.*do not serve"):
        restore(target(empty_database), tmp_path / "x")


def test_a_backup_of_a_newer_schema_is_refused(seeded, empty_database, tmp_path, monkeypatch):
    with psycopg.connect(seeded.owner) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(MaintenanceError, match="at schema 9999"):
        backup(target(seeded), tmp_path / "tan.backup")
    monkeypatch.setattr("service.maintenance.backup.head_revision", lambda: "9999")
    backup(target(seeded), tmp_path / "tan.backup")
    monkeypatch.undo()
    with pytest.raises(MaintenanceError, match="is of schema 9999, this program knows up to"):
        restore(target(empty_database), tmp_path / "tan.backup", is_forced=True)


@pytest.mark.slow
def test_what_is_no_backup_changes_nothing(seeded, tmp_path):
    before = picture(seeded)
    good = tmp_path / "tan.backup"
    backup(target(seeded), good)
    (tmp_path / "text").write_text("CREATE TABLE alembic_version ();")
    (tmp_path / "cut").write_bytes(good.read_bytes()[: good.stat().st_size * 3 // 4])
    for name in ("absent", "text", "cut"):
        with pytest.raises(MaintenanceError):
            restore(target(seeded), tmp_path / name, is_forced=True)
    assert picture(seeded) == before


def test_a_restore_that_breaks_off_changes_nothing_and_holds_no_content_in_memory(
    seeded, tmp_path, monkeypatch
):
    file = tmp_path / "tan.backup"
    backup(target(seeded), file)
    before = picture(seeded)
    run, said = Tools.run, []

    def broken(self, program, arguments, url=None):
        written = [Path(one.partition("=")[2]) for one in arguments if one.startswith("--file=/")]
        if program == "psql":
            with written[-1].open("a") as script:
                script.write("\nSELECT 1 / 0;\n")
        said.append(run(self, program, arguments, url))
        return said[-1]

    monkeypatch.setattr(Tools, "run", broken)
    with pytest.raises(MaintenanceError, match="division by zero"):
        restore(target(seeded), file, is_forced=True)
    assert picture(seeded) == before
    assert max(map(len, said)) < 10_000


def test_status_and_upgrade(empty_database):
    there = target(empty_database)
    assert status(there).state == "empty"
    assert bring_up(there).state == "current"
    with psycopg.connect(empty_database.owner) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0003'")
    assert status(there).state == "behind"
    with psycopg.connect(empty_database.owner) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    assert status(there).state == "newer"
    assert empty_database.owner.partition(":")[2].partition("@")[0] not in status(there).database


def test_the_embedded_database_is_found_while_it_is_served(postgres_server):
    home = postgres_server.postgres.home
    settings = Settings(home=home)
    with open_target(settings) as there:
        assert status(there).state == "empty"  # the database `tan`, beside those of the tests
    assert postgres_server.postgres.is_healthy()
    with pytest.raises(Exception, match="already served"), open_target(settings, is_exclusive=True):
        pass


def test_an_absent_database_is_not_made_by_looking(tmp_path):
    with (
        pytest.raises(MaintenanceError, match="there is no database in"),
        open_target(Settings(home=tmp_path)),
    ):
        pass
    assert not EmbeddedPostgres(tmp_path).data.exists()
