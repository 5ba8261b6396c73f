"""One read for all who want to know the same thing at the same moment."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

Value = TypeVar("Value")


class SharedReads:
    """For callers with equal keys one read is made, and then, if somebody asked meanwhile, one more.

    A thousand who follow one study are woken by each of its events. Reads of their own, thousands of queries, would
    keep every connection and the processor from everybody else.

    Formal guarantees:

    * What a caller gets was read after it asked: never by a read that was under way by then, which may not have
      seen what the caller was woken for.
    * A caller that is cancelled cancels nothing: a query that is cancelled half-way costs the pool a connection.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Task[Any]] = {}
        """Not begun: whoever asks now shares them."""
        self._under_way: dict[Hashable, asyncio.Task[Any]] = {}

    async def get(self, key: Hashable, read: Callable[[], Awaitable[Value]]) -> Value:
        """What ``read`` finds, whoever of those with this key has brought it. Raises what it raises."""
        task = self._waiting.get(key)
        if task is None:
            task = self._waiting[key] = asyncio.create_task(self._take_turn(key, read))
            task.add_done_callback(_looked_at)
        return await asyncio.shield(task)

    async def _take_turn(self, key: Hashable, read: Callable[[], Awaitable[Value]]) -> Value:
        if (before := self._under_way.get(key)) is not None:
            await asyncio.wait([before])
        task = self._under_way[key] = self._waiting.pop(key)
        try:
            return await read()
        finally:
            if self._under_way.get(key) is task:
                del self._under_way[key]


def _looked_at(task: asyncio.Task[Any]) -> None:
    """That all who asked have left is no reason to complain that nobody has seen its error."""
    if not task.cancelled():
        task.exception()
