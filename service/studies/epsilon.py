"""Which epsilon is shown for a study: never one below what its steps have cost."""

from service.db.tables import Study
from tan_core.accounting import SearchAccounting
from tan_core.spec.fields import searches_steps


def shown(study: Study, *, charged_steps: int | None) -> float:
    """Epsilon of the private run, and of its search where that is charged, as far as it is known.

    ==========================================  ==================================================
    The study                                   Epsilon
    ==========================================  ==================================================
    has a statement                             as stated: of every step that was charged
    ended without one                           of the steps that were charged; 0 where none was
    is under way                                as planned
    is under way, its ``steps`` are searched    the target, which bounds every candidate
    is under way, its search is charged         of all that is held, for the run and for the search
    is under way, more charged than planned     of the whole reservation
    ==========================================  ==================================================

    Args:
        study: the row.
        charged_steps: in the ledger; None on a public dataset.
    """
    if study.statement is not None:
        return study.statement["privacy"]["epsilon"]
    if study.charged_epsilon is not None:
        return study.charged_epsilon
    is_charged = SearchAccounting(study.search_accounting).is_charged
    more_than_planned = (charged_steps or 0) > study.plan["reference"]["steps"]
    if is_charged or searches_steps(study.spec["search"]["space"]) or more_than_planned:
        return reserved(study)
    return study.plan["privacy"]["epsilon"]


def reserved(study: Study) -> float:
    """Epsilon of whatever the ledger holds for the study, spare steps included."""
    planned = study.plan["privacy"]
    # Candidates at other steps meet the target with their spare steps, the plan may stay below it.
    is_target = searches_steps(study.spec["search"]["space"])
    return planned["target_epsilon"] if is_target else planned["epsilon_reserved"]
