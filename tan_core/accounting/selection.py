r"""The price of releasing the best of a random number of private trials.

One trial is a mechanism :math:`Q`: draw a candidate from a fixed law, train it privately, score it.
The selection :math:`A` draws a secret number of trials :math:`K`, runs :math:`Q` that often, and
releases the trial of the highest score, ties broken without the data. Why the profile bounds hold:
write :math:`\varphi(z) = E[z^K]`, :math:`m = \varphi'(1) = E[K]`, and :math:`F(y)` for the probability
that a trial ranks no higher than :math:`y`. Then :math:`A` has the density
:math:`Q(y)\,\varphi'(F(y))`. If :math:`\varphi'(F) \le e^c \varphi'(F')` for neighbouring datasets,

.. math::

    A(S) - e^\varepsilon A'(S) \le \int_S \varphi'(F)\,(Q - e^{\varepsilon - c} Q')
        \le m\,\delta_Q(\varepsilon - c),

for :math:`\varphi'` rises to :math:`m`: so :math:`\varepsilon = c + \varepsilon_Q(\delta/m)`. For :math:`c`:

* Poisson: :math:`\varphi'(z) = m e^{m(z-1)}` and :math:`F - F' \le \delta_Q(0)`, so
  :math:`c = m\,\delta_Q(0)`. (A term :math:`m(e^{\varepsilon_1} - 1) + m\,\delta_Q(\varepsilon_1)` is
  never smaller: hockey sticks fall no faster than :math:`e^{\varepsilon_1}` rises.)
* Negative binomial of shape :math:`h \ge 0`, logarithmic included:
  :math:`\varphi'(z) \propto (1 - (1-\gamma)z)^{-(h+1)}`. With :math:`G = 1 - F`, the ratio is the power
  :math:`h + 1` of :math:`(\gamma + (1-\gamma)G') / (\gamma + (1-\gamma)G)`, where
  :math:`G' \le e^{\varepsilon_1} G + \delta_Q(\varepsilon_1)` for every :math:`\varepsilon_1 \ge 0`.

  - ``profile``: :math:`\gamma \le e^{\varepsilon_1}\gamma` and :math:`\gamma + (1-\gamma) G \ge \gamma`
    make it at most :math:`e^{\varepsilon_1} + \frac{1-\gamma}{\gamma}\delta_Q(\varepsilon_1)`.
  - ``sharp_profile``: it is at most :math:`e^{\varepsilon_1}` itself as soon as
    :math:`(1-\gamma)\,\delta_Q(\varepsilon_1) \le \gamma\,(e^{\varepsilon_1} - 1)`. No smaller
    constant bounds the ratio for every order of the scores.

References:
    Papernot and Steinke (2022), `Hyperparameter tuning with Rényi differential privacy
    <https://arxiv.org/abs/2110.03620>`_, theorems 2 and 6; Koskela, Redberg and Wang (2024),
    `Privacy profiles for private selection <https://arxiv.org/abs/2402.06701>`_.
"""

import math
from collections.abc import Sequence
from importlib import metadata

import numpy as np
import scipy

from tan_core import _validate
from tan_core.accounting.calibrate import RELATIVE_TOLERANCE, calibrate_noise_multiplier
from tan_core.accounting.check import check_agreement
from tan_core.accounting.events import shared_relation
from tan_core.accounting.pld import pld_profile
from tan_core.accounting.price import MIN_DELTA, Price, price
from tan_core.accounting.profile import PrivacyProfile
from tan_core.accounting.rdp import RdpProfile, rdp_profile
from tan_core.accounting.trial_count import (
    NegativeBinomialTrials,
    PoissonTrials,
    TrialCount,
    last_holding,
)
from tan_core.choice import Choice
from tan_core.errors import AccountantError, ParameterError, UnreachableTargetError
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation

_MOST_NOISE = 10_000.0
_STRIDE = 1.25
_EXPONENT_TOLERANCE = 1e-9


class SelectionBound(Choice):
    """Which proof turns the privacy of one trial into that of the selection."""

    RDP = "rdp"
    """Papernot and Steinke (2022), on Rényi divergences."""
    PROFILE = "profile"
    """Koskela, Redberg and Wang (2024), on privacy profiles: tighter."""
    SHARP_PROFILE = "sharp_profile"
    """The same argument without its last relaxation: never above ``profile``. Proven in this module."""


