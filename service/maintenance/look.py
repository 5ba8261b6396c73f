"""A look at the database that starts, makes and changes nothing."""

from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from service.db.embedded import APP, EmbeddedPostgres, EmbeddedPostgresError
from service.maintenance.schema import SchemaStatus, connect, status
from service.maintenance.target import Target, open_target
from service.settings import Settings


class Look(BaseModel):
    """What stands there."""

    model_config = ConfigDict(frozen=True)

    home: Path
    is_embedded: bool
    """Whether it is the one of TAN_HOME, which ``tan-cli serve`` starts and stops."""
    is_made: bool
    is_running: bool
    database: SchemaStatus | None = None
    """None: it does not run."""
    clock_ahead_seconds: float | None = None
    """Its clock less this machine's."""


def look(settings: Settings) -> Look:
    """How the database stands, if it runs.

    Raises:
        MaintenanceError: the database of TAN_DATABASE_URL cannot be reached.
        MigrationError: it is not UTF-8.
    """
    home = settings.home_path
    if settings.database_url is not None or settings.database_owner_url is not None:
        with open_target(settings) as target:
            return _seen(target, home, is_embedded=False)
    server = EmbeddedPostgres(home)
    if not server.data.exists():
        return Look(home=home, is_embedded=True, is_made=False, is_running=False)
    try:
        server.attach()
    except EmbeddedPostgresError:
        return Look(home=home, is_embedded=True, is_made=True, is_running=False)
    return _seen(Target(server.url_owner, APP), home, is_embedded=True)


def _seen(target: Target, home: Path, *, is_embedded: bool) -> Look:
    with connect(target) as connection:
        before = datetime.now(UTC)
        row = connection.execute("SELECT clock_timestamp()").fetchone()
        after = datetime.now(UTC)
    assert row is not None  # noqa: S101 - a SELECT of a function always answers
    here = before + (after - before) / 2
    return Look(
        home=home,
        is_embedded=is_embedded,
        is_made=True,
        is_running=True,
        database=status(target),
        clock_ahead_seconds=(row[0] - here).total_seconds(),
    )
