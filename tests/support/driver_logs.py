"""The logs of real drivers, trial workers and ranks: records in the service's own format."""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

JSON = {"TAN_LOG_FORMAT": "json"}


def records(lines: Iterable[str], run_id: str) -> list[dict[str, Any]]:
    """The records of a run; Ray writes lines of its own between them."""
    found = [json.loads(line) for line in lines if line.startswith('{"time"')]
    ours = [each for each in found if each.get("run_id") == run_id]
    for each in ours:
        assert datetime.fromisoformat(each["time"]).tzinfo
        assert each["level"] in {"info", "warning", "error"}
        assert each["logger"]
        assert each["attempt"] == 1
    return ours
