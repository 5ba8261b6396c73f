"""The least noise with which a run keeps its target, the reserved slack included."""

from dataclasses import replace

from tan_core.accounting import calibrate_noise_multiplier
from tan_core.mechanism import Accountant, Mechanism
from tan_core.planner.segments import segment_rule


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
