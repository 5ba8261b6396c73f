"""What the embedded server of this very test session shows; its faults are in tests/faults."""

import psycopg
import pytest

from service.db.embedded import MINIMUM_VERSION, AlreadyServedError, EmbeddedPostgres
from tests.fixtures.postgres import Server


def test_the_server_is_healthy_and_new_enough(postgres_server: Server) -> None:
    assert postgres_server.postgres.is_healthy()
    with psycopg.connect(postgres_server.postgres.url_app) as connection:
        assert connection.info.server_version >= MINIMUM_VERSION * 10_000


def test_one_owner_at_a_time(postgres_server: Server) -> None:
    with pytest.raises(AlreadyServedError, match="already served by process"):
        EmbeddedPostgres(postgres_server.postgres.home).start()
    assert postgres_server.postgres.is_healthy()


def test_starting_a_started_server_changes_nothing(postgres_server: Server) -> None:
    pid = postgres_server.postgres.pid
    postgres_server.postgres.start()
    assert postgres_server.postgres.pid == pid


def test_pages_are_checked_and_times_are_utc(postgres_server: Server) -> None:
    with psycopg.connect(postgres_server.postgres.url_superuser) as connection:
        shown = [
            connection.execute(f"SHOW {name}").fetchone()
            for name in ("data_checksums", "TimeZone", "server_encoding", "listen_addresses")
        ]
    assert shown == [("on",), ("UTC",), ("UTF8",), ("127.0.0.1",)]
