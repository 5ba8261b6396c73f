"""Which of several ways is the faster one on this processor: found out where it matters."""

import time
from collections.abc import Callable

_CALLS = 7


def least_seconds(call: Callable[[], object]) -> float:
    """Of the fastest of a few calls, in time of this thread."""
    taken: list[float] = []
    for _ in range(_CALLS):
        start = time.thread_time()
        call()
        taken.append(time.thread_time() - start)
    return min(taken)
