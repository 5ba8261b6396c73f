"""Whether an API process answers: one that hangs lives, and no exit tells of it."""

import socket
import threading
import time

import httpx

MISSES = 6
"""In a row: then a process hangs. A single one is a machine that was busy, or stood still itself."""
START_SECONDS = 180.0
"""Until its first answer a process is given this long, if that is longer."""


class Watch:
    """Asks one process for ``/healthz`` again and again, in a thread: who hangs costs the whole patience each time.

    It asks at a socket that is this process's alone: at the port that several share, others answer for it.
    Any answer is one, a refusal too.

    Args:
        silence_seconds: without an answer, after which the process hangs; it is asked ``MISSES`` times meanwhile.
    """

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
