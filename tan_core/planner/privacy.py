"""The privacy section of a plan: what is promised, by how many voices, and what to beware of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tan_core.accounting import price, round_up
from tan_core.accounting.effort import spare_effort
from tan_core.accounting.events import joined
from tan_core.errors import AccountantError, UnsupportedEventError
from tan_core.execution import PrivateRun
from tan_core.mechanism import Accountant, Mechanism
from tan_core.planner.cap import cap_caution
from tan_core.planner.charged import ChargedSearch
from tan_core.planner.plan import PlannedPrivacy
from tan_core.planner.segments import reserved_mechanism
from tan_core.planner.shape import ENOUGH_NOISE
from tan_core.tan import epsilon_tan, eta_of, overcharge

PRV_MAX_EPSILON = 50.0
"""Above it the third voice is not asked: it needs minutes and gigabytes, or fails."""

DIGITS = 4
"""Decimals of the figures in a plan. An epsilon is rounded up to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What the private run must keep.

    Args:
        delta: in (0, 1).
        accountant: who computes what is promised.
        target_epsilon: what was asked for; None where the mechanism was.
    """

    delta: float
    accountant: Accountant
    target_epsilon: float | None


def planned_privacy(
    run: PrivateRun, promise: Promise, search: ChargedSearch | None = None
) -> tuple[PlannedPrivacy, list[str]]:
    """The section, and the warnings that belong to it; ``search`` is what is charged beside the run.

    Raises:
        AccountantError: the accountant that promises failed.
    """
    mechanism, delta, accountant = run.mechanism, promise.delta, promise.accountant
    planned = joined([mechanism, *(search.planned(run) if search else ())])
    promised = price(planned, delta=delta, accountant=accountant).epsilon
    ratio = overcharge(mechanism, delta=delta)
    eta = eta_of(mechanism)
    # Of Gaussian noise squares add up: eta's of all that is composed.
    together = math.sqrt(sum(eta_of(each) ** 2 for each in planned))
    voices, silences = _voices(planned, delta, promised)
    privacy = PlannedPrivacy(
        epsilon=round_up(promised, DIGITS),
        delta=delta,
        accountant=accountant,
        neighboring_relation=mechanism.neighboring_relation,
        epsilon_by_accountant=voices,
        epsilon_tan=round(epsilon_tan(signal_to_noise=together, delta=delta), DIGITS),
        signal_to_noise=round(eta, DIGITS),
        overcharge=shown_ratio(ratio),
        epsilon_reserved=round_up(reserved_epsilon(run, promise, search), DIGITS),
        target_epsilon=promise.target_epsilon,
    )
    return privacy, [*_cautions(run, delta, ratio), *silences]


def reserved_epsilon(
    run: PrivateRun, promise: Promise, search: ChargedSearch | None = None
) -> float:
    """Of the planned steps and the slack, and of what is charged beside them; not rounded."""
    held = joined([reserved_mechanism(run.mechanism), *(search.reserved(run) if search else ())])
    return price(held, delta=promise.delta, accountant=promise.accountant).epsilon


def epsilon_alone(mechanism: Mechanism, promise: Promise) -> float | None:
    """Of one part of what a study composes, rounded up; None where it could not be priced in time."""
    try:
        with spare_effort():
            alone = price([mechanism], delta=promise.delta, accountant=promise.accountant)
    except AccountantError:
        return None
    return round_up(alone.epsilon, DIGITS)


def shown_ratio(ratio: float) -> float | None:
    """An overcharge for display; None where its limit is 0."""
    return round_up(ratio, DIGITS) if math.isfinite(ratio) else None


def _voices(
    planned: Sequence[Mechanism], delta: float, promised: float
) -> tuple[dict[Accountant, float | None], list[str]]:
    """Epsilon by every accountant, and why those without an answer have none."""
    voices: dict[Accountant, float | None] = {}
    silences: list[str] = []
    for accountant in Accountant:
        voices[accountant] = None
        if accountant is Accountant.PRV and len(planned) > 1:
            continue  # it takes many seconds over what a charged search composes
        if accountant is Accountant.PRV and promised > PRV_MAX_EPSILON:
            silences.append(f"prv was not asked: epsilon is above {PRV_MAX_EPSILON:g}")
            continue
        try:
            with spare_effort():
                answer = price(planned, delta=delta, accountant=accountant)
            voices[accountant] = round_up(answer.epsilon, DIGITS)
        except (AccountantError, UnsupportedEventError) as error:
            silences.append(str(error))
    return voices, silences


def _cautions(run: PrivateRun, delta: float, ratio: float) -> list[str]:
    """What a reader of the plan should not overlook."""
    cautions = cap_caution(run.mechanism, delta=delta)
    sigma = run.mechanism.noise_multiplier
    if sigma < ENOUGH_NOISE:
        cautions.append(
            f"overcharged: at noise multiplier {sigma:.3g} < {ENOUGH_NOISE:g} epsilon is "
            f"{ratio:.3g} times what this total noise costs at a larger batch"
        )
    return [*cautions, *delta_caution(delta, run.num_examples)]


def delta_caution(delta: float, num_examples: int) -> list[str]:
    """That a delta promises too little of so many examples, where it does.

    Example:
        >>> delta_caution(1e-2, 1440)
        ['delta = 0.01 is not below 1/num_examples = 0.00069: releasing one record whole would satisfy it']
        >>> delta_caution(1e-5, 1440)
        []
    """
    if delta < 1 / num_examples:
        return []
    return [
        f"delta = {delta:g} is not below 1/num_examples = {1 / num_examples:.2g}: releasing one record whole would "
        "satisfy it"
    ]
