"""What the search of one plan would cost in each way in which it may touch private data."""

from tan_core.accounting import SearchAccounting
from tan_core.planner.finals import most_simulations
from tan_core.planner.plan import Plan, PlannedSearchPrivacy
from tan_core.planner.privacy import Promise
from tan_core.planner.reservations import runs_to_choose
from tan_core.planner.search_privacy import search_privacy
from tan_core.spec import StudySpec

_PLANNED_ANEW = "a study in this mode is planned anew: noise, batch and trials such that all of it keeps the target"


def search_privacy_by_mode(
    spec: StudySpec, plan: Plan, *, search_num_examples: int
) -> list[PlannedSearchPrivacy]:
    """The plan's ``search_privacy`` as it would be under every ``search.accounting`` that fits it.

    A study without a search has one; one with a search has all the others. What stands at ``accounted`` where the
    plan is another mode's is this very search charged: a study in that mode is planned anew, to keep its target.

    Args:
        spec: the study.
        plan: its plan.
        search_num_examples: examples that the simulations read.

    Raises:
        AccountantError: the accountant failed on the run alone.
    """
    promise = Promise(
        delta=spec.privacy.delta,
        accountant=spec.privacy.accountant,
        target_epsilon=spec.privacy.epsilon,
    )
    runs = runs_to_choose(spec, plan.private_run())
    confirmation = plan.confirmation_batch
    simulations = most_simulations(spec.search.trials, plan.rungs, confirmation)
    own = plan.search_privacy

    def answered(mode: SearchAccounting) -> PlannedSearchPrivacy:
        if own is not None and mode is own.mode and mode.is_charged:
            return own
        found = search_privacy(runs, promise, simulations, search_num_examples, mode=mode)
        if mode.is_charged:
            found = found.model_copy(update={"note": f"{found.note}; {_PLANNED_ANEW}"})
        return found

    return [
        answered(mode)
        for mode in SearchAccounting
        if (mode is SearchAccounting.NO_SEARCH) is not spec.has_search
    ]
