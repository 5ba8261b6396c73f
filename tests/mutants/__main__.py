"""Apply each fault to a scratch database and let the state machine look for it; exit 1 if one survives."""

import contextlib
import io
import shutil
import sys
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

from service.db.embedded import APP, EmbeddedPostgres
from service.db.migrate import upgrade
from tests.fixtures.postgres import FAST, DatabaseUrls, Server
from tests.mutants import MUTANTS, Mutant
from tests.property.ledger.machine import run_machine

EXAMPLES = 80


class StaleMutantError(Exception):
    """The function no longer has the text that a mutant replaces."""


def apply(mutant: Mutant, owner_url: str) -> None:
    """Replace the function by its faulty version."""
    with psycopg.connect(owner_url, autocommit=True) as connection:
        query = "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = %s"
        ((definition,),) = connection.execute(query, (mutant.function,)).fetchall()
        if definition.count(mutant.old) != 1:
            raise StaleMutantError(f"{mutant.function} has no single {mutant.old!r}")
        connection.execute(definition.replace(mutant.old, mutant.new).encode())


def killed_by(urls: DatabaseUrls) -> str | None:
    """What the state machine says of the database; None: nothing."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            run_machine(urls, max_examples=EXAMPLES)
        except (Exception, pytest.fail.Exception) as error:
            return f"{type(error).__name__}: {error}".splitlines()[0][:90]
    return None


def main(wanted: list[str]) -> int:
    """Run the mutants whose names have one of these words; without words, all."""
    chosen = [m for m in MUTANTS if not wanted or any(word in m.name for word in wanted)]
    home = Path(tempfile.mkdtemp(prefix="tan-pg-"))
    home.chmod(0o711)
    survivors = 0
    try:
        with EmbeddedPostgres(home, settings=FAST) as postgres:
            server = Server(postgres)
            template = server.create("tan_template")
            upgrade(template.owner, APP)
            for mutant in chosen:
                start = time.monotonic()
                with server.database(template.name) as urls:
                    apply(mutant, urls.owner)
                    found = killed_by(urls)
                survivors += found is None
                verdict = "SURVIVED" if found is None else "killed"
                print(f"{verdict:9}{time.monotonic() - start:5.1f} s  {mutant.name}  {found or ''}")
                sys.stdout.flush()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
