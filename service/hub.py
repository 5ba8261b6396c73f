"""One LISTEN connection per process, shared by every subscriber."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from service.db.session import Database
from service.shared_reads import SharedReads
from service.trouble import Trouble

EVENT_CHANNEL = "tan_event"
RETRY_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Subscriber(asyncio.Event):
    """Set whenever its key is notified; the subscriber clears it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: int | None = None
        """Number of the last event that the subscriber has passed on, once it has read its table."""


class EventHub:
    """Wakes the subscribers of a key when it is notified. Listens only while someone subscribes.

    Formal guarantees:

    * A subscriber that reads its table after :meth:`subscribe` and again after each wake-up misses
      nothing: whatever is committed later than the subscription wakes it.
    * After a lost connection every subscriber is woken, since anything may have happened meanwhile.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._subscribers: defaultdict[str, set[Subscriber]] = defaultdict(set)
        self._listener: asyncio.Task[None] | None = None
        self._trouble = Trouble(_log)
        self.reads = SharedReads()
        """Of who is woken by the same event."""
        self.is_closed = False

    @asynccontextmanager
    async def subscribe(self, key: str) -> AsyncGenerator[Subscriber]:
        """An event that is set whenever ``key`` is notified. The subscriber clears it."""
        wake = Subscriber()
        self._subscribers[key].add(wake)
        if self._listener is None and not self.is_closed:
            self._listener = asyncio.create_task(self._listen(), name="event-hub")
        try:
            yield wake
        finally:
            self._subscribers[key].discard(wake)
            if not self._subscribers[key]:
                del self._subscribers[key]

    @property
    def num_subscribers(self) -> int:
        """How many follow something."""
        return sum(len(subscribers) for subscribers in self._subscribers.values())

    def seen(self) -> dict[str, int]:
        """For each key, the last event that the slowest of its subscribers has passed on."""
        known = (
            (key, [each.seen for each in subscribers if each.seen is not None])
            for key, subscribers in self._subscribers.items()
        )
        return {key: min(numbers) for key, numbers in known if numbers}

    def shut(self) -> None:
        """Let every subscriber come to its end; no new ones are woken."""
        self.is_closed = True
        self._wake_all()

    async def close(self) -> None:
        """Shut, and close the connection."""
        self.shut()
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
            self._listener = None

    async def _listen(self) -> None:
        while True:
            try:
                async for key in self._database.listen(EVENT_CHANNEL):
                    self._trouble.is_over()
                    if key:
                        self._wake(key)
                    else:
                        self._wake_all()
            except Exception as error:  # noqa: BLE001 - subscribers also poll: without a listener they are slower
                self._trouble.met("cannot listen for events; trying again", error)
                await asyncio.sleep(RETRY_SECONDS)

    def _wake(self, key: str) -> None:
        for wake in self._subscribers.get(key, ()):
            wake.set()

    def _wake_all(self) -> None:
        for subscribers in self._subscribers.values():
            for wake in subscribers:
                wake.set()
