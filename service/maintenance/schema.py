"""Which schema a database has, and which one this program needs."""

from typing import Literal

import psycopg
from pydantic import BaseModel, ConfigDict

from service.db.migrate import expect_utf8, head_revision, known_revisions, upgrade
from service.maintenance.errors import MaintenanceError
from service.maintenance.target import Target


class SchemaStatus(BaseModel):
    """A database beside this program."""

    model_config = ConfigDict(frozen=True)

    database: str
    """Its URL, without the password."""
    postgres: str
    size_bytes: int
    schema_version: str | None
    """None: there are no tables of ours."""
    needed: str
    """The schema that this program needs."""
    state: Literal["empty", "current", "behind", "newer"]


def status(target: Target) -> SchemaStatus:
    """How the database stands; nothing is changed.

    Raises:
        MaintenanceError: it cannot be reached.
    """
    with connect(target) as connection:
        row = connection.execute(
            "SELECT current_setting('server_version'), pg_database_size(current_database())"
        ).fetchone()
        assert row is not None  # noqa: S101 - a SELECT of functions always answers
        version = schema_version(connection)
    return SchemaStatus(
        database=str(target),
        postgres=row[0],
        size_bytes=row[1],
        schema_version=version,
        needed=head_revision(),
        state=_state(version),
    )


def bring_up(target: Target) -> SchemaStatus:
    """Migrate to the schema that this program needs."""
    upgrade(target.owner_url, target.app_role)
    return status(target)


def connect(target: Target) -> psycopg.Connection:
    """A connection of its own, outside of any transaction.

    Raises:
        MaintenanceError: the database cannot be reached, or its URL says what PostgreSQL does not know.
        MigrationError: it is not UTF-8.
    """
    url = target.url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        connection = psycopg.connect(
            url, autocommit=True, connect_timeout=10, application_name="tan-maintenance"
        )
    except psycopg.OperationalError as error:
        raise MaintenanceError(f"{target} cannot be reached: {str(error).strip()}") from error
    except psycopg.ProgrammingError as error:
        raise MaintenanceError(f"{target} is no URL of a database: {error}") from error
    try:
        expect_utf8(connection.info)
    except BaseException:
        connection.close()
        raise
    return connection


def schema_version(connection: psycopg.Connection) -> str | None:
    """The revision of the tables; None where there are none."""
    known = connection.execute("SELECT to_regclass('public.alembic_version')").fetchone()
    if known is None or known[0] is None:
        return None
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if row is None else row[0]


def _state(version: str | None) -> Literal["empty", "current", "behind", "newer"]:
    if version is None:
        return "empty"
    if version == head_revision():
        return "current"
    return "behind" if version in known_revisions() else "newer"
