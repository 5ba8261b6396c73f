"""The table in docs/orchestration.md is the one that runs: every row, and nothing beside it."""

from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from service.orchestrator.decide import Action, AttemptView, Heard, decide
from service.orchestrator.launcher import JobInfo, JobStatus

DOCUMENT = Path(__file__).parents[4] / "docs/orchestration.md"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TIMEOUT = timedelta(seconds=30)
MAX_ATTEMPTS = 3
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)

LIVE: dict[str, dict[str, Any]] = {
    "live": {},
    "live, not submitted": {"submitted_at": None, "heartbeat_at": None},
    "live, silent": {"heartbeat_at": NOW - TIMEOUT - SECOND},
    "live, told to pause": {"pause_requested_at": NOW - SECOND},
    "live, told to pause 31 min ago": {"pause_requested_at": NOW - timedelta(minutes=31)},
    "live, told to pause, not submitted": {
        "submitted_at": None,
        "heartbeat_at": None,
        "pause_requested_at": NOW - SECOND,
    },
    "live, told to stop": {"stop_requested_at": NOW - SECOND},
    "live, told to stop 91 s ago": {"stop_requested_at": NOW - timedelta(seconds=91)},
}
ENDED: dict[str, dict[str, Any]] = {
    "ended a moment ago": {"state": "lost", "finished_at": NOW - SECOND},
    "ended a moment ago, for the third time or more": {
        "state": "lost",
        "finished_at": NOW - SECOND,
    },
    "ended early": {"state": "lost"},
    "ended for good": {"state": "failed", "retryable": False},
    "ended once too often": {"state": "failed"},
}
OTHER: dict[str, dict[str, Any] | None] = {"none yet": None, "succeeded": {"state": "succeeded"}}
CLUSTER = {
    "-": None,
    "no such job": None,
    "runs": JobInfo(JobStatus.RUNNING, None, None),
    "ended": JobInfo(JobStatus.FAILED, 137, None),
    "does not answer": JobInfo(JobStatus.UNKNOWN, None, None),
}
WANTED: dict[str, dict[str, bool]] = {
    "run": {},
    "pause": {"is_paused": True},
    "finish": {"is_enough": True},
    "end": {"is_to_end": True},
}


class Row(NamedTuple):
    attempt: str
    cluster: str
    wanted: str
    action: str
    why: str

    def fits(self, attempt: str, cluster: str, wanted: str) -> bool:
        group = {"any live": LIVE, "any ended": ENDED}.get(self.attempt, (self.attempt,))
        is_same = self.attempt == "live, told to pause" and attempt.startswith(self.attempt)
        return (
            (attempt in group or is_same)
            and cluster == self.cluster
            and (self.wanted == "any" or wanted in self.wanted.split(", "))
        )


def table() -> list[Row]:
    runs = DOCUMENT.read_text(encoding="utf-8").partition("## Runs")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in runs.splitlines() if line.startswith("|")]
    return [Row(*(cell.strip() for cell in row)) for row in rows[2:]]


def combinations() -> list[tuple[str, str, str]]:
    live = product(LIVE, ["no such job", "runs", "ended"], WANTED)
    unanswered = product(LIVE, ["does not answer"], ["end"])
    return [*live, *unanswered, *product([*ENDED, *OTHER], ["-"], WANTED)]


def taken(attempt: str, cluster: str, wanted: str) -> Action:
    changes = {**LIVE, **ENDED, **OTHER}[attempt]
    values: dict[str, Any] = {
        "number": 1,
        "state": "live",
        "created_at": NOW - 9 * SECOND,
        "submitted_at": NOW - 8 * SECOND,
        "heartbeat_at": NOW - SECOND,
        "stop_requested_at": None,
    }
    asked = {"is_to_end": False, "is_paused": False, "is_enough": False, **WANTED[wanted]}
    return decide(
        last=None if changes is None else AttemptView(**{**values, **changes}),
        job=CLUSTER[cluster],
        **asked,
        max_attempts=MAX_ATTEMPTS,
        tries=3 if "third time" in attempt else 1,
        in_vain=MAX_ATTEMPTS if attempt == "ended once too often" else 0,
        now=NOW,
        heard=Heard(looking_since=NOW - DAY, listening_since=NOW - DAY),
        heartbeat_timeout=TIMEOUT,
    ).action


@pytest.mark.parametrize("scene", combinations(), ids=" / ".join)
def test_what_is_done_is_what_the_table_says(scene: tuple[str, str, str]) -> None:
    row = next(row for row in table() if row.fits(*scene))

    assert taken(*scene).name == row.action


def test_every_row_is_the_first_for_something() -> None:
    rows = table()
    used = {next(row for row in rows if row.fits(*scene)) for scene in combinations()}

    assert [row for row in rows if row not in used] == []


def test_every_action_is_in_the_table() -> None:
    assert {row.action for row in table()} == {action.name for action in Action}
