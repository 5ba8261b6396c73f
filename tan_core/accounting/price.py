"""What a composition of mechanisms costs, and by whose count."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata

from tan_core import _validate
from tan_core.accounting import pld, prv, rdp
from tan_core.accounting.check import check_agreement
from tan_core.accounting.effort import check_effort
from tan_core.accounting.events import shared_relation
from tan_core.accounting.profile import PrivacyProfile
from tan_core.accounting.rdp import Conversion
from tan_core.errors import AccountantError, NoFiniteError, ParameterError
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation

MIN_DELTA = 1e-10
"""Below it the round-off of long compositions shows in epsilon."""
MAX_EPSILON = 1e6

_LIBRARIES = {
    Accountant.PLD: "dp-accounting",
    Accountant.RDP: "dp-accounting",
    Accountant.PRV: "opacus",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """An (epsilon, delta) with everything that one must know to compute it again.

    Args:
        epsilon: nats. Not rounded: display it with :func:`round_up`.
        delta: the delta it holds with. Whichever of the two was not asked for is an upper bound.
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


@_validate.plainly
def price(
    mechanisms: Sequence[Mechanism],
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    accountant: Accountant = Accountant.PLD,
    conversion: Conversion = Conversion.IMPROVED,
) -> Price:
    r"""The (epsilon, delta) price of running all mechanisms on the same data.

    Formal guarantees:

    * ``epsilon`` (or ``delta``) is an upper bound for mechanisms that were fixed in advance; with
      ``Accountant.RDP`` also for ones chosen after seeing earlier outputs.
    * Non-decreasing in steps, to the accountant's own precision (0.03 % for PLD, 0.05 % where more than eight mechanisms
      are unlike).
    * By PLD: two implementations agree on it to 0.1 %, wherever both can price it.

    Args:
        mechanisms: at least one; they may differ in all but the neighbouring relation.
        delta: in [1e-10, 1): epsilon is computed.
        epsilon: >= 0, instead of ``delta``: delta is computed.
        accountant: who computes.
        conversion: for ``Accountant.RDP``: the improved one, or the classical one to compare with papers.

    Raises:
        ParameterError: no mechanism or something else, unlike neighbouring relations, not exactly one of ``delta`` and
            ``epsilon``, or one of them out of range.
        UnsupportedEventError: the accountant cannot price this sampling and neighbouring relation.
        AccountantError: the accountant failed, or ran out of time or memory, or two of them differ.

    Example:
        >>> run = Mechanism(
        ...     sampling_rate=4096 / 50_000, noise_multiplier=3.0, clip_norm=1.0, steps=2500
        ... )
        >>> round_up(price([run], delta=1e-5).epsilon, 2)
        6.59
        >>> f"{price([run], epsilon=6.58).delta:.1e}"
        '1.0e-05'
        >>> price([run], delta=1e-5, accountant=Accountant.RDP).conversion
        'rdp improved'
    """
    mechanisms = _validate.sequence(Mechanism, mechanisms=mechanisms)
    shared_relation(mechanisms)
    if (delta is None) == (epsilon is None):
        raise ParameterError("give exactly one of delta and epsilon", field="delta")
    if delta is not None:
        _validate.probability(open_ends=True, delta=delta)
        if delta < MIN_DELTA:
            raise ParameterError(f"delta must be >= {MIN_DELTA:g}, got {delta!r}", field="delta")
    if epsilon is not None:
        _validate.in_range(0, MAX_EPSILON, epsilon=epsilon)
    asked = _Asked(mechanisms, delta, epsilon, Accountant(accountant), Conversion(conversion))
    return _price(asked)


@_validate.plainly
def round_up(value: float, digits: int) -> float:
    """The value for display: at most ``digits`` decimals, never below the value itself.

    Args:
        value: a number; infinity stays as it is.
        digits: decimals; below 0: tens, hundreds and so on.

    Raises:
        ParameterError: ``value`` is no number, such as the None of a price that was not found, or
            ``digits`` no integer.

    Example:
        >>> round_up(6.57901, 3)
        6.58
    """
    _validate.number(value=value)
    _validate.integer(digits=digits)
    nearest = round(value, digits)
    return nearest if nearest >= value else round(nearest + 10.0**-digits, digits)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question, as a key of the cache."""

    mechanisms: tuple[Mechanism, ...]
    delta: float | None
    epsilon: float | None
    accountant: Accountant
    conversion: Conversion


@lru_cache(maxsize=4096)
def _price(asked: _Asked) -> Price:
    answer = _answer(asked)
    what = "epsilon" if asked.epsilon is None else "delta"
    if not math.isfinite(answer) or answer < 0:
        kind = NoFiniteError if answer == math.inf else AccountantError
        raise kind(f"{asked.accountant.value} found no finite {what}, got {answer!r}")
    epsilon = answer if asked.epsilon is None else asked.epsilon
    delta = answer if asked.delta is None else asked.delta
    if asked.accountant is Accountant.PLD and MIN_DELTA <= delta < 1:
        check_agreement(asked.mechanisms, epsilon=epsilon, delta=delta)
    library = _LIBRARIES[asked.accountant]
    return Price(
        epsilon=epsilon,
        delta=delta,
        accountant=asked.accountant,
        conversion=_conversion(asked),
        neighboring_relation=shared_relation(asked.mechanisms),
        library=library,
        library_version=metadata.version(library),
    )


def _answer(asked: _Asked) -> float:
    check_effort(asked.accountant.value)
    match asked.accountant:
        case Accountant.PLD:
            return _ask(pld.pld_profile(asked.mechanisms), asked)
        case Accountant.RDP:
            return _ask(rdp.SearchedRdpProfile(asked.mechanisms, asked.conversion), asked)
        case Accountant.PRV:
            # The width of its interval is set by about what is expected.
            by_pld = replace(asked, accountant=Accountant.PLD)
            return _ask(prv.PrvProfile(asked.mechanisms, rough=lambda: _price(by_pld)), asked)


def _ask(profile: PrivacyProfile, asked: _Asked) -> float:
    if asked.delta is not None:
        return profile.epsilon(asked.delta)
    return profile.delta(asked.epsilon or 0.0)


def _conversion(asked: _Asked) -> str:
    match asked.accountant:
        case Accountant.PLD:
            return pld.CONVERSION
        case Accountant.RDP:
            return f"rdp {asked.conversion.value}"
        case Accountant.PRV:
            return prv.CONVERSION
