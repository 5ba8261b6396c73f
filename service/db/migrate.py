"""Bring a database to the schema of this version: ``python -m service.db.migrate``.

Runs as the role that owns the tables. Several starters may race: one migrates, the others wait and
find nothing to do. Everything happens in one transaction, so a failed upgrade leaves no trace.
"""

import logging
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg import ConnectionInfo
from pydantic import SecretStr
from sqlalchemy import URL, Connection, NullPool, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.embedded import APP, MINIMUM_VERSION, EmbeddedPostgres
from service.db.session import (
    DEADLOCK_DETECTED,
    LOCK_NOT_AVAILABLE,
    NETWORK,
    normalise_url,
    tell_server,
)
from service.db.tables import Base, Study
from service.settings import read_settings
from tan_core.errors import TanError

logger = logging.getLogger(__name__)

ADVISORY_LOCK = 0x7A4E_5EA2C4
CHANGEABLE: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("audit_event", "dataset_digests", "dataset_file"), frozenset[str]()),
    "dataset": frozenset({"approval"}),
    "study": frozenset(column.name for column in Study.__table__.columns)
    - {
        "id",
        "tenant",
        "spec",
        "plan",
        "dataset",
        "search_dataset",
        "search_accounting",
        "created_at",
    },
}
"""State tables whose rows stay, and the columns of them that the service may change: a file that is let go could be
registered again for a fresh budget; a dataset's row says which budget it has, what is protected and what its owner
waived; and a study's what was asked for, by whom, and how its search touches the data."""
_WAIT_FOR_OTHERS_SECONDS = 120.0
_WAIT_SECONDS = 15.0
_WAITS_FOR_TABLES = (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
"""Seconds that a table is waited for, of one try after another to have all of them. The first tries end before PostgreSQL
looks for a deadlock (after 1 s), which could end a transaction of the service; a vacuum gives way to the last ones only."""
_PAUSE_SECONDS = 0.1
_IN_USE = frozenset({LOCK_NOT_AVAILABLE, DEADLOCK_DETECTED})


class MigrationError(TanError, RuntimeError):
    """The database cannot be brought to this version's schema; the message says why."""


class SchemaError(MigrationError):
    """The database is not at this program's schema."""


def upgrade(owner_url: str, app_role: str | None = None) -> None:
    """Migrate to the newest schema, then grant ``app_role`` what the service needs, no more.

    Args:
        owner_url: the database as the role that owns (or will own) the tables.
        app_role: existing role of the service; None: the service runs as the owner.

    Raises:
        MigrationError: unreachable, too old, not UTF-8, locked by someone, newer than this program, no
            such role.
    """
    url = normalise_url(owner_url)
    # The encoding: from a server without one the driver takes bytes for texts, and nothing can be asked.
    arguments = {**NETWORK, "client_encoding": "utf8"}
    engine = create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args=arguments)
    # A machine that vanishes in the middle would otherwise have its locks, of all tables, for hours.
    event.listen(engine, "connect", tell_server)
    with _clear_errors(url), engine.connect() as connection, connection.begin():
        _check_version(connection)
        driver = connection.connection.driver_connection
        assert driver is not None  # noqa: S101 - it is connected
        expect_utf8(driver.info)
        _queue_up(connection)
        current = _known_revision(connection)
        if current is not None and current != head_revision():
            _take_tables(connection)
        command.upgrade(_config(connection), "head")
        if app_role is not None and app_role != url.username:
            _grant(connection, app_role)


def expect_utf8(connected: ConnectionInfo) -> None:
    """Refuse a database that cannot hold every text: names of ours and of users are of any script.

    Raises:
        MigrationError: it is of another encoding.
    """
    encoding = connected.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise MigrationError(
            f"database {connected.dbname} is encoded as {encoding}, UTF8 is needed, and that of a database "
            f"cannot be changed: make another one with `CREATE DATABASE name ENCODING 'UTF8' LOCALE 'C' "
            f"TEMPLATE template0 OWNER {connected.user}`, and set TAN_DATABASE_URL to it"
        )


async def expect_schema(session: AsyncSession) -> None:
    """Refuse a database of an older or a newer program.

    Raises:
        SchemaError: its tables are not those that this program knows.
    """
    current = await session.scalar(text("SELECT version_num FROM alembic_version"))
    if current != head_revision():
        raise SchemaError(
            f"the database is at schema {current}, this version needs {head_revision()}"
        )


