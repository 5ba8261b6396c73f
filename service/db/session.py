"""Connections to PostgreSQL: sessions for statements, and a channel to listen on."""

import asyncio
import select
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import ConnStatus
from sqlalchemy import URL, event, make_url
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    DisconnectionError,
    InterfaceError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)

from tan_core.errors import ParameterError

DRIVER = "postgresql+psycopg"
_POOL_TIMEOUT_SECONDS = 5.0
"""A request that has waited so long for a connection is turned away: its caller can try again."""
_RECONNECT_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
NETWORK: dict[str, Any] = {
    "connect_timeout": 10,
    "tcp_user_timeout": 10_000,  # milliseconds
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
"""Of every connection: a server that vanishes without a word, as in a failover, is given up within
seconds. The kernel's own patience is a quarter of an hour for what was sent, and hours for silence."""
_OF_SERVER = {
    "tcp_user_timeout": "10s",
    "tcp_keepalives_idle": "10s",
    "tcp_keepalives_interval": "5s",
    "tcp_keepalives_count": "3",
    "idle_in_transaction_session_timeout": "15min",
    "lock_timeout": "15s",
}
"""What each session asks of the server: to give up, as soon, a client that vanishes, as with its machine.
Until then its locks hold, and its place among ``max_connections``. One that lives and hangs in the middle of a
transaction has its locks for 15 minutes: pricing, of all that is done there, takes longest, and less. Who waits for
one of them has a connection meanwhile, and is told to come again before all are taken by those who wait."""
_SET = "SELECT " + ", ".join(
    f"set_config('{name}', '{value}', false)" for name, value in _OF_SERVER.items()
)
READ_ONLY = "25006"
LOCK_NOT_AVAILABLE = "55P03"
DEADLOCK_DETECTED = "40P01"
AWAY = (OperationalError, InterfaceError, PoolTimeoutError, OSError)
"""What a database raises that is away or overrun."""


def normalise_url(url: str) -> URL:
    """``url`` for our driver; ``postgres://`` and ``postgresql://`` are what users write.

    Raises:
        ParameterError: it is no URL, or of another database than PostgreSQL.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise ParameterError(
            "the database URL cannot be read: expected postgresql://user:password@host:port/name, or, for a server "
            "and those that stand by for it, postgresql://user:password@/name?host=A:5432&host=B:5432&"
            "target_session_attrs=read-write",
            field="database_url",
        ) from None
    if parsed.drivername not in ("postgres", "postgresql", DRIVER):
        raise ParameterError(
            f"the database must be PostgreSQL (postgresql://...), got {parsed.drivername}://",
            field="database_url",
        )
    # As parameters, where drivers take them too, they would be shown, and no role would be known.
    if isinstance(user := parsed.query.get("user"), str):
        parsed = parsed.set(username=user).difference_update_query(["user"])
    if isinstance(password := parsed.query.get("password"), str):
        parsed = parsed.set(password=password).difference_update_query(["password"])
    return parsed.set(drivername=DRIVER)


class Database:
    """One PostgreSQL database as one role, with a pool that outlives a restart of the server.

    Args:
        url: ``postgresql://user:password@host:port/name``.
        pool_size: connections at most. They are opened when they are needed and kept: one that is opened
            for a burst and closed after it costs more than what is asked through it.
    """

    def __init__(self, url: str, *, pool_size: int = 16) -> None:
        self.url = normalise_url(url)
        self.engine: AsyncEngine = create_async_engine(
            self.url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=_POOL_TIMEOUT_SECONDS,
            pool_recycle=1800,
            # Errors go to logs, and what is stored does not: accuracies of trials that are paid for, digests of records.
            hide_parameters=True,
            connect_args={**NETWORK, "application_name": "tan-search"},
        )
        event.listen(self.engine.sync_engine, "connect", tell_server)
        event.listen(self.engine.sync_engine, "checkout", _refuse_if_closed)
        event.listen(self.engine.sync_engine, "handle_error", _leave_values_out)
        event.listen(self.engine.sync_engine, "handle_error", _leave_if_read_only)
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False)
        self._snapshots = async_sessionmaker(
            self.engine.execution_options(isolation_level="REPEATABLE READ"), expire_on_commit=False
        )
        self._readers = async_sessionmaker(
            self.engine.execution_options(isolation_level="AUTOCOMMIT"), expire_on_commit=False
        )

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[AsyncSession]:
        """A session in one transaction: committed at the end, rolled back on an error."""
        async with self._sessions() as session, session.begin():
            yield session

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[AsyncSession]:
        """A session for queries whose answers belong together: all see the database as the first one did."""
        async with self._snapshots() as session, session.begin():
            yield session

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[AsyncSession]:
        """A session for queries, or for one statement that writes: each in a transaction of its own.

        Under READ COMMITTED every statement has its own picture anyway: what is saved are two of its
        round trips, BEGIN and COMMIT.
        """
        async with self._readers() as session:
            yield session

    async def listen(self, channel: str) -> AsyncGenerator[str]:
        """The payloads notified on ``channel``, for ever, on a connection of its own.

        An empty string is yielded after each connect, the first one included: from here on nothing
        is missed, and whatever happened before must be read from the tables.
        """
        failures = 0
        while True:
            try:
                async with await self._listener(channel) as connection:
                    failures = 0
                    yield ""
                    async for notification in connection.notifies():
                        yield notification.payload
            except psycopg.OperationalError:
                pause = _RECONNECT_SECONDS[min(failures, len(_RECONNECT_SECONDS) - 1)]
                failures += 1
                await asyncio.sleep(pause)

    async def _listener(self, channel: str) -> psycopg.AsyncConnection:
        # As sessions connect: to whichever of several servers the URL asks for.
        _, where = self.engine.dialect.create_connect_args(self.url)
        options: dict[str, Any] = {**where, **NETWORK, "application_name": "tan-listen"}
        connection = await psycopg.AsyncConnection.connect(**options, autocommit=True)
        try:
            await connection.execute(_SET.encode())
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        except BaseException:
            with suppress(psycopg.Error):
                await connection.close()
            raise
        return connection

    async def close(self) -> None:
        """Close every pooled connection."""
        await self.engine.dispose()


def is_read_only(error: DBAPIError) -> bool:
    """Whether the server takes no changes: it stands by for another one, as after a failover."""
    return getattr(error.orig, "sqlstate", None) == READ_ONLY


def is_locked(error: DBAPIError) -> bool:
    """Whether what was asked for was held by another session, for longer than anybody waits."""
    return getattr(error.orig, "sqlstate", None) == LOCK_NOT_AVAILABLE


def tell_server(connection: Any, _: object) -> None:
    """By a statement, not among the parameters of the start, which a pooler in between would refuse."""
    connection.autocommit = True  # a rollback would take it back
    try:
        cursor = connection.cursor()
        cursor.execute(_SET)
        cursor.close()
    finally:
        connection.autocommit = False


def _leave_values_out(context: ExceptionContext) -> None:
    """Leave an error PostgreSQL's own message alone: its details quote rows, as in ``Failing row contains (...)``."""
    error, wrapped = context.original_exception, context.sqlalchemy_exception
    if not isinstance(error, psycopg.Error) or error.diag.message_primary is None:
        return
    whole, error.args = str(error), (error.diag.message_primary,)
    if wrapped is not None:
        wrapped.args = tuple(str(each).replace(whole, str(error)) for each in wrapped.args)


def _leave_if_read_only(context: ExceptionContext) -> None:
    """Let the pool open new connections in the place of all: those lead to a server that stands by by now."""
    error = context.sqlalchemy_exception
    if isinstance(error, DBAPIError) and is_read_only(error):
        context.is_disconnect = True


def _refuse_if_closed(connection: Any, *_: object) -> None:
    """Let the pool replace a connection that its server has closed.

    The end of a connection can be read from its socket, and nothing else can while it is idle: that
    is asked of the kernel, for a hundredth of what asking the server would cost.
    """
    pgconn = connection.driver_connection.pgconn
    if pgconn.status == ConnStatus.OK:
        waiting = select.poll()
        waiting.register(pgconn.socket, select.POLLIN)
        has_ended = bool(waiting.poll(0))
    else:
        has_ended = True
    if has_ended:
        raise DisconnectionError("the server has closed this connection")
