"""Log files that are written for as long as a service runs, and stay short."""

import logging
import os
import shutil
from pathlib import Path

MAX_BYTES = 64 * 2**20
"""Of one log: some weeks of a busy service. As much again lies beside it."""

log = logging.getLogger(__name__)


def keep_short(folder: Path, max_bytes: int = MAX_BYTES) -> None:
    """Move what every long ``*.log`` of a folder holds to ``*.log.1``, in place of what that held.

    Whoever writes a log has it open, to append, and goes on at its new beginning. What is written while
    it is copied may be lost. A log that cannot be copied, as where the disk is full, stays as it is.
    """
    for path in folder.glob("*.log"):
        try:
            if path.stat().st_size > max_bytes:
                shutil.copyfile(path, path.with_suffix(".log.1"))
                os.truncate(path, 0)
        except OSError as error:
            log.warning("%s is long and cannot be shortened: %s", path, error)
