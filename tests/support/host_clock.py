"""The wall clock of a host that jumps while processes of it run; what host_clock.c does, by file."""

import shutil
import struct
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_suffix(".c")
_SECONDS = struct.Struct("=q")


def build(folder: Path) -> Path:
    """The library that processes preload, compiled into ``folder``."""
    compiler = shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("the wall clock of a process is put forward by a library: needs Linux and gcc")
    library = folder / "host_clock.so"
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, "-o", str(library), str(_SOURCE)], check=True)
    return library


class HostClock:
    """The wall clock of one host: of the processes that are started in its ``environment``.

    Args:
        library: what :func:`build` made.
        path: where what it is ahead by is written; those processes must be able to read it.
    """

    def __init__(self, library: Path, path: Path) -> None:
        self._path = path
        self._ahead = timedelta()
        self._path.write_bytes(_SECONDS.pack(0))
        self.environment = {"LD_PRELOAD": str(library), "HOST_CLOCK_AHEAD": str(path)}

    def jump(self, by: timedelta) -> None:
        """Put it forward by so much, for all of them at once; back where that is negative."""
        self._ahead += by
        with self._path.open("r+b") as file:  # in place: they look at this very file
            file.write(_SECONDS.pack(round(self._ahead.total_seconds())))
