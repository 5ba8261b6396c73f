"""A small disk of one's own, to be filled up."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, *, megabytes: int, mode: int = 0o700) -> Iterator[Path]:
    """A file system in memory, mounted at ``path``; skips the test where none may be mounted.

    What stayed mounted after a test that failed, pytest could not remove, and every later run failed of it.
    """
    path.mkdir()
    options = f"size={megabytes}m,mode={mode:o}"
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a file system, and not everywhere")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path) -> Path:
    """One file that takes all the space that is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert shutil.disk_usage(disk).free == 0
    return ballast
