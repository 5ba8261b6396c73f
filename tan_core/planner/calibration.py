"""The least noise with which a run keeps its target, the reserved slack included."""

from collections.abc import Callable
from dataclasses import replace

from tan_core.accounting import calibrate_noise_multiplier
from tan_core.accounting.calibrate import RELATIVE_TOLERANCE
from tan_core.accounting.trial_count import last_holding
from tan_core.errors import UnreachableTargetError
from tan_core.mechanism import Accountant, Mechanism
from tan_core.planner.segments import segment_rule
from tan_core.spec.train import MOST_NOISE

_OVERSHOOT = 1.005


def calibrated(
    mechanism: Mechanism, *, steps: int, epsilon: float, delta: float, accountant: Accountant
) -> Mechanism:
    """The mechanism at these steps, drawn as it is, with the least noise that meets the target.

    Formal guarantees:

    * The steps and their slack together cost at most ``epsilon`` at ``delta``, by ``accountant``.

    Raises:
        UnreachableTargetError: no noise meets the target.
        UnsupportedEventError: the accountant cannot price this sampling and neighbouring relation.
        AccountantError: the accountant failed.
    """
    noise_multiplier = calibrate_noise_multiplier(
        sampling_rate=mechanism.sampling_rate,
        steps=steps + segment_rule(steps).slack_steps,
        epsilon=epsilon,
        delta=delta,
        accountant=accountant,
        sampling=mechanism.sampling,
        neighboring_relation=mechanism.neighboring_relation,
        num_examples=mechanism.num_examples,
        max_batch_size=mechanism.max_batch_size,
    )
    return replace(mechanism, steps=steps, noise_multiplier=noise_multiplier)


def least_noise(
    cost: Callable[[float], float],
    *,
    epsilon: float,
    low: float,
    tolerance: float = RELATIVE_TOLERANCE,
) -> float:
    """The least noise multiplier at which a cost that falls with it meets a target.

    For what is composed of several mechanisms; :func:`calibrated` is many times as fast for one.

    Formal guarantees:

    * ``cost`` was seen to be at most ``epsilon`` at the result, which is within ``tolerance`` of the least.

    Args:
        cost: of a noise multiplier, in epsilon.
        epsilon: the target.
        low: a noise multiplier that is not enough.
        tolerance: relative.

    Raises:
        UnreachableTargetError: no noise multiplier up to 10,000 meets the target.
    """
    too_little, enough = low, low * _OVERSHOOT
    while (spent := cost(enough)) > epsilon:
        if enough >= MOST_NOISE:
            raise UnreachableTargetError(
                f"no noise multiplier up to {MOST_NOISE:g} keeps search and run within epsilon = {epsilon:g}",
                field="privacy.epsilon",
            )
        # Where there is enough noise epsilon falls about as noise rises, and faster below.
        too_little, enough = enough, min(enough * spent / epsilon * _OVERSHOOT, MOST_NOISE)
    return last_holding(
        lambda sigma: cost(sigma) <= epsilon,
        holds_at=enough,
        fails_at=too_little,
        tolerance=tolerance * too_little,
    )