@cache
def head_revision() -> str:
    """The newest schema revision that this program knows."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise MigrationError("this installation has no migrations: it is incomplete")
    return head


def known_revisions() -> frozenset[str]:
    """Every schema revision that this program knows."""
    return frozenset(
        script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()
    )


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


@contextmanager
def _clear_errors(url: URL) -> Generator[None]:
    where = url.render_as_string(hide_password=True)
    try:
        yield
    except (DBAPIError, psycopg.Error) as error:  # scripts are run by the driver itself
        cause = error.orig if isinstance(error, DBAPIError) else error
        reason = str(cause).strip()
        if getattr(cause, "sqlstate", None) in _IN_USE:
            reason = f"a table is in use ({reason}): stop the service and try again"
        elif isinstance(cause, psycopg.OperationalError):
            reason = f"cannot be reached or used: {reason}"
        raise MigrationError(f"database {where}: {reason}") from error


def _check_version(connection: Connection) -> None:
    number = int(connection.scalar(text("SHOW server_version_num")) or 0)
    if number < MINIMUM_VERSION * 10_000:
        version = connection.scalar(text("SHOW server_version"))
        raise MigrationError(f"PostgreSQL {version} is too old: {MINIMUM_VERSION} or newer needed")


def _queue_up(connection: Connection) -> None:
    """Wait for other starters."""
    _wait_at_most(connection, _WAIT_FOR_OTHERS_SECONDS)
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
    _wait_at_most(connection, _WAIT_SECONDS)


def _wait_at_most(connection: Connection, seconds: float) -> None:
    connection.execute(text(f"SET LOCAL lock_timeout = '{seconds * 1000:.0f}ms'"))


def _known_revision(connection: Connection) -> str | None:
    current = MigrationContext.configure(connection).get_current_revision()
    if current is not None and current not in known_revisions():
        raise MigrationError(
            f"the database is at schema {current}, this program knows up to {head_revision()}: "
            "upgrade the program"
        )
    return current


def _take_tables(connection: Connection) -> None:
    """Lock all tables before the first one is changed, while a service may still be at work on them.

    Scripts that lock one after another, each in its own order, meet a transaction of the service in a deadlock: one
    that holds the table which is changed next and waits for the one that was changed before. What was locked by a try
    that comes to nothing is let go at once.

    Raises:
        DBAPIError: somebody holds one for longer than is waited.
    """
    query = "SELECT relname FROM pg_class WHERE relkind = 'r' AND pg_table_is_visible(oid)"
    known = set(connection.scalars(text(query)))
    # Parents first, as the service locks a study, its run and then its attempt.
    mapped = [table.name for table in Base.metadata.sorted_tables if table.name in known]
    tables = ", ".join([*mapped, *_ledger_tables(connection)])
    for number, seconds in enumerate(_WAITS_FOR_TABLES, 1):
        try:
            with connection.begin_nested():
                _wait_at_most(connection, seconds)
                connection.execute(text(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE"))
        except DBAPIError as error:
            is_in_use = getattr(error.orig, "sqlstate", None) in _IN_USE
            if not is_in_use or number == len(_WAITS_FOR_TABLES):
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            break
    _wait_at_most(connection, _WAIT_SECONDS)


def _grant(connection: Connection, role: str) -> None:
    """Rows of state tables may be written; the ledger is read, and written through functions."""
    known = connection.scalar(text("SELECT 1 FROM pg_roles WHERE rolname = :role"), {"role": role})
    if not known:
        raise MigrationError(f"there is no role {role!r} to grant to: create it first")
    name = connection.dialect.identifier_preparer.quote(role)
    tables = ", ".join(Base.metadata.tables.keys() - CHANGEABLE.keys())
    kept = ", ".join(CHANGEABLE)
    connection.execute(text(f"GRANT USAGE ON SCHEMA public TO {name}"))
    connection.execute(text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {name}"))
    connection.execute(text(f"GRANT SELECT, INSERT ON {kept} TO {name}"))
    if connection.scalar(text("SELECT current_user")) != role:  # an owner's rights are for upgrades
        # Versions of before granted more.
        connection.execute(text(f"REVOKE UPDATE, DELETE ON {kept} FROM {name}"))
    for table, columns in CHANGEABLE.items():
        if columns:
            listed = ", ".join(sorted(columns))
            connection.execute(text(f"GRANT UPDATE ({listed}) ON {table} TO {name}"))
    connection.execute(text(f"GRANT SELECT ON alembic_version TO {name}"))
    for table in _ledger_tables(connection):
        connection.execute(text(f"GRANT SELECT ON {table} TO {name}"))
    for function in _ledger_functions(connection):
        connection.execute(text(f"GRANT EXECUTE ON FUNCTION {function} TO {name}"))


def _ledger_tables(connection: Connection) -> list[str]:
    query = (
        "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relname LIKE 'ledger\\_%'"
    )
    return list(connection.scalars(text(query)))


def _ledger_functions(connection: Connection) -> list[str]:
    """What may be called: the security definers. Helpers and triggers are not granted."""
    query = (
        "SELECT oid::regprocedure::text FROM pg_proc "
        "WHERE proname LIKE 'ledger\\_%' AND prosecdef AND pronamespace = 'public'::regnamespace"
    )
    return list(connection.scalars(text(query)))


def main() -> int:
    """Migrate the database of the settings, or the embedded one of ``TAN_HOME``."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        settings = read_settings()
        if settings.database_url is None and settings.database_owner_url is None:
            with EmbeddedPostgres(settings.home_path) as server:
                upgrade(server.url_owner, APP)
        else:
            upgrade(*_urls(settings.database_url, settings.database_owner_url))
    except TanError as error:
        logger.error("%s", error)
        return 1
    logger.info("schema is at %s", head_revision())
    return 0


def _urls(app: SecretStr | None, owner: SecretStr | None) -> tuple[str, str | None]:
    """The owner's URL, and the role of the service where it is another."""
    known = [url.get_secret_value() for url in (owner, app) if url is not None]
    role = normalise_url(app.get_secret_value()).username if app is not None else None
    return known[0], role


if __name__ == "__main__":
    sys.exit(main())
