"""How reservations of a study are called: the run's by the study, those of a search that is charged beside it."""


def of_trials(study_id: str) -> str:
    """The one that holds the steps of all trials."""
    return f"{study_id}-trials"


def of_scores(study_id: str) -> str:
    """The one that holds the scores of all trials."""
    return f"{study_id}-scores"


def of_search(study_id: str) -> tuple[str, str]:
    """Both, in the order in which they are reserved and stated."""
    return of_trials(study_id), of_scores(study_id)
