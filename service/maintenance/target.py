"""The database that the settings mean, as the role that owns its tables."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import URL

from service.db.embedded import APP, AlreadyServedError, EmbeddedPostgres
from service.db.session import normalise_url
from service.maintenance.errors import MaintenanceError
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class Target:
    """One database."""

    owner_url: str
    app_role: str | None
    """Role of the service, which may be the owner."""

    @property
    def url(self) -> URL:
        """The owner's URL, read."""
        return normalise_url(self.owner_url)

    def __str__(self) -> str:
        return self.url.set(drivername="postgresql").render_as_string(hide_password=True)


@contextmanager
def open_target(
    settings: Settings, *, is_exclusive: bool = False, is_made: bool = False
) -> Generator[Target]:
    """The database of ``TAN_DATABASE_URL``, else the embedded one of ``TAN_HOME``.

    The embedded one is started where it is not running, and stopped again. With ``is_exclusive`` one
    that another process serves is refused; with ``is_made`` one that is not there is made.

    Raises:
        MaintenanceError: the embedded one is not there.
        AlreadyServedError: the embedded one is to be had alone, and a service runs on it.
        EmbeddedPostgresError: it cannot be started.
        ParameterError: a URL of the settings cannot be read.
    """
    urls = (settings.database_owner_url, settings.database_url)
    known = [url.get_secret_value() for url in urls if url is not None]
    if known:
        yield Target(known[0], normalise_url(known[-1]).username)
        return
    server = EmbeddedPostgres(settings.home_path)
    if not is_made and not server.data.exists():
        raise MaintenanceError(
            f"there is no database in {settings.home_path}: set TAN_HOME or TAN_DATABASE_URL to the "
            "one that is meant; `tan-cli serve` makes a new one"
        )
    try:
        server.start()
    except AlreadyServedError:
        if is_exclusive:
            raise
        server.attach()
    try:
        yield Target(server.url_owner, APP)
    finally:
        server.stop()