@_validate.plainly
def price_selection(
    mechanisms: Sequence[Mechanism],
    trial_count: TrialCount,
    *,
    delta: float,
    bound: SelectionBound = SelectionBound.PROFILE,
    followed_by: Sequence[Mechanism] = (),
) -> Price:
    r"""The price of releasing only the best of a random number of trials.

    Formal guarantees:

    * An upper bound if, and only if, the conditions of
      :class:`~tan_core.accounting.conditions.SelectionConditions` hold.
    * Never below the price of one trial; non-decreasing in ``trial_count.mean``.

    Args:
        mechanisms: all that one trial does to the private data, in training and in scoring. Where
            candidates differ in their mechanism, one that dominates each of them at every epsilon.
        trial_count: the law that the number of trials is really drawn from.
        delta: in (0, 1); the profile bounds need delta over the mean number of trials >= 1e-10.
        bound: which proof; ``rdp`` uses the RDP accountant, the others the PLD accountant.
        followed_by: what runs on the same data after the selection, such as the final run of the
            winner. Composed by adding Rényi divergences, or by halves of delta with the profile bounds.

    Raises:
        ParameterError: no mechanism, unlike neighbouring relations, a number in place of a law, or a
            delta out of range.
        UnsupportedEventError: the bound's accountant cannot price a mechanism.
        AccountantError: the accountant failed, or a second one differs from it.

    References:
        See the module's docstring.

    Example:
        >>> trial = Mechanism(
        ...     sampling_rate=4096 / 50_000, noise_multiplier=10.0, clip_norm=1.0, steps=875
        ... )
        >>> law = NegativeBinomialTrials(mean=10.0, shape=0.0)
        >>> for bound in SelectionBound:
        ...     print(f"{bound}: {price_selection([trial], law, delta=1e-5, bound=bound).epsilon:.2f}")
        rdp: 1.74
        profile: 1.57
        sharp_profile: 1.37
    """
    bound = SelectionBound(bound)
    _validate.probability(open_ends=True, delta=delta)
    mechanisms = _validate.sequence(Mechanism, mechanisms=mechanisms)
    followed_by = _validate.sequence(Mechanism, followed_by=followed_by)
    relation = shared_relation([*mechanisms, *followed_by])
    if not mechanisms:
        raise ParameterError("expected at least one mechanism, got none", field="mechanisms")
    _refuse_a_number(trial_count)
    if bound is SelectionBound.RDP:
        epsilon = _rdp_epsilon(mechanisms, trial_count, delta, followed_by)
    else:
        epsilon = _profile_epsilon(mechanisms, trial_count, delta, bound, followed_by)
    if not math.isfinite(epsilon):
        raise AccountantError(f"bound {bound.value} found no finite epsilon at delta={delta:g}")
    return Price(
        epsilon=epsilon,
        delta=delta,
        accountant=Accountant.RDP if bound is SelectionBound.RDP else Accountant.PLD,
        conversion=f"private selection by {bound.value}; number of trials {trial_count}",
        neighboring_relation=relation,
        library="dp-accounting",
        library_version=metadata.version("dp-accounting"),
    )


def selected_epsilon(
    profile: PrivacyProfile,
    trial_count: TrialCount,
    *,
    delta: float,
    bound: SelectionBound = SelectionBound.PROFILE,
) -> float:
    r"""Epsilon of the selection from the privacy profile of one trial: :math:`c + \varepsilon_Q(\delta/m)`.

    Args:
        profile: upper bounds on delta at each epsilon, over both orders of the two datasets.
        trial_count: the law of the number of trials.
        delta: of the selection.
        bound: one of the two profile bounds.

    Raises:
        ParameterError: ``delta`` over the mean number of trials is below 1e-10, or ``bound`` is ``rdp``.
    """
    if SelectionBound(bound) is SelectionBound.RDP:
        raise ParameterError("bound rdp reads no privacy profile", field="bound")
    share = delta / trial_count.mean
    if share < MIN_DELTA:
        raise ParameterError(
            f"delta must be >= {MIN_DELTA:g} times the mean number of trials, {trial_count.mean:g}, "
            f"got {delta!r}",
            field="delta",
        )
    return profile.epsilon(share) + _log_slope_ratio(profile, trial_count, bound)


def selected_rdp(profile: RdpProfile, trial_count: TrialCount) -> RdpProfile:
    """The Rényi divergences of the selection from those of one trial; a divergence rises with its order."""
    a, rdp = profile.orders, profile.divergences
    match trial_count:
        case NegativeBinomialTrials(shape=shape, log_inverse_halting=length):
            extra = (1 + shape) * np.min((1 - 1 / a) * rdp + length / a)
        case PoissonTrials(mean=mean):
            extra = mean * np.array([profile.delta(math.log1p(1 / (order - 1))) for order in a])
    selected = rdp + extra + math.log(trial_count.mean) / (a - 1)
    lowest_from_here = np.minimum.accumulate(selected[::-1])[::-1]
    return RdpProfile(a, lowest_from_here, profile.conversion)


