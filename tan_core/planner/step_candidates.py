"""Other numbers of steps for the same batch and epsilon: at a fixed batch there is a best noise level."""

from fractions import Fraction

from tan_core.accounting.effort import spare_effort
from tan_core.errors import AccountantError, UnreachableTargetError
from tan_core.mechanism import Accountant, Mechanism
from tan_core.planner.calibration import calibrated
from tan_core.planner.cost import Workload
from tan_core.planner.plan import PlannedStepCandidate
from tan_core.planner.privacy import DIGITS, Promise, reserved_epsilon, shown_ratio
from tan_core.planner.shape import Shape
from tan_core.tan import eta_of, overcharge

_FACTORS = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
_MAX_STEPS = 250_000
"""More steps than that take an accountant seconds each."""

_MAX_EPSILON = 50.0
"""Above it a run is hardly private, and finding its like takes seconds each."""


def step_candidates(
    shape: Shape, promise: Promise, workload: Workload
) -> list[PlannedStepCandidate]:
    r"""The reference and its like at a quarter to four times the steps, fewest steps first.

    More steps at one epsilon need more noise in each: too few steps waste the budget behind the wall
    (:math:`\sigma` well below 2), too many drown each gradient. Which is best depends on the task, so
    these are points to try with ``train.steps`` or to search over with ``search.space.steps``. As at
    every constant amount of noise, the learning rate keeps its product with the steps.

    Formal guarantees:

    * The reference is among them, once, and unchanged.
    * Each other one, its slack included, costs at most the target, or what the reference reserves
      where no target was calibrated to; by the plan's accountant, PRV excepted: a process per answer
      is too slow for a hint, so PLD answers for it.

    A number of steps at which no noise meets the target is left out, and so is one above 250,000
    unless it is the reference's, and one that takes an accountant longer than hints may. Above a target
    of 50, where the run costs nothing, and where its search is charged beside it, the reference stands alone.

    Args:
        shape: the reference.
        promise: the target and its accountant.
        workload: for the cost.

    References:
        De, Berrada, Hayes, Smith and Balle (2022), "Unlocking high-accuracy differentially private
        image classification through scale", section 4.
    """
    mechanism = shape.run.mechanism
    target = reserved_epsilon(shape.run, promise)
    if shape.search is not None:
        target = 0.0  # what other steps leave for the search would have to be planned anew
    elif shape.is_calibrated and promise.target_epsilon is not None:
        target = promise.target_epsilon
    factors = _FACTORS if 0 < target <= _MAX_EPSILON else ()
    numbers = sorted({mechanism.steps, *(max(1, round(mechanism.steps * f)) for f in factors)})
    found = [
        mechanism if steps == mechanism.steps else _at_steps(mechanism, steps, target, promise)
        for steps in numbers
        if steps <= max(_MAX_STEPS, mechanism.steps)
    ]
    return [
        PlannedStepCandidate(
            steps=one.steps,
            noise_multiplier=one.noise_multiplier,
            signal_to_noise=round(eta_of(one), DIGITS),
            overcharge=_overcharge(one, promise.delta),
            learning_rate_factor=mechanism.steps / one.steps,
            private_run_examples=workload.private_run_examples(shape.batch, one.steps),
            reference=one is mechanism,
        )
        for one in found
        if one is not None
    ]


def _at_steps(
    mechanism: Mechanism, steps: int, target: float, promise: Promise
) -> Mechanism | None:
    is_prv = promise.accountant is Accountant.PRV
    try:
        with spare_effort():
            return calibrated(
                mechanism,
                steps=steps,
                epsilon=target,
                delta=promise.delta,
                accountant=Accountant.PLD if is_prv else promise.accountant,
            )
    except (AccountantError, UnreachableTargetError):
        return None


def _overcharge(mechanism: Mechanism, delta: float) -> float | None:
    try:
        return shown_ratio(overcharge(mechanism, delta=delta))
    except AccountantError:
        return None
