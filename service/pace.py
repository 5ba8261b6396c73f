"""How often drivers should be heard: often while they are few, and never more than one API can hear.

A thousand drivers that say every two seconds that they live are five hundred messages a second, which leave
no time for what they have to report; and a driver that is not heard is taken for dead.
"""

import time

from sqlalchemy import func, select

from service.db.session import Database
from service.db.tables import Attempt

BEATS_PER_SECOND = 100.0
"""Heartbeats of all drivers together."""
COUNTED_EVERY_SECONDS = 5.0
BEATS_PER_TIMEOUT = 4.0
"""At least so many chances to be heard has a driver before it is taken for dead."""


class Pace:
    """The pause that drivers are asked to make between two heartbeats.

    Args:
        database: where the live attempts are counted, now and then.
        timeout_seconds: silence after which a driver is taken for dead.
    """

    def __init__(self, database: Database, *, timeout_seconds: float) -> None:
        self._database = database
        self._longest = timeout_seconds / BEATS_PER_TIMEOUT
        self._drivers = 0
        self._count_at = 0.0

    async def seconds(self) -> float:
        """The least pause, in seconds; drivers make their own where that is longer."""
        if (now := time.monotonic()) >= self._count_at:
            # First, so that who comes meanwhile does not count too.
            self._count_at = now + COUNTED_EVERY_SECONDS
            live = select(func.count()).select_from(Attempt).where(Attempt.state == "live")
            async with self._database.reading() as session:
                self._drivers = (await session.execute(live)).scalar_one()
        return min(self._drivers / BEATS_PER_SECOND, self._longest)