@_validate.plainly
def calibrate_selection(
    *,
    epsilon: float,
    delta: float,
    sampling_rate: float,
    steps: int,
    trial_count: TrialCount,
    bound: SelectionBound = SelectionBound.PROFILE,
    neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> float:
    """The least noise multiplier of a trial at which the whole selection meets the target.

    Formal guarantees:

    * ``price_selection`` at the result is at most ``epsilon``.
    * The result is within a thousandth of the least noise multiplier that meets the target.

    Args:
        epsilon: the target of the selection, > 0.
        delta: in (0, 1).
        sampling_rate: of a trial, in (0, 1].
        steps: of a trial, >= 1.
        trial_count: the law of the number of trials.
        bound: which proof.
        neighboring_relation: which datasets are neighbours.

    Raises:
        UnreachableTargetError: no noise multiplier up to 10,000 meets the target.

    Example:
        >>> sigma = calibrate_selection(
        ...     epsilon=8.0, delta=1e-5, sampling_rate=4096 / 50_000, steps=2500,
        ...     trial_count=NegativeBinomialTrials(mean=10.0, shape=0.0),
        ... )
        >>> f"{sigma:.2f}"
        '3.58'
    """
    bound = SelectionBound(bound)

    def fits(noise_multiplier: float) -> bool:
        trial = Mechanism(
            sampling_rate=sampling_rate,
            noise_multiplier=noise_multiplier,
            clip_norm=1.0,
            steps=steps,
            neighboring_relation=neighboring_relation,
        )
        return price_selection([trial], trial_count, delta=delta, bound=bound).epsilon <= epsilon

    too_little = calibrate_noise_multiplier(  # a single trial already spends all of it
        sampling_rate=sampling_rate,
        steps=steps,
        epsilon=epsilon,
        delta=delta,
        accountant=Accountant.RDP if bound is SelectionBound.RDP else Accountant.PLD,
        neighboring_relation=neighboring_relation,
    ) * (1 - RELATIVE_TOLERANCE)
    enough = too_little * _STRIDE
    while not fits(enough):
        if enough >= _MOST_NOISE:
            raise UnreachableTargetError(
                f"no noise multiplier up to {_MOST_NOISE:g} gives the selection epsilon = {epsilon:g}",
                field="privacy.epsilon",
            )
        too_little, enough = enough, enough * _STRIDE
    tolerance = RELATIVE_TOLERANCE * too_little
    return last_holding(fits, holds_at=enough, fails_at=too_little, tolerance=tolerance)


def _rdp_epsilon(
    trial: Sequence[Mechanism],
    trial_count: TrialCount,
    delta: float,
    followed_by: Sequence[Mechanism],
) -> float:
    selected = selected_rdp(rdp_profile(trial), trial_count)
    if not followed_by:
        return selected.epsilon(delta)
    then = rdp_profile(followed_by)
    orders, here, there = np.intersect1d(selected.orders, then.orders, return_indices=True)
    total = selected.divergences[here] + then.divergences[there]
    return RdpProfile(orders, total, selected.conversion).epsilon(delta)


def _profile_epsilon(
    trial: Sequence[Mechanism],
    trial_count: TrialCount,
    delta: float,
    bound: SelectionBound,
    followed_by: Sequence[Mechanism],
) -> float:
    share = delta / 2 if followed_by else delta
    profile = pld_profile(trial)
    selected = selected_epsilon(profile, trial_count, delta=share, bound=bound)
    of_one = share / trial_count.mean  # what the bound asks the profile at
    check_agreement(trial, epsilon=profile.epsilon(of_one), delta=of_one)
    return selected + (price(followed_by, delta=share).epsilon if followed_by else 0.0)


def _log_slope_ratio(
    profile: PrivacyProfile, trial_count: TrialCount, bound: SelectionBound
) -> float:
    """The c of the module's docstring: how much one unit can move the log of phi'."""
    if isinstance(trial_count, PoissonTrials):
        return trial_count.mean * profile.delta(0.0)
    length = trial_count.log_inverse_halting  # the ratio is below 1/gamma: no more is to be gained
    odds = math.expm1(length)  # (1 - gamma) / gamma
    if bound == SelectionBound.SHARP_PROFILE:
        c = last_holding(
            lambda e1: odds * profile.delta(e1) <= math.expm1(e1),
            holds_at=length,
            fails_at=0.0,
            tolerance=_EXPONENT_TOLERANCE,
        )
    else:  # convex in e^e1; and whatever e1 the search ends at, the bound holds there
        c = float(
            scipy.optimize.minimize_scalar(
                lambda e1: math.log(math.exp(e1) + odds * profile.delta(float(e1))),
                bounds=(0.0, length),
                method="bounded",
            ).fun
        )
    return (trial_count.shape + 1) * c


def _refuse_a_number(trial_count: object) -> None:
    if not isinstance(trial_count, NegativeBinomialTrials | PoissonTrials):
        raise ParameterError(
            "trial_count must be the law of a random, secret number of trials "
            f"(NegativeBinomialTrials or PoissonTrials), got {trial_count!r}",
            field="trial_count",
        )
