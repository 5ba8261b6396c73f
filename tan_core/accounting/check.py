"""The second voice behind every price by PLD: our own loss distribution must confirm dp-accounting's."""

import math
from collections.abc import Sequence

from tan_core.accounting.events import sampled_gaussian
from tan_core.accounting.loss_distribution import LARGEST_LOSS, ROUND_OFF, loss_profile
from tan_core.accounting.pld import ROUND_OFF_PER_STEP, pld_excess
from tan_core.accounting.profile import PrivacyProfile
from tan_core.errors import AccountantError, TooHardError
from tan_core.mechanism import Mechanism

TOLERANCE = 1e-3
"""Two epsilons that differ by more than this fraction: one of them is wrong."""

_NEGLIGIBLE = 1e-4  # nats: a unit of the last digit that is ever shown


def check_agreement(mechanisms: Sequence[Mechanism], *, epsilon: float, delta: float) -> None:
    """Refuse an (epsilon, delta) that our own implementation does not confirm to 0.1 %.

    From below, always. From above it allows for what millions of steps are known to add (:func:`pld_excess`).

    Where it cannot price the mechanisms (a unit replaced in a sampled batch, truncated batches, less
    noise or more epsilon than its grid can take) there is no second voice, and nothing is refused.

    Raises:
        AccountantError: the two differ.
    """
    second = _second_voice(mechanisms, delta) if epsilon < LARGEST_LOSS else None
    if second is None:
        return
    # Both clip what Fourier space leaves below zero, and so end a little above the truth.
    round_off = max(ROUND_OFF, ROUND_OFF_PER_STEP * sum(m.steps for m in mechanisms))
    excess = pld_excess(mechanisms)
    spendable = delta * math.exp(-excess.mass) - round_off
    most = second.epsilon(spendable) * (1 + excess.relative) if spendable > 0 else math.inf
    least = second.epsilon(min(delta + round_off, 1 - 1e-16))
    slack = TOLERANCE * epsilon + _NEGLIGIBLE
    if not least - slack <= epsilon <= most + slack:
        raise AccountantError(
            f"two accountants differ at delta = {delta:g}: dp-accounting gives epsilon = {epsilon:.6g}, "
            f"our own loss distribution {second.epsilon(delta):.6g}; one of them is wrong"
        )


def _second_voice(mechanisms: Sequence[Mechanism], delta: float) -> PrivacyProfile | None:
    events = [event for m in mechanisms if (event := sampled_gaussian(m)) is not None]
    if len(events) < len(mechanisms):
        return None
    try:
        return loss_profile(events, delta=max(delta - ROUND_OFF, delta / 2))
    except TooHardError:  # unconfirmed for want of time is no confirmation
        raise
    except AccountantError:  # outside the domain of its grid
        return None
