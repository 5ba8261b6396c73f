"""Sessions and listening on a real PostgreSQL."""

import asyncio
import os
import socket
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

import psycopg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from service.db.session import Database
from tests.fixtures.postgres import DatabaseUrls

INSERT = text(
    "INSERT INTO dataset (name, source, label, content_sha256, num_classes, shape, num_train,"
    " num_train_records, num_validation, num_test, unit, public, allowed_modes)"
    " VALUES (:name, 'digits', 'label', :name, 10, '[1]', 1, 1, 1, 1, 'record', true, '[]')"
)
COUNT = text("SELECT count(*) FROM dataset")
Opened = AbstractAsyncContextManager[psycopg.AsyncConnection]


async def test_a_session_commits_at_its_end(database: Database) -> None:
    async with database.session() as session:
        await session.execute(INSERT, {"name": "a"})
    async with database.session() as session:
        assert await session.scalar(COUNT) == 1


async def test_a_session_rolls_back_on_an_error(database: Database) -> None:
    async def fail_half_way() -> None:
        async with database.session() as session:
            await session.execute(INSERT, {"name": "a"})
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        await fail_half_way()
    async with database.session() as session:
        assert await session.scalar(COUNT) == 0


async def test_sessions_outlive_a_broken_connection(
    database: Database, database_urls: DatabaseUrls
) -> None:
    async with database.session() as session:
        await session.execute(COUNT)
    _break_connections(database_urls, "tan-search")
    async with database.session() as session:
        assert await session.scalar(COUNT) == 0


async def test_a_listener_hears_commits_and_comes_back_after_a_break(
    database: Database, database_urls: DatabaseUrls
) -> None:
    async with asyncio.timeout(20), aclosing(database.listen("room")) as heard:
        assert await anext(heard) == ""
        await _notify(database, "one")
        assert await anext(heard) == "one"
        _break_connections(database_urls, "tan-listen")
        assert await anext(heard) == ""
        await _notify(database, "two")
        assert await anext(heard) == "two"


@asynccontextmanager
async def pooled(database: Database) -> AsyncGenerator[psycopg.AsyncConnection]:
    async with database.engine.connect() as connection:
        raw = await connection.get_raw_connection()
        yield raw.driver_connection  # type: ignore[misc]


@asynccontextmanager
async def listening(database: Database) -> AsyncGenerator[psycopg.AsyncConnection]:
    async with await database._listener("room") as connection:  # pyright: ignore[reportPrivateUsage]
        yield connection


@pytest.mark.parametrize("opened", [pooled, listening])
async def test_a_server_that_vanishes_without_a_word_is_given_up_in_seconds(
    database: Database, opened: Callable[[Database], Opened]
) -> None:
    async with opened(database) as connection:
        with socket.socket(fileno=os.dup(connection.pgconn.socket)) as tcp:
            assert tcp.family in (socket.AF_INET, socket.AF_INET6)
            patience = tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            silence = [
                tcp.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            ]

    assert patience == 10_000  # milliseconds
    assert silence == [10, 5, 3]


@pytest.mark.parametrize("opened", [pooled, listening])
async def test_the_server_gives_up_a_client_that_vanishes_or_hangs(
    database: Database, opened: Callable[[Database], Opened]
) -> None:
    async with opened(database) as connection:
        await connection.rollback()
        told = {
            name: (await (await connection.execute(f"SHOW {name}")).fetchone() or ("",))[0]
            for name in (
                "tcp_user_timeout",
                "tcp_keepalives_idle",
                "tcp_keepalives_interval",
                "tcp_keepalives_count",
                "idle_in_transaction_session_timeout",
                "lock_timeout",
            )
        }

    assert list(told.values()) == ["10000", "10", "5", "3", "15min", "15s"], told


async def test_what_hangs_in_a_transaction_lets_go_of_its_locks(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "service.db.session._SET",
        "SELECT set_config('idle_in_transaction_session_timeout', '300ms', false)",
    )
    lock = text("SELECT pg_advisory_xact_lock(1)")

    async def hang() -> None:
        async with database.session() as session:
            await session.execute(lock)
            await asyncio.sleep(2)
            await session.execute(lock)

    hanging = asyncio.create_task(hang())
    await asyncio.sleep(0.2)
    async with asyncio.timeout(1.5), database.session() as session:
        await session.execute(lock)
    with pytest.raises(DBAPIError) as ended:
        await hanging
    assert ended.value.connection_invalidated


async def test_of_several_servers_both_kinds_of_connections_take_the_one_that_writes(
    database_urls: DatabaseUrls,
) -> None:
    url = make_url(database_urls.app)
    hosts = (f"{url.host}:9", f"{url.host}:{url.port}")
    query = {"host": hosts, "target_session_attrs": "read-write"}
    several = url.set(host=None, port=None, query=query).render_as_string(hide_password=False)
    database = Database(several)

    async with asyncio.timeout(20), aclosing(database.listen("room")) as heard:
        assert await anext(heard) == ""
        await _notify(database, "one")
        assert await anext(heard) == "one"
    await database.close()


async def test_a_new_event_wakes_its_study(database: Database, database_urls: DatabaseUrls) -> None:
    async with asyncio.timeout(20), aclosing(database.listen("tan_event")) as heard:
        await anext(heard)
        with psycopg.connect(database_urls.superuser, autocommit=True) as connection:
            # A study is not needed to see the trigger fire.
            connection.execute("ALTER TABLE event DROP CONSTRAINT fk_event_study_id_study")
        async with database.session() as session:
            await session.execute(
                text(
                    "INSERT INTO event (study_id, seq, kind, data) VALUES ('s1', 1, 'state', '{}')"
                )
            )
        assert await anext(heard) == "s1"


async def _notify(database: Database, payload: str) -> None:
    async with database.session() as session:
        await session.execute(text("SELECT pg_notify('room', :payload)"), {"payload": payload})


def _break_connections(urls: DatabaseUrls, application: str) -> None:
    with psycopg.connect(urls.superuser, autocommit=True) as connection:
        broken = connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"  # and wait for their end
            " WHERE datname = %s AND application_name = %s",
            (urls.name, application),
        ).fetchall()
        assert broken


async def test_an_error_does_not_tell_what_was_to_be_stored(database: Database) -> None:
    """It stands in logs: of an outage in the middle of a statement, too."""
    with pytest.raises(DBAPIError) as caught:
        async with database.session() as session:
            await session.execute(
                text("SELECT 1 / :zero, :told"), {"zero": 0, "told": "of-patients"}
            )

    assert "of-patients" not in str(caught.value)


@pytest.mark.parametrize("refused", ["CHECK (told = '')", "UNIQUE"])
async def test_an_error_does_not_tell_the_row_that_was_refused(
    database: Database, refused: str
) -> None:
    """PostgreSQL's own words on it quote one, and stand in a traceback."""
    value = "-".join(("of", "patients"))  # a traceback shows lines of this test, too
    async with database.session() as session:
        await session.execute(text(f"CREATE TEMPORARY TABLE t (told text {refused})"))
        with pytest.raises(DBAPIError) as caught:
            await session.execute(text("INSERT INTO t VALUES (:told), (:told)"), {"told": value})

    told = "".join(traceback.format_exception(caught.value))
    assert value not in told
    assert "constraint" in told
