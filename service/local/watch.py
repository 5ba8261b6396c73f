"""Whether a process still works: one that hangs lives, and no exit tells of it.

An API process is asked, and so is a Ray head; an orchestrator touches a file as long as it goes round.
"""

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import httpx

MISSES = 6
"""In a row: then a process hangs. A single one is a machine that was busy, or stood still itself."""
START_SECONDS = 180.0
"""Until its first sign of life a process is given this long, if that is longer."""
LONGEST_LOOK_SECONDS = 5.0
"""Between two looks at a file. Of a longer time it is not known what stood still: perhaps who looks."""


class Watch(Protocol):
    """Watches one process, and the one that is started in its place."""

    silence_seconds: float
    """Without a sign of life, after which the process hangs."""
    missing: str
    """What it has done meanwhile, in words."""

    @property
    def is_hung(self) -> bool:
        """Whether there was no sign of life for long enough."""
        ...

    def begin(self) -> None:
        """A process begins: it has given none yet."""
        ...

    def close(self) -> None:
        """Watch no longer."""
        ...


class PulseWatch:
    """Looks at the file that a process touches. Clocks may jump: what counts is that its time changes.

    Args:
        file: is touched again and again, and need not be there yet.
        silence_seconds: without a touch, after which the process hangs.
    """

    missing = "finished no tick"

    def __init__(self, file: Path, silence_seconds: float) -> None:
        self.silence_seconds = silence_seconds
        self._file = file
        self.begin()

    @property
    def is_hung(self) -> bool:
        """Whether nobody has touched the file in so many seconds of looking."""
        now, touched_at = time.monotonic(), self._touched_at()
        self._silent += min(now - self._looked_at, LONGEST_LOOK_SECONDS)
        self._looked_at = now
        if touched_at != self._last_touch:
            self._last_touch, self._silent, self._most = touched_at, 0.0, self.silence_seconds
        return self._silent >= self._most

    def begin(self) -> None:
        """A process begins: it has touched nothing yet."""
        self._last_touch = self._touched_at()
        self._silent, self._looked_at = 0.0, time.monotonic()
        self._most = max(self.silence_seconds, START_SECONDS)

    def close(self) -> None:
        """Nothing is held."""

    def _touched_at(self) -> int | None:
        try:
            return self._file.stat().st_mtime_ns
        except OSError:
            return None


class AnswerWatch:
    """Asks one process for ``/healthz`` again and again, in a thread: who hangs costs the whole patience each time.

    It asks at a socket that is this process's alone: at the port that several share, others answer for it.
    Any answer is one, a refusal too.

    Args:
        silence_seconds: without an answer, after which the process hangs; it is asked ``MISSES`` times meanwhile.
    """

    missing = "answered nothing"

    def __init__(self, silence_seconds: float) -> None:
        self.silence_seconds = silence_seconds
        self._period = silence_seconds / MISSES
        self._misses = 0
        self._most = 0
        self._is_over = threading.Event()
        # Held here, as the port is: what is asked while the process starts waits for it.
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/healthz"
        self.begin()
        threading.Thread(target=self._ask, name="watch", daemon=True).start()

    @property
    def fd(self) -> int:
        """Of the socket, which the process inherits and serves on."""
        return self._socket.fileno()

    @property
    def is_hung(self) -> bool:
        """Whether the process has answered nothing for long enough."""
        return self._misses >= self._most

    def begin(self) -> None:
        """A process begins: it has answered nothing yet."""
        self._misses = 0
        self._most = max(MISSES, round(START_SECONDS / self._period))

    def close(self) -> None:
        """Ask no longer."""
        self._is_over.set()
        self._socket.close()

    def _ask(self) -> None:
        # A connection of its own each time: accepting one is among what a process may fail to do.
        headers = {"Connection": "close"}
        with httpx.Client(timeout=self._period, trust_env=False, headers=headers) as client:
            while not self._is_over.is_set():
                start = time.monotonic()
                try:
                    client.get(self._url)
                except httpx.HTTPError:
                    self._misses += 1
                else:
                    self._misses, self._most = 0, MISSES
                self._is_over.wait(start + self._period - time.monotonic())


class NodeWatch:
    """Asks a Ray head again and again, in a thread, whether it has a node that lives.

    A node ends with one of its agents, and ``ray start --block`` takes that for a stop and lives on. A head that does not answer is
    left alone, and so is one that has had no node yet.

    Args:
        has_node: asks it; None: there is no answer.
        silence_seconds: without a node, after which the head is of no use.
    """

    missing = "no node that lives"

    def __init__(self, has_node: Callable[[], bool | None], silence_seconds: float = 30.0) -> None:
        self.silence_seconds = silence_seconds
        self._has_node = has_node
        self._is_over = threading.Event()
        self.begin()
        threading.Thread(target=self._ask, name="watch", daemon=True).start()

    @property
    def is_hung(self) -> bool:
        """Whether the head said for long enough that the node which it had is gone."""
        return self._misses >= MISSES

    def begin(self) -> None:
        """A head begins: it has no node yet."""
        self._misses, self._has_had_one = 0, False

    def close(self) -> None:
        """Ask no longer."""
        self._is_over.set()

    def _ask(self) -> None:
        while not self._is_over.wait(self.silence_seconds / MISSES):
            found = self._has_node()
            self._has_had_one = self._has_had_one or found is True
            self._misses = self._misses + 1 if found is False and self._has_had_one else 0
