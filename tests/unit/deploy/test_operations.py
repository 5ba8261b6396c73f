"""What the runbooks tell an operator to reckon with and to type."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from service.db.session import Database
from service.orchestrator.decide import PAUSED, PAUSING
from service.studies.lifecycle import StudyState
from service.studies.schemas import StudySummary

ROOT = Path(__file__).parents[3]
RUNBOOK = (ROOT / "deploy" / "README.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


def test_connections_are_counted_as_they_are_opened() -> None:
    pooled = inspect.signature(Database).parameters["pool_size"].default

    # An API listens on one more (service/hub.py), an orchestrator does not.
    assert f"{pooled + 1} x API processes + {pooled} x orchestrators" in OPERATIONS


def test_studies_that_may_run_are_paused_before_an_upgrade() -> None:
    (asked,) = set(re.findall(r"tan-cli list ((?:--state \w+ )+)", RUNBOOK))

    # Who waits for a person holds nothing that an upgrade could end.
    assert set(re.findall(r"--state (\w+)", asked)) == {
        state.value for state in StudyState if not state.is_terminal
    } - {"awaiting_approval"}


STUDIES = [
    {"id": "1", "name": "runs", "paused": False, "reason": None},
    {"id": "2", "name": "ends its segment", "paused": True, "reason": PAUSING},
    {"id": "3", "name": "rests", "paused": True, "reason": PAUSED},
]


@pytest.mark.parametrize(
    ("at", "printed"),
    [(0, "1\n"), (1, "runs ends its segment\n")],
    ids=["those to pause", "those to wait for"],
)
def test_of_open_studies_it_finds(at: int, printed: str) -> None:
    programs = re.findall(r"^ +python3 -c '(.+)'", RUNBOOK, re.MULTILINE)
    assert len(programs) == 2
    assert STUDIES[0].keys() <= StudySummary.model_fields.keys()

    done = subprocess.run(
        [sys.executable, "-c", programs[at]],
        input=json.dumps(STUDIES),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == printed
