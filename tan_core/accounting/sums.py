"""Sums of many unlike parts: made once, and again only where a part is another one.

A budget that many studies share is priced again for each study, and most of it is what it was. So the parts
are the leaves of a tree in which the place of each depends on nothing but itself, and its branches are kept:
one more part, or more steps of one, makes one way from a leaf to the root anew. Grids have few widths then
(:func:`coarsened`), as what is on unlike grids has no sum.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import floor, log2
from threading import Lock
from typing import Generic, TypeVar

FEW = 8
"""Unlike parts. More of them are summed in a tree; fewer take a tenth of a second, in their order."""
_WIDTHS = 4
"""Between a width and its double: an error that rises with the square of the width rises by two fifths at most."""
_COARSER = 1.01
"""At least: how the cells happen to lie on what they round is seen in a ten-millionth of a sum."""
_LEAST = 4
"""Parts of a branch that is kept: half of all numbers are in smaller ones, and those take a few milliseconds."""
_WHOLE = 2**23
"""Numbers that are kept of all sums of a kind, 64 MiB: enough for some 400 parts."""
_BITS = 128
"""Of a place in the tree."""

Part = TypeVar("Part", bound=Hashable)
Sum = TypeVar("Sum")


def coarsened(width: float, *, coarsest: float) -> float:
    """One of the widths that sums of many parts are on, coarser by 1 to 20 %; at most ``coarsest``, where it is below that.

    Example:
        >>> coarsened(0.0003, coarsest=0.002) == 0.002 * 2 ** (-10 / 4)
        True
    """
    if width >= coarsest:
        return width
    step = floor(_WIDTHS * log2(coarsest / (_COARSER * width)))
    return coarsest * 2 ** (-max(step, 0) / _WIDTHS)


@dataclass(frozen=True, slots=True)
class Counted(Generic[Part]):
    """A part, so many times."""

    part: Part
    count: int


class Sums(Generic[Part, Sum]):
    """Sums that are kept, those longest unused forgotten first.

    Args:
        size: how many numbers there are in one.
        whole: how many are kept in all.
    """

    def __init__(self, size: Callable[[Sum], int], whole: int = _WHOLE) -> None:
        self._size, self._whole = size, whole
        self._kept: OrderedDict[Hashable, Sum] = OrderedDict()
        self._held = 0
        self._lock = Lock()

    def of(
        self,
        parts: Sequence[Counted[Part]],
        *,
        on: Hashable,
        leaf: Callable[[Counted[Part]], Sum],
        add: Callable[[Sum, Sum], Sum],
    ) -> Sum:
        """The sum of at least one part, all unlike; bit for bit the same in whatever order they come.

        Args:
            parts: what is summed.
            on: all else that the sum depends on.
            leaf: a part as often as it counts.
            add: of two sums.
        """
        placed = sorted(((_place(each.part), each) for each in parts), key=lambda pair: pair[0])

        def branch(placed: Sequence[tuple[int, Counted[Part]]], bit: int) -> Sum:
            key = on, tuple(each for _, each in placed)
            known = self._get(key)
            if known is not None:
                return known
            if len(placed) == 1:
                found = leaf(placed[0][1])
            else:
                while (
                    not 0 < (low := sum(not place >> bit & 1 for place, _ in placed)) < len(placed)
                ):
                    bit -= 1
                found = add(branch(placed[:low], bit - 1), branch(placed[low:], bit - 1))
            if len(placed) >= _LEAST:
                self._keep(key, found)
            return found

        return branch(placed, _BITS - 1)

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._kept.clear()
            self._held = 0

    def _get(self, key: Hashable) -> Sum | None:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key]

    def _keep(self, key: Hashable, found: Sum) -> None:
        with self._lock:
            if key in self._kept:  # somebody else has asked the same meanwhile
                return
            self._kept[key] = found
            self._held += self._size(found)
            while self._held > self._whole:
                _, oldest = self._kept.popitem(last=False)
                self._held -= self._size(oldest)


def _place(part: Hashable) -> int:
    """As if at random, and the same in every process."""
    return int.from_bytes(blake2b(repr(part).encode(), digest_size=_BITS // 8).digest())
