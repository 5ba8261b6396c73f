"""Whether the workers of an attempt make progress: one that hangs lives, and no exit tells of it.

Each notes that it does something, a microbatch at a time, and a thread of it says so now and then where the driver
looks: in the key-value store that Ray has for its own libraries. How much was done is not said, for how many microbatches a
step takes tells how many records were drawn. Between two results a driver hears of nothing else.
"""

import logging
import os
import threading
import time
from contextlib import suppress

from worker.settings import WorkerSettings

log = logging.getLogger(__name__)

LONGEST_PERIOD_SECONDS = 5.0
"""Between two looks, and between two signs of life of a worker that works."""
_NAMESPACE = b"tan-search"


class Pulse:
    """Of one worker process.

    Args:
        attempt: whose worker it is; as of :class:`Pulses`.
        settings: how often it is looked at; where nobody looks, nothing is told.
    """

    name: str = ""
    """What the worker does at the moment, as its driver calls it."""

    def __init__(self, attempt: str, settings: WorkerSettings) -> None:
        self._key = f"{attempt}/{os.urandom(8).hex()}"
        self._is_beaten = threading.Event()
        if period := _period(settings):
            thread = threading.Thread(target=self._tell, args=(period,), name="pulse", daemon=True)
            thread.start()

    def beat(self) -> None:
        """Something is done."""
        if not self._is_beaten.is_set():
            self._is_beaten.set()

    def _tell(self, period: float) -> None:
        from ray.experimental.internal_kv import (
            _internal_kv_put,  # pyright: ignore[reportPrivateUsage]
        )

        number = 0
        while self._is_beaten.wait():
            self._is_beaten.clear()
            number += 1
            value = f"{number}:{self.name}"
            try:
                _internal_kv_put(self._key, value, overwrite=True, namespace=_NAMESPACE)
            except Exception:
                log.warning("a sign of life could not be given", exc_info=True)
            time.sleep(period)


class Pulses:
    """The pulses of an attempt's workers, as its driver looks at them.

    Args:
        attempt: a name that no other attempt has.
        settings: how often to look.
    """

    def __init__(self, attempt: str, settings: WorkerSettings) -> None:
        self.period = _period(settings)
        """Seconds between two looks; 0: nobody is to look."""
        self._prefix = f"{attempt}/"
        self._known: dict[bytes, bytes] = {}
        self._looked_at = time.monotonic()

    def look(self) -> tuple[float, set[str]]:
        """Seconds that this look counts for, 0 where there was none; and the names of who did something.

        A look is left out where the last one was a moment ago. Time in which nobody looked, or could look,
        says nothing of the workers.
        """
        passed = time.monotonic() - self._looked_at
        if not self.period or passed < self.period:
            return 0.0, set()
        self._looked_at += passed
        try:
            told = self._told()
        except Exception:
            log.warning("how far the workers are could not be seen", exc_info=True)
            return 0.0, set()
        new = [value for key, value in told.items() if value != self._known.get(key)]
        self._known = told
        return min(passed, 2 * self.period), {value.decode().partition(":")[2] for value in new}

    def close(self) -> None:
        """Forget all of them."""
        from ray.experimental.internal_kv import (
            _internal_kv_del,  # pyright: ignore[reportPrivateUsage]
        )

        if self.period:
            with suppress(Exception):  # of a cluster that is gone, nothing is left
                _internal_kv_del(self._prefix, del_by_prefix=True, namespace=_NAMESPACE)

    def _told(self) -> dict[bytes, bytes]:
        """What each worker process has said last: ``number:name``."""
        from ray.experimental.internal_kv import (
            _internal_kv_get,  # pyright: ignore[reportPrivateUsage]
            _internal_kv_list,  # pyright: ignore[reportPrivateUsage]
        )

        keys = _internal_kv_list(self._prefix, namespace=_NAMESPACE)
        return {key: _internal_kv_get(key, namespace=_NAMESPACE) or b"" for key in keys}


def _period(settings: WorkerSettings) -> float:
    return min(LONGEST_PERIOD_SECONDS, settings.progress_timeout_seconds / 4)
