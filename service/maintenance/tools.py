"""PostgreSQL's own programs: those of the embedded installation, or of ``PATH``."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlalchemy import URL

from service.db.embedded import EmbeddedPostgresError, find_installation
from service.maintenance.errors import MaintenanceError
from service.settings import bare_environment


class Tools:
    """The programs for a server of one major version: of the very version, else of a newer one.

    Raises:
        MaintenanceError: none is there that is new enough.
    """

    def __init__(self, server_version: int) -> None:
        found = sorted(
            (version, index, directory)
            for index, (version, directory) in enumerate(_directories())
            if version >= server_version
        )
        if not found:
            raise MaintenanceError(
                f"no pg_dump for PostgreSQL {server_version} was found: install its client programs, "
                "or tan-search[embedded]"
            )
        self._directory = found[0][2]

    def run(self, program: str, arguments: Sequence[str], url: URL | None = None) -> bytes:
        """The program's standard output.

        Args:
            program: ``pg_dump``, ``pg_restore`` or ``psql``.
            arguments: of the command line; no password is put there.
            url: the database to connect to.

        Raises:
            MaintenanceError: it failed; the message holds the end of what it said.
        """
        command, environment = [str(self._directory / program), *arguments], {}
        if url is not None:
            shown = url.set(drivername="postgresql", password=None)
            command.append(f"--dbname={shown.render_as_string(hide_password=False)}")
            environment["PGPASSWORD"] = url.password or ""
        done = subprocess.run(
            command,
            env=bare_environment(**environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise MaintenanceError(f"{program} failed: {' / '.join(said[-3:])}")
        return done.stdout


def _directories() -> Iterator[tuple[int, Path]]:
    """Where programs lie, with their major version."""
    try:
        installation = find_installation()
        yield installation.version, installation.bin
    except EmbeddedPostgresError:
        pass
    on_path = shutil.which("pg_dump")
    if on_path is not None:
        directory = Path(on_path).parent
        said = subprocess.run([on_path, "--version"], capture_output=True, text=True, check=False)
        match = re.search(r"\(PostgreSQL\) (\d+)", said.stdout)
        if match is not None and all(
            (directory / name).exists() for name in ("pg_restore", "psql")
        ):
            yield int(match[1]), directory
