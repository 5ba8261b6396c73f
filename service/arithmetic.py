"""A few threads for pricing and planning: a hard question holds up others like it, and nothing else.

A thread cannot be told to stop, and who hangs up leaves its question behind. Without bounds a handful of
callers with awkward numbers would hold every thread that files are read and statements are checked in:
there are few threads, and accountants stop by themselves (``tan_core.accounting.effort``).
"""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, fail_after, to_thread

from service.errors import BusyError
from tan_core.accounting.effort import limited_effort

T = TypeVar("T")

AT_ONCE = 4
PATIENCE_SECONDS = 20.0
"""For a place."""
EFFORT_SECONDS = 8.0
"""Of processor time for one question; a part of it for what an answer can do without."""


class Arithmetic:
    """The threads of one process."""

    def __init__(
        self, *, at_once: int = AT_ONCE, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._places = CapacityLimiter(at_once)
        self._patience_seconds = patience_seconds

    async def run(self, compute: Callable[[], T], *, effort_seconds: float = EFFORT_SECONDS) -> T:
        """What ``compute`` answers.

        Raises:
            BusyError: all threads are taken, and stayed so.
            TooHardError: its accountants took more processor time than they may.
        """

        def limited() -> T:
            with limited_effort(effort_seconds):
                return compute()

        try:
            with fail_after(self._patience_seconds):
                await self._places.acquire()
        except TimeoutError:
            raise BusyError(
                "other plans are being computed that take long; try again in a moment"
            ) from None
        try:
            return await to_thread.run_sync(limited)
        finally:
            self._places.release()
