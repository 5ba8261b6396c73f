"""Runs a command that ends when its parent does, even when the parent is killed with SIGKILL.

``python -m service.local.tether PARENT_PID COMMAND...``. On Linux the kernel sends SIGTERM to the
command when the parent dies; elsewhere a small loop watches for it.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1


def main() -> int:
    """Tether this process to its parent, then become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        # The parent may have died before the call above took effect.
        if os.getppid() != parent:
            return 1
        os.execvp(command[0], command)  # noqa: S606 - the command is ours, never a user's
    return _watch(parent, command)


def _watch(parent: int, command: list[str]) -> int:
    child = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while child.poll() is None:
        if os.getppid() != parent:
            child.terminate()
        time.sleep(0.5)
    return child.returncode


if __name__ == "__main__":
    sys.exit(main())
