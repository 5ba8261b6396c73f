"""Token buckets, one per key, in the memory of this process."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

MAX_KEYS = 10_000
"""Beyond it the key that was idle longest is forgotten: its bucket is full again."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So many requests a second for ever, and so many at once after a rest."""

    per_second: float
    burst: float


FAILURES = RateLimit(per_second=0.1, burst=10)
"""Wrong tokens from one address."""
WORKERS_FACTOR = 10
"""Drivers report from few addresses, and what they report is charged already."""


def parse_rate_limit(value: Any) -> RateLimit:
    """``PER_SECOND,BURST`` as a setting says it, both above 0."""
    if isinstance(value, RateLimit):
        return value
    try:
        per_second, burst = TypeAdapter(tuple[float, float]).validate_python(
            str(value).split(","), strict=False
        )
    except ValidationError:
        per_second = burst = math.nan
    if not (0 < per_second < math.inf and 1 <= burst < math.inf):
        raise ValueError("expected REQUESTS_PER_SECOND,BURST, such as 500,1000")
    return RateLimit(per_second, burst)


class Buckets:
    """A bucket per key; each fills with ``per_second`` and holds ``burst``."""

    def __init__(self, limit: RateLimit, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, key: str) -> float:
        """Seconds until one can be taken; 0: now."""
        return max(0.0, (1 - self._level(key)) / self._limit.per_second)

    def take(self, key: str) -> float:
        """Take one where there is one. Seconds until there is; 0: it was taken."""
        seconds = self.wait(key)
        if seconds == 0:
            self._levels[key] = (self._level(key) - 1, self._clock())
            self._levels.move_to_end(key)
            if len(self._levels) > MAX_KEYS:
                self._levels.popitem(last=False)
        return seconds

    def _level(self, key: str) -> float:
        level, at = self._levels.get(key, (self._limit.burst, self._clock()))
        return min(self._limit.burst, level + (self._clock() - at) * self._limit.per_second)
