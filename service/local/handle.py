"""A local service as a child process: for ``make demo`` and for tests. Imports no database code."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import IO

from service.settings import child_environment


class LocalServiceError(Exception):
    """The service ended before it was ready; the message holds its last lines."""


class LocalService:
    """``with LocalService(home) as url``: everything is started, and stopped again at the end.

    Args:
        home: ``TAN_HOME`` of the service.
        environment: more ``TAN_*`` settings.
    """

    def __init__(self, home: Path, *, environment: dict[str, str] | None = None) -> None:
        self.home = home
        self._environment = {
            "TAN_HOME": str(home),
            "TAN_PORT": "0",  # a free one
            **(environment or {}),
        }
        self.lines: list[str] = []
        """What it has said on standard error."""
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> str:
        """Start it and wait until it answers; returns its URL. Who is interrupted leaves nothing running."""
        tether = [sys.executable, "-m", "service.local.tether", str(os.getpid())]
        self.process = subprocess.Popen(
            [*tether, sys.executable, "-m", "service.local"],
            env=child_environment(**self._environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None  # noqa: S101 - both are pipes
        assert self.process.stderr is not None  # noqa: S101
        threading.Thread(target=self._drain, args=(self.process.stderr,), daemon=True).start()
        try:
            line = self.process.stdout.readline()
            if not line.startswith("ready "):
                self.process.wait()
                raise LocalServiceError("\n".join(self.lines[-20:]) or "the service ended at once")
        except BaseException:
            self.stop()
            raise
        self.url = line.split()[1]
        return self.url

    def stop(self, *, timeout_seconds: float = 120) -> int:
        """Stop it with everything that it started; returns its exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout_seconds)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def __enter__(self) -> str:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _drain(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self.lines.append(line.rstrip())

    def __repr__(self) -> str:
        return f"LocalService(home={str(self.home)!r}, url={self.url!r})"


__all__ = ["LocalService", "LocalServiceError"]
