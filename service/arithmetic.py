"""A few threads for pricing and planning: a hard question holds up others like it, and nothing else.

A thread cannot be told to stop, and who hangs up leaves its question behind. Without bounds a handful of
callers with awkward numbers would hold every thread that files are read and statements are checked in:
there are few threads, and accountants stop by themselves (``tan_core.accounting.effort``). Nor can the callers of
one tenant hold all of them, or fill the line in which those of others stand.
"""

from collections import defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TypeVar

from anyio import CapacityLimiter, fail_after, to_thread

from service.auth.scopes import asking
from service.errors import BusyError
from tan_core.accounting.effort import limited_effort

T = TypeVar("T")

AT_ONCE = 4
OF_ONE_TENANT = 3
"""Of them, at most; more of its questions wait apart."""
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
        self._of_tenants = defaultdict[str, CapacityLimiter](lambda: CapacityLimiter(OF_ONE_TENANT))
        self._patience_seconds = patience_seconds

    async def run(self, compute: Callable[[], T], *, effort_seconds: float = EFFORT_SECONDS) -> T:
        """What ``compute`` answers.

        Raises:
            BusyError: all threads that the tenant may have are taken, and stayed so.
            TooHardError: its accountants took more processor time than they may.
        """

        def limited() -> T:
            with limited_effort(effort_seconds):
                return compute()

        async with AsyncExitStack() as held:
            try:
                with fail_after(self._patience_seconds):
                    await held.enter_async_context(self._of_tenants[asking.get()])
                    await held.enter_async_context(self._places)
            except TimeoutError:
                raise BusyError(
                    "other plans are being computed that take long; try again in a moment"
                ) from None
            return await to_thread.run_sync(limited)
