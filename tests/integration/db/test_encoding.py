"""A database that is not UTF-8 is refused before anything is written, and says what to do."""

import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from service.db.embedded import APP, OWNER
from service.db.migrate import MigrationError, upgrade
from tests.fixtures.postgres import DatabaseUrls, Server


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def other_encoding(
    request: pytest.FixtureRequest, postgres_server: Server
) -> Iterator[tuple[str, DatabaseUrls]]:
    name = f"tan_{request.param.lower()}"
    with psycopg.connect(postgres_server.postgres.url_superuser, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} OWNER {} ENCODING {} LOCALE 'C' TEMPLATE template0").format(
                sql.Identifier(name), sql.Identifier(OWNER), request.param
            )
        )
    yield request.param, postgres_server.urls(name)
    postgres_server.drop(name)


def test_an_upgrade_says_which_encoding_is_needed_and_how_to_have_it(
    other_encoding: tuple[str, DatabaseUrls],
) -> None:
    encoding, urls = other_encoding
    with pytest.raises(MigrationError, match=f"encoded as {encoding}, UTF8 is needed") as refusal:
        upgrade(urls.owner, APP)
    assert "CREATE DATABASE name ENCODING 'UTF8'" in str(refusal.value)
    with psycopg.connect(urls.owner) as connection:
        tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        assert connection.execute(tables).fetchone() == (0,)


@pytest.mark.parametrize("verb", [["status"], ["upgrade"], ["restore", "--force", __file__]])
def test_every_verb_of_the_command_line_says_so_in_one_line(
    other_encoding: tuple[str, DatabaseUrls], verb: list[str]
) -> None:
    _, urls = other_encoding
    done = subprocess.run(
        [sys.executable, "-m", "service.maintenance", *verb],
        env={
            "PATH": "/usr/bin:/bin",
            "TAN_DATABASE_URL": urls.app,
            "TAN_DATABASE_OWNER_URL": urls.owner,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "UTF8 is needed" in done.stderr
