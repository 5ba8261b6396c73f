"""What the API says about attempts."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

RunKind = Literal["search", "private"]


class AttemptView(BaseModel):
    """One driver of a study: when it ran, and how it ended."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "run": "private",
                    "attempt": 1,
                    "state": "lost",
                    "reason": "the driver ended with exit code 137 without a final report (failed)",
                    "paused": False,
                    "ranks": 2,
                    "exit_code": 137,
                    "last_lines": "Killed",
                    "created_at": "2026-11-21T12:00:00Z",
                    "submitted_at": "2026-11-21T12:00:01Z",
                    "heartbeat_at": "2026-11-21T12:03:10Z",
                    "finished_at": "2026-11-21T12:03:45Z",
                }
            ]
        }
    )

    run: RunKind
    attempt: int
    """From 1, in each run."""
    state: Literal["live", "succeeded", "failed", "cancelled", "lost"]
    reason: str | None
    paused: bool
    """Whether it was told to end, for a pause or because its search was ended early: then its end is no failure."""
    ranks: int | None
    """Of a private run, as many as the cluster had room for; null before the driver has said so, and of a search."""
    exit_code: int | None
    """Of its driver, as the cluster saw it end."""
    last_lines: str | None
    """The end of its log, once it has ended."""
    created_at: datetime
    submitted_at: datetime | None
    heartbeat_at: datetime | None
    finished_at: datetime | None


class AttemptList(BaseModel):
    """The attempts of a study, the oldest first."""

    items: list[AttemptView]
