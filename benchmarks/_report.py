"""What every benchmark says of itself, and its rows for scripts."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def machine() -> str:
    """What it is, and how busy just now."""
    return f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def today() -> str:
    """In UTC."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def commit() -> str:
    """Of the checkout."""
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return found.stdout.strip() or "unknown"


def circumstances() -> str:
    """Machine, load, date and commit, in one line."""
    return f"{machine()}; {today()}; commit {commit()}"


def origin() -> dict[str, str]:
    """The same, to be stored beside a result."""
    return {"machine": machine(), "date": today(), "commit": commit()}


def row(
    name: str, value: float, unit: str, versus: str | None = None, ratio: float | None = None
) -> dict[str, Any]:
    """One figure."""
    return {"name": name, "value": value, "unit": unit, "versus": versus, "ratio": ratio}
