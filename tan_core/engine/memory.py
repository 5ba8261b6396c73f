"""Memory that has been freed stays with the process: its pages need not be asked for and cleared again."""

import ctypes
import sys
from typing import Final

_MMAP_MAX: Final = -4
_TRIM_THRESHOLD: Final = -1
_NEVER: Final = 2**31 - 1


def keep_freed_memory() -> bool:
    """Stop the C library from giving large blocks back to the system; whether it could be asked.

    Every step asks for the same large tensors again. glibc maps each above 32 MiB anew and unmaps it
    when it is freed, and the system clears all its pages in between: a few percent to a third of a step.
    For processes that do nothing but train: what they once needed they hold until they end.

    Example:
        >>> keep_freed_memory() in (True, False)
        True
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return mallopt is not None and all(
        mallopt(name, value) == 1 for name, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER))
    )
