"""``tan-cli serve`` that is told to stop before it is up."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the child below /proc")
def test_it_ends_cleanly_before_it_has_started_anything(tmp_path: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TAN_")}
    home = tmp_path / "home"
    command = [sys.executable, "-m", "service.cli.main", "serve", "--port", "0", "--home", home]
    with subprocess.Popen(command, env=inherited) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + 30
        while not children.read_text().strip() and time.monotonic() < deadline:
            time.sleep(0.01)

        process.send_signal(signal.SIGTERM)

        assert process.wait(30) == 0
    assert not home.exists()
