"""How often a server is asked and waited for, by libpq's own account: BEGIN and COMMIT count too."""

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

from sqlalchemy import event

from service.db.session import Database

_ANSWERED = "ReadyForQuery"
"""The message with which the server ends each of its answers."""


class RoundTrips:
    """Of the connections that are taken from a pool and given back while they are counted."""

    def __init__(self) -> None:
        self._trace = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `counted`
        self.number = 0

    def _begin(self, connection: Any, *_: object) -> None:
        connection.driver_connection.pgconn.trace(self._trace.fileno())

    def _end(self, connection: Any, *_: object) -> None:
        connection.driver_connection.pgconn.untrace()

    @classmethod
    @contextlib.contextmanager
    def counted(cls, database: Database) -> Iterator["RoundTrips"]:
        """The number is there when the block has ended."""
        trips, engine = cls(), database.engine.sync_engine
        with trips._trace:
            event.listen(engine, "checkout", trips._begin)
            event.listen(engine, "checkin", trips._end)  # codespell:ignore checkin
            try:
                yield trips
            finally:
                event.remove(engine, "checkout", trips._begin)
                event.remove(engine, "checkin", trips._end)  # codespell:ignore checkin
            trips._trace.seek(0)
            trips.number = sum(_ANSWERED in line for line in trips._trace)
