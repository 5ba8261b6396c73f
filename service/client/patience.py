"""With a server that is away for a while, and for as long as somebody has time."""

import math
import time
from collections.abc import Callable

from service.client.errors import ClientError, ProblemError

PATIENCE_SECONDS = 120.0
"""How long a server may be away before it is given up."""
AWAY = (502, 503, 504)
"""Said of a server, or of its database, that is away: by itself, or by a proxy."""
LEAST_SECONDS = 1.0
"""What a request is given at least; a wait may take so much longer than it was meant to."""


class OutOfTimeError(Exception):
    """The time that somebody had is up."""


def unsaid(_: str) -> None:
    """Where nobody listens."""


class Patience:
    """With a server that is away: says so once, tries it more and more seldom, and gives it up.

    Args:
        note: is told when the connection breaks, and when it is back.
        timeout: seconds from now on that there is time for all of it.
        sleep: in place of the system's.
        clock: in place of the system's; seconds from any moment on.
    """

    def __init__(
        self,
        note: Callable[[str], None],
        *,
        timeout: float = math.inf,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._note, self._sleep, self._clock = note, sleep, clock
        self._ends_at = clock() + timeout
        self._away_since: float | None = None
        self._tries = 0

    @property
    def seconds_left(self) -> float:
        """Until the time is up; infinite where there is no end."""
        return self._ends_at - self._clock()

    @property
    def is_tried(self) -> bool:
        """Whether the server is away, as far as is known."""
        return self._away_since is not None

    def within(self, seconds: float) -> float:
        """So many seconds, or what is left."""
        return max(LEAST_SECONDS, min(seconds, self.seconds_left))

    def try_on(self, error: ClientError) -> None:
        """Wait after this error.

        Raises:
            ClientError: the same, where the server refused or has been away for too long.
            OutOfTimeError: the time is up.
        """
        if isinstance(error, ProblemError) and error.status not in AWAY:
            raise error
        self.check()
        if self._away_since is None:
            self._away_since = self._clock()
            self._note("the connection broke; trying again")
        elif self._clock() - self._away_since >= PATIENCE_SECONDS:
            raise error
        self.pause()

    def restore(self) -> None:
        """The server is there."""
        if self._away_since is not None:
            self._note("the connection is back")
        self._away_since, self._tries = None, 0

    def pause(self) -> None:
        """Leave the server some time.

        Raises:
            OutOfTimeError: the time is up.
        """
        self.check()
        self._tries += 1
        self._sleep(min(0.25 * 2 ** min(self._tries, 5), 5.0, self.seconds_left))

    def check(self) -> None:
        """Go on while there is time.

        Raises:
            OutOfTimeError: the time is up.
        """
        if self.seconds_left <= 0:
            raise OutOfTimeError
