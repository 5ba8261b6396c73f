"""What a composition of mechanisms costs, and by whose count."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata

from tan_core import _validate
from tan_core.accounting import pld, prv, rdp
from tan_core.errors import AccountantError, ParameterError, UnsupportedEventError
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation

MIN_DELTA = 1e-12
"""Below it the round-off of a composed distribution is as large as delta itself."""

_CONVERSIONS = {
    Accountant.PLD: (pld.CONVERSION, "dp-accounting"),
    Accountant.RDP: (rdp.CONVERSION, "dp-accounting"),
    Accountant.PRV: (prv.CONVERSION, "opacus"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """An epsilon with everything that one must know to compute it again.

    Args:
        epsilon: an upper bound, nats. Not rounded: display it with :func:`round_up`.
        delta: the delta it holds at.
        accountant: who computed it.
        conversion: how the accountant's own quantity became (epsilon, delta).
        neighboring_relation: which datasets it tells apart.
        library: the implementation.
        library_version: its version.
    """

    epsilon: float
    delta: float
    accountant: Accountant
    conversion: str
    neighboring_relation: NeighboringRelation
    library: str
    library_version: str


def price(
    mechanisms: Sequence[Mechanism],
    *,
    delta: float,
    accountant: Accountant = Accountant.PLD,
) -> Price:
    r"""The (epsilon, delta) price of running all mechanisms on the same data.

    Formal guarantees:

    * ``epsilon`` is an upper bound for mechanisms that were fixed in advance; with
      ``Accountant.RDP`` also for ones chosen after seeing earlier outputs.
    * Non-decreasing in steps, to the accountant's own precision (0.03 % for PLD).

    Args:
        mechanisms: at least one; they may differ in all but the neighbouring relation.
        delta: in [1e-12, 1).
        accountant: who computes.

    Raises:
        ParameterError: no mechanism, unlike neighbouring relations, or delta out of range.
        UnsupportedEventError: the accountant cannot price this neighbouring relation.
        AccountantError: the accountant failed, or ran out of time or memory.

    Example:
        >>> run = Mechanism(
        ...     sampling_rate=4096 / 50_000, noise_multiplier=3.0, clip_norm=1.0, steps=2500
        ... )
        >>> round_up(price([run], delta=1e-5).epsilon, 2)
        6.59
    """
    _validate.probability(open_ends=True, delta=delta)
    if delta < MIN_DELTA:
        raise ParameterError(f"delta must be >= {MIN_DELTA:g}, got {delta!r}", field="delta")
    if not mechanisms:
        raise ParameterError("expected at least one mechanism, got none", field="mechanisms")
    return _price(tuple(mechanisms), delta, Accountant(accountant))


def round_up(value: float, digits: int) -> float:
    """The value for display: at most ``digits`` decimals, never below the value itself.

    Example:
        >>> round_up(6.57901, 3)
        6.58
    """
    nearest = round(value, digits)
    return nearest if nearest >= value else round(nearest + 10.0**-digits, digits)


@lru_cache(maxsize=4096)
def _price(mechanisms: tuple[Mechanism, ...], delta: float, accountant: Accountant) -> Price:
    relation = _shared_relation(mechanisms)
    if accountant is not Accountant.PLD and relation is not NeighboringRelation.ADD_OR_REMOVE_ONE:
        raise UnsupportedEventError(
            f"accountant {accountant.value} cannot price neighboring_relation {relation.value}; "
            f"accepted: {NeighboringRelation.ADD_OR_REMOVE_ONE.value}, or accountant pld"
        )
    epsilon = _epsilon(mechanisms, delta, accountant)
    if not math.isfinite(epsilon) or epsilon < 0:
        raise AccountantError(
            f"{accountant.value} found no finite epsilon at delta={delta:g}, got {epsilon!r}"
        )
    conversion, library = _CONVERSIONS[accountant]
    return Price(
        epsilon=epsilon,
        delta=delta,
        accountant=accountant,
        conversion=conversion,
        neighboring_relation=relation,
        library=library,
        library_version=metadata.version(library),
    )


def _epsilon(mechanisms: tuple[Mechanism, ...], delta: float, accountant: Accountant) -> float:
    if accountant is Accountant.RDP:
        return rdp.rdp_epsilon(mechanisms, delta)
    epsilon = (
        pld.pld_epsilon(mechanisms, delta)
        if accountant is Accountant.PLD
        else _price(mechanisms, delta, Accountant.PLD).epsilon
    )
    if accountant is Accountant.PRV:
        return prv.prv_epsilon(mechanisms, delta, rough_epsilon=epsilon)
    return epsilon


def _shared_relation(mechanisms: tuple[Mechanism, ...]) -> NeighboringRelation:
    relations = {mechanism.neighboring_relation for mechanism in mechanisms}
    if len(relations) > 1:
        names = ", ".join(sorted(relations))
        raise ParameterError(
            f"mechanisms of unlike neighboring_relation do not compose: {names}",
            field="neighboring_relation",
        )
    return relations.pop()
