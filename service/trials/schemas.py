"""What the API says about trials."""

from datetime import datetime

from pydantic import BaseModel

from tan_core.wire import TrialRecord


class TrialView(TrialRecord):
    """A trial with its times."""

    attempt: int
    """The attempt of the search that reported it last."""
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None


class TrialPage(BaseModel):
    """Trials in order of number."""

    items: list[TrialView]
    next_cursor: str | None
