"""The states of a study and the only moves between them. Pure: no database, no clock."""

from collections.abc import Mapping
from enum import StrEnum

from service.errors import ConflictError

AWAITS_PROMOTE = "waiting for tan-cli promote"
"""What the reason of a study that awaits approval begins with; a page with its own button says it in its own way."""


class StudyState(StrEnum):
    """Where a study stands."""

    QUEUED = "queued"
    SIMULATING = "simulating"
    AWAITING_APPROVAL = "awaiting_approval"
    TRAINING = "training"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing will happen to the study any more."""
        return not ALLOWED[self]


ALLOWED: Mapping[StudyState, frozenset[StudyState]] = {
    StudyState.QUEUED: frozenset(
        {
            StudyState.SIMULATING,
            StudyState.AWAITING_APPROVAL,  # without a search, or where its trials are private runs
            StudyState.TRAINING,  # without a search
            StudyState.FAILED,
            StudyState.CANCELLED,
        }
    ),
    StudyState.SIMULATING: frozenset(
        {
            StudyState.AWAITING_APPROVAL,
            StudyState.TRAINING,
            StudyState.FAILED,
            StudyState.CANCELLED,
        }
    ),
    StudyState.AWAITING_APPROVAL: frozenset(
        {
            StudyState.SIMULATING,  # where the search itself waited
            StudyState.TRAINING,
            StudyState.FAILED,
            StudyState.CANCELLED,
        }
    ),
    StudyState.TRAINING: frozenset({StudyState.COMPLETED, StudyState.FAILED, StudyState.CANCELLED}),
    StudyState.COMPLETED: frozenset(),
    StudyState.FAILED: frozenset(),
    StudyState.CANCELLED: frozenset(),
}

TERMINAL = frozenset(state for state, following in ALLOWED.items() if not following)


class IllegalTransitionError(ConflictError):
    """A study cannot go from its state to the proposed one."""


def move(current: StudyState, proposed: StudyState) -> StudyState:
    """The proposed state, if a study may go there from ``current``."""
    if proposed not in ALLOWED[current]:
        accepted = ", ".join(sorted(ALLOWED[current])) or "nothing: it is final"
        raise IllegalTransitionError(
            f"a study that is {current} cannot become {proposed}; accepted: {accepted}"
        )
    return proposed
