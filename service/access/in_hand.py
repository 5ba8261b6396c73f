"""How many requests of one caller are worked on at a time: those of others find connections to the database free."""

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from service.errors import TooManyRequestsError

PATIENCE_SECONDS = 10.0
"""Of a request that waits for others of its caller."""


class InHand:
    """Requests that have come in and have not begun to be answered, by caller.

    Args:
        of_one: of one caller; more of its requests wait in a line of their own.
        patience_seconds: how long they do.
    """

    def __init__(self, of_one: int, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._of_one = of_one
        self._patience_seconds = patience_seconds
        self._callers = WeakValueDictionary[str, asyncio.Semaphore]()
        """Each lives as long as a request of its caller."""

    async def take(self, caller: str) -> Callable[[], None]:
        """Take one more in hand. What is returned lets go of it, and does nothing when it is called again.

        Raises:
            TooManyRequestsError: too many of the caller's are in hand, and stayed so.
        """
        places = self._callers.get(caller)
        if places is None:
            places = self._callers[caller] = asyncio.Semaphore(self._of_one)
        try:
            async with asyncio.timeout(self._patience_seconds):
                await places.acquire()
        except TimeoutError:
            raise TooManyRequestsError(
                f"more than {self._of_one} requests of this caller are worked on", 1
            ) from None
        held = [places]

        def let_go() -> None:
            while held:
                held.pop().release()

        return let_go
