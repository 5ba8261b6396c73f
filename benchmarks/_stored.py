"""Where the results are kept that ``docs/results.md`` is made of."""

import json
from pathlib import Path
from typing import Any

from _units import Units

Json = dict[str, Any]

FOLDER = Path(__file__).parent / "results"


def study_path(name: str, seed: int, *, folder: Path = FOLDER) -> Path:
    """The file of a finished study."""
    return folder / "published" / f"{name}-seed{seed}.json"


def write(path: Path, document: Json) -> None:
    """All of it or nothing, whatever kills the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    part.replace(path)


def studies(*, folder: Path = FOLDER) -> list[Json]:
    """Every finished study, by name and seed."""
    found = [json.loads(path.read_text()) for path in (folder / "published").glob("*.json")]
    return sorted(found, key=lambda each: (each["name"], each["seed"]))


def runs(experiment: str, *, folder: Path = FOLDER) -> Units:
    """The single runs of an experiment: what is there is not run again."""
    return Units(folder / f"{experiment}.jsonl")
