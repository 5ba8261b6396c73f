"""A database as one file, and back.

The file is ``pg_dump``'s custom format: ``pg_restore --list FILE`` reads it without us. It holds the
tables, the ledger and the schema's version. Keys, checkpoints and models lie in ``TAN_HOME`` and
``TAN_STORAGE``, and are no part of it.
"""

import os
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from pydantic import BaseModel, ConfigDict

from service.db.migrate import head_revision, known_revisions
from service.maintenance.chains import expect_valid, verify_chains
from service.maintenance.errors import MaintenanceError
from service.maintenance.schema import bring_up, connect, schema_version
from service.maintenance.target import Target
from service.maintenance.tools import Tools

_OURS = "alembic_version"
_EMPTY_SCHEMA = """\
DROP SCHEMA IF EXISTS public CASCADE;
CREATE SCHEMA public AUTHORIZATION pg_database_owner;
GRANT USAGE ON SCHEMA public TO PUBLIC;
"""
"""As a new database has it."""
_OTHERS = """\
SELECT count(*), string_agg(DISTINCT nullif(application_name, ''), ', ') FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND usesysid IS NOT NULL
"""
"""Who else is connected. An autovacuum worker is nobody's; its type is not shown to every role."""
_LEAVING_SECONDS = 5.0
"""How long a client that has hung up may still be listed: until its process has ended."""


class BackupReport(BaseModel):
    """What was written or read."""

    model_config = ConfigDict(frozen=True)

    file: str
    size_bytes: int
    schema_version: str
    """Of the file."""
    scopes: int
    """Ledger scopes whose chains were verified."""


def backup(target: Target, file: Path) -> BackupReport:
    """Write the database to a new file of mode 0600: whole, or not at all.

    The ledger's chains are verified first: a backup of a broken ledger would pass for a good one. The
    file is one consistent picture, taken while the service goes on.

    Raises:
        MaintenanceError: the file exists or cannot be written, a chain is broken, the schema is not
            this program's, the role may not read all of it, or ``pg_dump`` failed.
    """
    if file.exists():
        raise MaintenanceError(
            f"{file} exists already: a backup replaces nothing, choose another name"
        )
    with connect(target) as connection:
        version = schema_version(connection)
        tools = Tools(connection.info.server_version // 10_000)
    if version is None or version != head_revision():
        raise MaintenanceError(
            f"the database is at schema {version or 'none'}, this program needs {head_revision()}: "
            "run `tan-cli db upgrade`, or back up with the program of that schema"
        )
    _expect_readable(target)
    reports = verify_chains(target)
    expect_valid(reports, "nothing was written: `tan-cli db restore` an older backup")
    with _whole(file) as fresh:
        tools.run("pg_dump", ["--format=custom", "--no-owner", f"--file={fresh}"], target.url)
    return BackupReport(
        file=str(file),
        size_bytes=file.stat().st_size,
        schema_version=version,
        scopes=len(reports),
    )


def restore(target: Target, file: Path, *, is_forced: bool = False) -> BackupReport:
    """Make the database what the file says, bring it to this program's schema, verify its ledger.

    The old content is replaced in one transaction: a file that cannot be restored changes nothing.

    Args:
        target: a database that nobody is connected to.
        file: as :func:`backup` wrote it.
        is_forced: replace what the database holds.

    Raises:
        MaintenanceError: there is no such backup, it is of a newer schema, the database is in use or
            not empty, or the restored ledger does not verify.
    """
    if not file.is_file():
        raise MaintenanceError(f"there is no file {file}")
    with connect(target) as connection:
        tools = Tools(connection.info.server_version // 10_000)
        version = _version_of(tools, file)
        _expect_alone(connection)
        if not is_forced and _num_tables(connection):
            raise MaintenanceError(
                f"{target} is not empty: `--force` replaces all it holds, spent budgets included; "
                "back it up first"
            )
    with tempfile.TemporaryDirectory(prefix="tan-restore-") as directory:
        empty, content = Path(directory) / "empty.sql", Path(directory) / "content.sql"
        empty.write_text(_EMPTY_SCHEMA)
        tools.run("pg_restore", ["--no-owner", f"--file={content}", str(file)])
        tools.run(
            "psql",
            [
                "--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1",
                "--output=/dev/null", f"--file={empty}", f"--file={content}",
            ],
            target.url,
        )  # fmt: skip
    bring_up(target)
    reports = verify_chains(target)
    expect_valid(reports, "do not serve this database: restore another backup with --force")
    return BackupReport(
        file=str(file),
        size_bytes=file.stat().st_size,
        schema_version=version,
        scopes=len(reports),
    )


@contextmanager
def _whole(file: Path) -> Generator[Path]:
    """A private file beside ``file`` that takes its name once it is whole and on the disk."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    except OSError as error:
        raise MaintenanceError(f"{file} cannot be written: {error.strerror}") from error
    fresh = Path(name)
    try:
        yield fresh
        os.fsync(descriptor)
        fresh.replace(file)
        folder = os.open(file.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    finally:
        os.close(descriptor)
        fresh.unlink(missing_ok=True)


def _expect_readable(target: Target) -> None:
    """Refuse a role that may not read all of it, as the service's own may not."""
    with connect(target) as connection:
        row = connection.execute(
            "SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class"
            " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'S')"
            " AND NOT has_table_privilege(oid, 'SELECT')"
        ).fetchone()
    if row is not None and row[0]:
        raise MaintenanceError(
            f"{target.url.username} may not read all that is to be backed up ({row[0]}): set "
            "TAN_DATABASE_OWNER_URL to the same database as the role that owns its tables"
        )


def _version_of(tools: Tools, file: Path) -> str:
    """The schema's version in a backup that this program can restore."""
    arguments = ["--data-only", f"--table={_OURS}", "--file=-", str(file)]
    try:
        lines = tools.run("pg_restore", arguments).decode().splitlines()
    except MaintenanceError as error:
        raise MaintenanceError(f"{file} is no backup of ours: {error}") from error
    copied = [index for index, line in enumerate(lines) if line.startswith(f"COPY public.{_OURS} ")]
    if not copied:
        raise MaintenanceError(f"{file} is no backup of ours: it has no schema version")
    version = lines[copied[0] + 1]
    if version not in known_revisions():
        raise MaintenanceError(
            f"{file} is of schema {version}, this program knows up to {head_revision()}: "
            "restore it with a newer program"
        )
    return version


def _expect_alone(connection: psycopg.Connection) -> None:
    """Refuse a database that somebody is connected to: a service would go on with other tables.

    Autovacuum is nobody: it gives way by itself.
    """
    deadline = time.monotonic() + _LEAVING_SECONDS
    while (row := connection.execute(_OTHERS).fetchone()) is not None and row[0]:
        if time.monotonic() > deadline:
            raise MaintenanceError(
                f"the database is in use ({row[0]} connection{'s' if row[0] > 1 else ''}"
                f"{f': {row[1]}' if row[1] else ''}): stop the service first"
            )
        time.sleep(0.05)


def _num_tables(connection: psycopg.Connection) -> int:
    row = connection.execute(
        "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    ).fetchone()
    return 0 if row is None else row[0]
