r"""Whether a budget would hold a study, for whoever only plans it: what admission compares, and what would fit instead.

What would fit is an estimate. Near a central limit a composition is that of one Gaussian mechanism, whose :math:`\mu^2` are
added up; what the accountant says of the ledger with and without the study fixes how much of it the study takes. A filter adds up
divergences at one order, which grow as :math:`\mu^2` does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from service.ledger import admission, renyi
from service.ledger.admission import Limit, Request
from service.ledger.errors import BudgetExceededError
from service.ledger.schemas import BudgetFit, Head, LimitFit, Reservation, Scope
from tan_core.accounting.gaussian import gdp_epsilon, gdp_mu
from tan_core.errors import AccountantError
from tan_core.mechanism import Accountant, Mechanism

_DIGITS = 2
"""Of an estimate."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a study asks for, of a dataset: a target epsilon, or (None) steps at fixed noise."""

    dataset: str
    epsilon: float | None
    delta: float
    steps: int


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """What admission would compare, as it was read."""

    request: Request
    head: Head
    held: Sequence[Reservation]
    limits: Sequence[Limit]
    accountant: Accountant


def budget_fit(foreseen: Foreseen, wanted: Wanted) -> BudgetFit:
    """The verdict. Seconds of processor time where the ledger has many unlike mechanisms."""
    scope = foreseen.limits[0].scope
    known = BudgetFit(
        dataset=wanted.dataset,
        scope_id=scope.scope_id,
        delta=scope.delta,
        accountant=foreseen.accountant.value,
        entry=foreseen.head,
        fits=None,
    )
    try:
        standings = [_standing(foreseen, limit) for limit in foreseen.limits]
        asked = admission.epsilon(foreseen.request.asked, scope, foreseen.accountant)
    except AccountantError as error:
        return known.model_copy(update={"note": str(error)})
    refusal = _refusal(foreseen, standings, asked)
    found: dict[str, object] = {
        "study_epsilon": asked,
        "limits": standings,
        "fits": refusal is None,
    }
    if refusal is not None:
        found["refusal"] = str(refusal)
        found["missing_epsilon"] = refusal.composed - refusal.total
        found |= _instead(standings, wanted, scope)
    return known.model_copy(update=found)


def _standing(foreseen: Foreseen, limit: Limit) -> LimitFit:
    request, held = foreseen.request, foreseen.held

    def figure(mechanisms: Sequence[Mechanism | None]) -> float:
        return admission.epsilon(mechanisms, limit.scope, foreseen.accountant)

    composed = figure(list(limit.composed(request, held)))
    return LimitFit(
        tenant=None if limit.cap is None else limit.cap.tenant,
        epsilon=limit.total,
        committed_epsilon=figure(list(limit.committed(request, held))),
        composed_epsilon=composed,
        fits=limit.holds(composed),
    )


def _refusal(
    foreseen: Foreseen, standings: Sequence[LimitFit], asked: float
) -> BudgetExceededError | None:
    """As it would be told: by the first limit that does not hold it, else by the first whose wall does not."""
    both = list(zip(foreseen.limits, standings, strict=True))
    for limit, standing in both:
        if not standing.fits:
            return limit.refusal(
                asked=asked,
                committed=standing.committed_epsilon,
                composed=standing.composed_epsilon,
            )
    for limit, _ in both:
        request, held = foreseen.request, foreseen.held
        if limit.is_beyond_wall(request, held):
            return admission.beyond_wall(
                limit.scope, limit.cap, request.asked, limit.committed(request, held)
            )
    return None


def _instead(standings: Sequence[LimitFit], wanted: Wanted, scope: Scope) -> dict[str, object]:
    """About what would fit in the place of the study."""
    share = min(_share(each, scope) for each in standings)
    if not 0 < share < 1:
        return {}
    if wanted.epsilon is None:
        steps = _rounded_down(share * wanted.steps)
        return {"fitting_steps": int(steps)} if steps >= 1 else {}
    mu = gdp_mu(epsilon=wanted.epsilon, delta=wanted.delta) * math.sqrt(share)
    epsilon = _rounded_down(gdp_epsilon(mu=mu, delta=wanted.delta))
    return {"fitting_epsilon": epsilon} if epsilon > 0 else {}


def _share(standing: LimitFit, scope: Scope) -> float:
    """Of what the study takes of this limit, the part that there is room for; above 1 where it fits."""
    committed, composed, total = (
        _added_up(value, scope)
        for value in (standing.committed_epsilon, standing.composed_epsilon, standing.epsilon)
    )
    taken = composed - committed
    return (total - committed) / taken if taken > 0 else 0.0


def _added_up(epsilon: float, scope: Scope) -> float:
    """What an epsilon stands for, of the kind that composition adds up; below 0 where a filter admits nothing to it."""
    if epsilon <= 0:
        return 0.0
    if scope.filter_order is not None:
        return epsilon - renyi.least(scope.filter_order, scope.delta)
    return gdp_mu(epsilon=epsilon, delta=scope.delta) ** 2


def _rounded_down(value: float) -> float:
    if value <= 0:
        return 0.0
    digits = _DIGITS - 1 - math.floor(math.log10(value))
    return math.floor(value * 10.0**digits) / 10.0**digits
