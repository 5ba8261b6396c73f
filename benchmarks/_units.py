"""Units of work that are done once: a benchmark of hours goes on where it was killed."""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

Result = dict[str, Any]


class Units:
    """Results by name, one JSON line each, on disk before the next unit begins.

    A line that was cut off by a kill is a unit that was not done.

    Args:
        path: of the file; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._done: dict[str, Result] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            with suppress(json.JSONDecodeError):
                unit = json.loads(line)
                self._done[unit["unit"]] = unit["result"]

    @property
    def folder(self) -> Path:
        """Where the file lies, and what else is kept may lie."""
        return self._path.parent

    def get(self, name: str) -> Result | None:
        """A result that is there already."""
        return self._done.get(name)

    def results(self) -> list[Result]:
        """All that is done, in the order it was."""
        return list(self._done.values())

    def once(self, name: str, work: Callable[[], Mapping[str, Any]]) -> Result:
        """The result of ``work``, from the file if it is there."""
        if name not in self._done:
            result = dict(work())
            # A line of its own, whatever a kill left before it.
            with self._path.open("a") as file:
                file.write("\n" + json.dumps({"unit": name, "result": result}) + "\n")
                file.flush()
                os.fsync(file.fileno())
            self._done[name] = result
            print(f"  {name}", flush=True)
        return self._done[name]
