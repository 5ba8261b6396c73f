"""``train.max_batch_size``, the cap of truncated Poisson batches: what it needs, and where it is free."""

import math
from dataclasses import replace

from tan_core.accounting import price
from tan_core.errors import ParameterError
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation, Sampling

FREE_DEVIATIONS = 6
"""So many standard deviations above the expected batch, a cap adds less than 0.1 % to epsilon."""

_FIELD = "train.max_batch_size"
_WORTH_A_WORD = 1.001


def free_cap(batch: float, num_examples: int) -> int:
    """The smallest cap that costs nothing, or the whole data.

    Example:
        >>> free_cap(4096, num_examples=50_000)
        4464
    """
    deviation = math.sqrt(batch * (1 - batch / num_examples))
    return min(math.ceil(batch + FREE_DEVIATIONS * deviation), num_examples)


def with_cap(mechanism: Mechanism, cap: int | None, num_examples: int) -> Mechanism:
    """The Poisson mechanism with its batches cut at the cap, where there is one."""
    if cap is None:
        return mechanism
    return replace(
        mechanism,
        sampling=Sampling.TRUNCATED_POISSON,
        num_examples=num_examples,
        max_batch_size=cap,
    )


def check_cap(cap: int | None, relation: NeighboringRelation, accountant: Accountant) -> None:
    """Refuse a cap that nobody can price.

    Raises:
        ParameterError: the number of units is not public, or the accountant knows no such batches.
    """
    if cap is None:
        return
    if relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        raise ParameterError(
            f"{_FIELD} has no price under neighboring relation {relation.value}, where one unit "
            "more moves others out of a full batch; leave it out, or register the dataset with "
            f"neighboring_relation zero_out or replace_one; got {cap}",
            field=_FIELD,
        )
    if accountant is not Accountant.PLD:
        raise ParameterError(
            f"accountant {accountant.value} cannot price batches with a cap ({_FIELD} = {cap}); "
            "accepted: pld",
            field="privacy.accountant",
        )


def refuse_batch_above_cap(batch: float, cap: int | None) -> None:
    """Refuse an expected batch that the cap would cut more often than not."""
    if cap is not None and batch > cap:
        raise ParameterError(
            f"{_FIELD} must be at least train.batch_size = {batch:g}, got {cap}", field=_FIELD
        )


def cap_caution(mechanism: Mechanism, *, delta: float) -> list[str]:
    """What a cap costs, and from where on it would not; nothing where it is free."""
    if mechanism.num_examples is None or mechanism.max_batch_size is None:
        return []
    whole = replace(mechanism, sampling=Sampling.POISSON, num_examples=None, max_batch_size=None)
    capped, of_whole = (price([each], delta=delta).epsilon for each in (mechanism, whole))
    if capped <= _WORTH_A_WORD * of_whole:
        return []
    told = f"{capped / of_whole:.3g} times that" if of_whole > 0 else f"{capped:.3g}, where it is 0"
    enough = free_cap(mechanism.sampling_rate * mechanism.num_examples, mechanism.num_examples)
    return [
        f"{_FIELD} = {mechanism.max_batch_size} cuts batches so often that epsilon is {told} "
        f"of whole batches; from {enough} on it costs nothing"
    ]
