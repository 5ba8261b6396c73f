"""Trouble that comes back at every look: told in full when it begins, then in a line a minute."""

import logging
import time

REMIND_SECONDS = 60.0


class Trouble:
    """What one kind of look meets, as a log is told of it. An outage would else fill a disk with tracebacks.

    Args:
        log: of whoever looks.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._begun: dict[tuple[str, type[Exception] | None], float] = {}
        self._not_before: dict[tuple[str, type[Exception] | None], float] = {}

    def met(self, message: str, error: Exception | None = None) -> None:
        """Tell it, unless that was done a moment ago: with the error's traceback where it is new."""
        now, kind = time.monotonic(), None if error is None else type(error)
        known = message, kind
        if known not in self._begun:
            self._begun[known] = now
            self._log.error("%s", message, exc_info=error)
        elif now < self._not_before[known]:
            return
        else:
            name = "" if kind is None else f": {kind.__name__}"
            self._log.error("%s%s (for %.0f s now)", message, name, now - self._begun[known])
        self._not_before[known] = now + REMIND_SECONDS

    def is_over(self) -> None:
        """Say so, if there was any: the next one is new."""
        for message in dict.fromkeys(message for message, _ in self._begun):
            self._log.info("over: %s", message)
        self._begun.clear()
