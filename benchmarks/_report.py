"""What every benchmark says of itself, and its rows for scripts."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def circumstances() -> str:
    """Machine, load, date and commit, in one line."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    ).stdout.strip()
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
        f"{datetime.now(UTC):%Y-%m-%d}; commit {commit or 'unknown'}"
    )


def row(
    name: str, value: float, unit: str, versus: str | None = None, ratio: float | None = None
) -> dict[str, Any]:
    """One figure."""
    return {"name": name, "value": value, "unit": unit, "versus": versus, "ratio": ratio}
