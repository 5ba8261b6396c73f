"""How reservations are called: the run's by its study, those of a search that is charged beside it, and outside releases."""

from collections.abc import Iterable

OUTSIDE = "outside-"
"""No study's id begins so."""


def of_trials(study_id: str) -> str:
    """The one that holds the steps of all trials."""
    return f"{study_id}-trials"


def of_scores(study_id: str) -> str:
    """The one that holds the scores of all trials."""
    return f"{study_id}-scores"


def of_search(study_id: str) -> tuple[str, str]:
    """Both, in the order in which they are reserved and stated."""
    return of_trials(study_id), of_scores(study_id)


def of_outside(unique: str) -> str:
    """The one of a release that is made outside of the service; it stands in the place of a study too."""
    return f"{OUTSIDE}{unique}"


def is_outside(reservation_id: str) -> bool:
    """Whether it is of a release that is made outside of the service, and of no study."""
    return reservation_id.startswith(OUTSIDE)


def parts(reserved: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What of a study each reservation is for, where its search is charged: no part's figures are the study's.

    Args:
        reserved: pairs of a study and a reservation.

    Example:
        >>> parts([("s-1", "s-1-trials"), ("s-1", "s-1"), ("s-2", "s-2")])
        {'s-1-trials': 'its trials', 's-1': 'its private run'}
    """
    found = list(reserved)
    charged = {study for study, reservation in found if reservation in of_search(study)}
    return {
        reservation: {of_trials(study): "its trials", of_scores(study): "their scores"}.get(
            reservation, "its private run"
        )
        for study, reservation in found
        if study in charged
    }
