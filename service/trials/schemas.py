"""What the API says about trials."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from tan_core.wire import TrialRecord, TrialState


class TrialView(TrialRecord):
    """A trial with its times."""

    attempt: int
    """The attempt of the search that reported it last."""
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None


class TrialPage(BaseModel):
    """Trials in the order that was asked for."""

    items: list[TrialView]
    next_cursor: str | None


class TrialOrder(StrEnum):
    """What trials are listed by; a minus puts the largest first.

    By value, the best first: those that reached the largest batch, then those of the next, those that a heat ended
    last; of each batch by their accuracy, then by their number. Accuracies at different batches do not compare. A trial without a value comes
    last, either way.
    """

    NUMBER = "number"
    NUMBER_BACKWARDS = "-number"
    VALUE = "value"
    BEST = "-value"


class TrialListing(BaseModel):
    """Which trials of a study, in which order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: list[TrialState] = Field(default=[], description="One of these")
    sort: TrialOrder = TrialOrder.NUMBER


class TrialQuery(TrialListing):
    """One page of a list of trials."""

    limit: int = Field(default=200, ge=1, le=1000)
    cursor: str | None = Field(
        default=None, max_length=1000, description="next_cursor of the page before this one"
    )

    def listing(self) -> TrialListing:
        """The list that this is a page of."""
        return TrialListing(**{name: getattr(self, name) for name in TrialListing.model_fields})
