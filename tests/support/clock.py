"""A jump of the database's clock: whatever is stored is so much older, or newer, all at once."""

from datetime import timedelta

import psycopg
from psycopg import sql

_MOMENTS = """
SELECT table_name, array_agg(column_name::text) FROM information_schema.columns
WHERE table_schema = 'public' AND data_type = 'timestamp with time zone'
    AND table_name NOT LIKE 'ledger\\_%' AND table_name <> 'audit_event'
GROUP BY table_name
"""
"""What is decided by. Ledger and audit are never edited: their moments are there to be read."""


class DatabaseClock:
    """The clock of one database.

    Args:
        url: of the database, as the superuser.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.ahead = timedelta()
        """Of the machine's: to be added where a process remembers what the clock said."""

    def jump(self, by: timedelta) -> None:
        """Put it forward by so much; back where that is negative."""
        with psycopg.connect(self._url) as connection:
            for table, columns in connection.execute(_MOMENTS).fetchall():
                moved = sql.SQL(", ").join(
                    sql.SQL("{0} = {0} - {1}").format(sql.Identifier(column), by)
                    for column in columns
                )
                connection.execute(sql.SQL("UPDATE {} SET {}").format(sql.Identifier(table), moved))
        self.ahead += by
