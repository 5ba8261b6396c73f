"""Lists that come in pages."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class Page(Protocol[Item_co]):
    """A part of a list."""

    @property
    def items(self) -> Sequence[Item_co]:
        """What it holds."""
        ...

    @property
    def next_cursor(self) -> str | None:
        """Where the next page begins; None: nowhere."""
        ...


def every(
    ask: Callable[[dict[str, Any]], Page[Item]],
    query: Mapping[str, Any],
    *,
    limit: int | None,
    most: int,
) -> Iterator[Item]:
    """The items of every page; no more than ``limit``.

    Args:
        ask: for the page of a query.
        query: of the first one. Without a limit its own ``limit``, where it has one, is that of each page.
        limit: None: all of them.
        most: of a page, as the service gives them.
    """
    asked = dict(query)
    left = limit
    while left is None or left > 0:
        if left is not None:
            asked["limit"] = min(left, most)
        page = ask(asked)
        yield from page.items
        if page.next_cursor is None:
            return
        left = None if left is None else left - len(page.items)
        asked["cursor"] = page.next_cursor
