"""The least noise, the most steps or the largest sampling rate that a target allows.

Each search starts where the central limit would end, walks on our own loss distribution (milliseconds
a price), and ends with the accountant that has to agree.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from tan_core import _validate
from tan_core.accounting.events import sampled_gaussian
from tan_core.accounting.gaussian import gdp_delta, gdp_mu
from tan_core.accounting.loss_distribution import (
    COARSE,
    FINE,
    MEDIUM,
    MIN_NOISE_MULTIPLIER,
    loss_profile,
)
from tan_core.accounting.price import MAX_EPSILON, MIN_DELTA, price
from tan_core.accounting.trial_count import last_holding
from tan_core.errors import AccountantError, NoFiniteError, UnreachableTargetError
from tan_core.mechanism import (
    MAX_STEPS,
    Accountant,
    Mechanism,
    NeighboringRelation,
    Sampling,
)

RELATIVE_TOLERANCE = 1e-3
"""A calibrated epsilon lies in ``[(1 - RELATIVE_TOLERANCE) * target, target]``."""

MIN_SAMPLING_RATE = 1e-9

_LEAST_NOISE = 0.02
_MAX_EVALUATIONS = 60
_LEAST_SQUARED = 1e-150  # what is smaller has a square of 0
_KNOWN_MU = 3e4  # to which the Gaussian mechanism is computed
_STRIDE = 1.1  # log cost falls by more than 1 per unit of log noise, so this crosses over
_WIDEST_GAP = 3.0
_ADJACENT = 1e-6
"""Two noise multipliers or rates this near, relative: between them epsilon may jump past the target."""
_ADJACENT_RATES = 1e-5
"""The same for rates at little noise: where they jump is known so well that two prices find it, of seconds each."""


@dataclass(frozen=True, slots=True)
class _Target:
    """What has to be met, and by whose count."""

    epsilon: float
    delta: float
    accountant: Accountant
    certified: bool


class _OutOfReachError(Exception):
    """A target that lies outside what a search may consider."""

    def __init__(self, which: str, cost: float, at: float) -> None:
        super().__init__(which, cost, at)
        self.which, self.cost, self.at = which, cost, at


@dataclass(frozen=True, slots=True)
class _Window:
    """Fractions of the target that will do, and the one to aim at."""

    least: float
    aim: float
    most: float


_ROUGH = _Window(0.995, 1.0, 1.005)
_NEAR = _Window(1 - 8e-4, 1 - 4.5e-4, 1 - 1e-4)
_CLOSE = _Window(
    1 - 2e-4, 1 - 1e-4, 1 - 1e-5
)  # dp-accounting differs by a millionth mostly, by 0.03 % at most
_MET = _Window(1 - RELATIVE_TOLERANCE, 1 - RELATIVE_TOLERANCE / 4, 1.0)

_Stage = tuple[float, float, _Window]
"""A grid, what it adds to epsilon, and what will do."""

_START: _Stage = (COARSE, 1.006, _ROUGH)
_GLANCE: _Stage = (MEDIUM, 1.0008, _NEAR)
_GOOD: _Stage = (FINE, 1.0, _CLOSE)


@_validate.plainly
def calibrate_noise_multiplier(
    *,
    sampling_rate: float,
    steps: int,
    epsilon: float,
    delta: float,
    accountant: Accountant = Accountant.PLD,
    clip_norm: float = 1.0,
    sampling: Sampling = Sampling.POISSON,
    neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
    num_examples: int | None = None,
    max_batch_size: int | None = None,
    low: float | None = None,
    high: float = 10_000.0,
    certified: bool = True,
) -> float:
    r"""The smallest noise multiplier whose epsilon does not exceed the target.

    Formal guarantees:

    * ``price(...).epsilon`` at the result is at most ``epsilon``, and at least 0.999 times it
      (with ``certified``), unless the result is ``low``, or epsilon jumps: then a millionth less noise
      exceeds it.
    * The same arguments give the same float.

    Args:
        sampling_rate: :math:`q` in (0, 1].
        steps: :math:`S \ge 1`.
        epsilon: the target, in (0, 1e6].
        delta: in [1e-10, 1).
        accountant: who must agree that the target is met.
        clip_norm: does not influence the result.
        sampling: how a batch is drawn.
        neighboring_relation: which datasets are neighbours.
        num_examples: as in :class:`Mechanism`.
        max_batch_size: as in :class:`Mechanism`.
        low: the smallest noise multiplier to consider, and the answer where it meets the target. Without
            one nothing below 0.02 is considered, and a target that asks for no more is refused.
        high: the largest.
        certified: ask the accountant before answering. Without it our own loss distribution decides
            where it can (of removal, the dearer direction): many times as fast, and epsilon is within a
            thousandth of the target either way; what is promised must be priced again.

    Raises:
        ParameterError: an argument is out of its domain.
        UnreachableTargetError: no noise multiplier in [low, high] meets the target; the message says
            which epsilons can be reached.
        UnsupportedEventError: the accountant cannot price this sampling and neighbouring relation.
        AccountantError: the accountant failed.

    Example:
        >>> sigma = calibrate_noise_multiplier(
        ...     sampling_rate=4096 / 50_000, steps=2500, epsilon=8.0, delta=1e-5
        ... )
        >>> f"{sigma:.2f}"
        '2.58'
    """
    least = _LEAST_NOISE if low is None else low
    _validate.positive(low=least, high=high, clip_norm=clip_norm)
    _validate.in_range(least, math.inf, high=high)
    probe = Mechanism(
        sampling_rate=sampling_rate,
        noise_multiplier=high,
        clip_norm=1.0,
        steps=steps,
        sampling=sampling,
        neighboring_relation=neighboring_relation,
        num_examples=num_examples,
        max_batch_size=max_batch_size,
    )
    target = _target(epsilon, delta, accountant, certified)
    if low is not None and _exact(replace(probe, noise_multiplier=low), target) <= epsilon:
        return low
    return _least_noise(probe, target, least)


@_validate.plainly
def calibrate_steps(
    *,
    sampling_rate: float,
    noise_multiplier: float,
    epsilon: float,
    delta: float,
    accountant: Accountant = Accountant.PLD,
    neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
    max_steps: int = 10_000_000,
) -> int:
    """The most steps of Poisson batches whose epsilon does not exceed the target.

    Formal guarantees:

    * The result meets the target by ``price``, and one step more does not, unless it is ``max_steps``.

    Args:
        sampling_rate: :math:`q` in (0, 1].
        noise_multiplier: > 0.
        epsilon: the target, in (0, 1e6].
        delta: in [1e-10, 1).
        accountant: who must agree that the target is met.
        neighboring_relation: which datasets are neighbours.
        max_steps: the most to consider.

    Raises:
        UnreachableTargetError: already one step exceeds it.

    Example:
        >>> calibrate_steps(sampling_rate=0.1, noise_multiplier=3.0, epsilon=2.0, delta=1e-6)
        155
    """
    _validate.in_range(1, MAX_STEPS, max_steps=max_steps)
    _validate.positive_integer(max_steps=max_steps)
    target = _target(epsilon, delta, accountant, certified=True)
    probe = Mechanism(
        sampling_rate=sampling_rate,
        noise_multiplier=noise_multiplier,
        clip_norm=1.0,
        steps=1,
        neighboring_relation=neighboring_relation,
    )
    if _exact(probe, target) > epsilon:
        raise UnreachableTargetError(
            f"one step at noise multiplier {noise_multiplier:g} costs more than epsilon = {epsilon:g}",
            field="privacy.epsilon",
        )

    def at(steps: float) -> Mechanism:
        return probe.with_steps(min(max(round(steps), 1), max_steps))

    inverse, _ = _near(
        lambda inverse: at(1 / inverse),
        target,
        guess=_limit_inverse_steps(probe, target),
        low=1 / max_steps,
        high=1.0,
    )
    return _last_that_fits(
        lambda steps: _exact(at(steps), target),
        epsilon,
        guess=at(1 / inverse).steps,
        most=max_steps,
    )


@_validate.plainly
def calibrate_sampling_rate(
    *,
    noise_multiplier: float,
    steps: int,
    epsilon: float,
    delta: float,
    accountant: Accountant = Accountant.PLD,
    neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
    certified: bool = True,
) -> float:
    r"""The largest Poisson sampling rate whose epsilon does not exceed the target; 1 where all do.

    Formal guarantees:

    * As of :func:`calibrate_noise_multiplier`, below 1. Where a step of little noise shows all or nothing,
      epsilon jumps as the rate passes delta over the steps: then a rate larger by a hundred-thousandth
      exceeds it.

    Args:
        noise_multiplier: > 0.
        steps: :math:`S \ge 1`.
        epsilon: the target, in (0, 1e6].
        delta: in [1e-10, 1).
        accountant: who must agree that the target is met.
        neighboring_relation: which datasets are neighbours.
        certified: as of :func:`calibrate_noise_multiplier`.

    Raises:
        ParameterError: an argument is out of its domain.
        UnreachableTargetError: not even a sampling rate of 1e-9 meets the target.
        AccountantError: the accountant failed.

    Example:
        >>> q = calibrate_sampling_rate(noise_multiplier=3.0, steps=2500, epsilon=6.58, delta=1e-5)
        >>> f"a batch of {q * 50_000 / 100:.0f} hundred"
        'a batch of 41 hundred'
    """
    target = _target(epsilon, delta, accountant, certified)
    probe = Mechanism(
        sampling_rate=1.0,
        noise_multiplier=noise_multiplier,
        clip_norm=1.0,
        steps=steps,
        neighboring_relation=neighboring_relation,
    )
    return _largest_rate(probe, target)


@lru_cache(maxsize=1024)
def _least_noise(probe: Mechanism, target: _Target, low: float) -> float:
    """The least noise in [low, the probe's own]."""
    return _search(
        lambda sigma: replace(probe, noise_multiplier=sigma),
        target,
        guess=_limit_noise(probe, target),
        low=low,
        high=probe.noise_multiplier,
        name=lambda sigma: f"noise multiplier = {sigma:g}",
    )


@lru_cache(maxsize=1024)
def _largest_rate(probe: Mechanism, target: _Target) -> float:
    if _may_take_all(probe, target) and _exact(probe, target) <= target.epsilon:
        return 1.0
    inverse = _search(
        lambda inverse: replace(probe, sampling_rate=1 / inverse),
        target,
        guess=_limit_inverse_rate(probe, target),
        low=1.0,
        high=1 / MIN_SAMPLING_RATE,
        name=lambda inverse: f"sampling rate = {1 / inverse:g}",
        nearby=_ADJACENT_RATES if _jumps(probe, target) else None,
    )
    return 1 / inverse


def _may_take_all(probe: Mechanism, target: _Target) -> bool:
    """Whether a full batch might meet the target. What it truly costs is known, and no price lies below."""
    mu = math.sqrt(probe.steps) / _own_noise(probe)
    return mu > _KNOWN_MU or gdp_delta(mu=mu, epsilon=1.01 * target.epsilon) <= target.delta


def _shows_all_or_nothing(probe: Mechanism) -> bool:
    """Whether an example is all but told by a step that draws it."""
    return _own_noise(probe) < MIN_NOISE_MULTIPLIER


def _jumps(probe: Mechanism, target: _Target) -> bool:
    """Whether epsilon may jump as the rate grows; a Rényi divergence does not."""
    return _shows_all_or_nothing(probe) and target.accountant is not Accountant.RDP


def _own_noise(probe: Mechanism) -> float:
    return probe.noise_multiplier / probe.neighboring_relation.sensitivity


def _target(epsilon: float, delta: float, accountant: Accountant, certified: bool) -> _Target:
    _validate.boolean(certified=certified)
    _validate.positive(epsilon=epsilon)
    _validate.in_range(0, MAX_EPSILON, epsilon=epsilon)
    _validate.probability(open_ends=True, delta=delta)
    _validate.in_range(MIN_DELTA, 1, delta=delta)
    return _Target(epsilon, delta, Accountant(accountant), bool(certified))


def _limit_noise(probe: Mechanism, target: _Target) -> float:
    """The noise at which the composition's limit, a Gaussian mechanism, would meet the target."""
    rate = 1.0 if probe.sampling is Sampling.UNAMPLIFIED else probe.sampling_rate
    rate = max(rate, _LEAST_SQUARED)
    same = sampled_gaussian(probe)
    steps = same.steps if same is not None else probe.steps
    one_step = gdp_mu(epsilon=target.epsilon, delta=target.delta) ** 2 / (rate**2 * steps)
    if rate == 1:
        return probe.neighboring_relation.sensitivity / math.sqrt(one_step)
    return probe.neighboring_relation.sensitivity / math.sqrt(math.log1p(one_step))


def _limit_inverse_steps(probe: Mechanism, target: _Target) -> float:
    """One over the steps at which the limit would meet the target."""
    mu = gdp_mu(epsilon=target.epsilon, delta=target.delta) / probe.neighboring_relation.sensitivity
    exponent = min(probe.noise_multiplier**-2, 700)
    return probe.sampling_rate**2 * math.expm1(exponent) / mu**2


def _limit_inverse_rate(probe: Mechanism, target: _Target) -> float:
    """One over the sampling rate at which the limit would meet the target.

    With so little noise that a step shows next to nothing or next to all, the limit is another one: delta
    is what the steps, each by itself, exceed epsilon by. That is known exactly (Balle et al. 2018).
    """
    noise = _own_noise(probe)
    if not _shows_all_or_nothing(probe):
        mu = gdp_mu(epsilon=target.epsilon, delta=target.delta)
        return math.sqrt(probe.steps * math.expm1(min(noise**-2, 700))) / mu
    epsilon = target.epsilon * _MET.aim

    def fits(log_rate: float) -> bool:
        rate = math.exp(log_rate)
        unsampled = epsilon - log_rate + math.log1p(math.exp(-epsilon) * (rate - 1))
        return probe.steps * rate * gdp_delta(mu=1 / noise, epsilon=unsampled) <= target.delta

    return math.exp(
        -last_holding(
            fits, holds_at=math.log(MIN_SAMPLING_RATE), fails_at=0.0, tolerance=_ADJACENT / 10
        )
    )


def _exact(mechanism: Mechanism, target: _Target) -> float:
    try:
        return price([mechanism], delta=target.delta, accountant=target.accountant).epsilon
    except NoFiniteError:  # a search may look far below the noise that it comes to
        return math.inf


def _whole(mechanism: Mechanism) -> Mechanism:
    """The mechanism without a cap on its batches: never dearer, and mostly all but the same."""
    if mechanism.sampling is not Sampling.TRUNCATED_POISSON:
        return mechanism
    return replace(mechanism, sampling=Sampling.POISSON, num_examples=None, max_batch_size=None)


def _own(mechanism: Mechanism, delta: float, fraction: float) -> float:
    """Epsilon by our own loss distribution; of whole batches where they are cut, to start from."""
    event = sampled_gaussian(_whole(mechanism))
    if event is None:
        raise AccountantError("not a sampled Gaussian")
    return loss_profile([event], delta=delta, fraction=fraction, tight=False).epsilon(delta)


def _search(
    make: Callable[[float], Mechanism],
    target: _Target,
    *,
    guess: float,
    low: float,
    high: float,
    name: Callable[[float], str],
    nearby: float | None = None,
) -> float:
    """The x in [low, high] at which a cost that falls with x meets the target.

    Where our own distribution can say, the accountant is usually asked once; ``nearby`` is as of
    :func:`_cheapest`.
    """
    by_own = not target.certified and target.accountant is Accountant.PLD
    last = _GLANCE if by_own else _GOOD
    x, is_met = _near(make, target, guess=guess, low=low, high=high, last=last)
    if by_own and is_met and sampled_gaussian(make(x)) is not None:
        return x
    try:
        return _cheapest(
            lambda v: _exact(make(v), target),
            target.epsilon, guess=x, low=low, high=high, window=_MET, nearby=nearby,
        )  # fmt: skip
    except _OutOfReachError as error:
        raise UnreachableTargetError(
            f"no {name(error.at).split(' = ')[0]} gives epsilon = {target.epsilon:g}: "
            f"the {error.which} is {error.cost:g}, at {name(error.at)}",
            field="privacy.epsilon",
        ) from None


def _near(
    make: Callable[[float], Mechanism],
    target: _Target,
    *,
    guess: float,
    low: float,
    high: float,
    last: _Stage = _GOOD,
) -> tuple[float, bool]:
    """Where our own distribution meets the target, coarse and then better, and whether it could say."""
    x = min(max(guess, low), high)
    for fraction, excess, window in (_START, last):
        try:
            x = _cheapest(
                lambda v, fraction=fraction, excess=excess: (
                    _own(make(v), target.delta, fraction) / excess
                ),
                target.epsilon, guess=x, low=low, high=high, window=window,
            )  # fmt: skip
        except (AccountantError, _OutOfReachError):
            return x, False
    return x, True


def _cheapest(
    cost: Callable[[float], float],
    target: float,
    *,
    guess: float,
    low: float,
    high: float,
    window: _Window,
    nearby: float | None = None,
) -> float:
    """The x at which a falling cost is inside a window of the target.

    False position in (log x, log cost) with Illinois' rule: an end that stays put counts half. Where the
    cost is known to jump ``nearby``, relative to the guess, the first steps are so long, and what lies as near
    to each other counts as one.
    """
    floor, ceiling = math.log(low), math.log(high)
    aim = math.log(target * window.aim)
    ends: dict[bool, tuple[float, float]] = {}  # too dear? -> (log x, log cost - aim)
    last: bool | None = None
    adjacent, stride = (_ADJACENT, None) if nearby is None else (nearby, nearby)
    x = min(max(math.log(guess), floor), ceiling)

    for _ in range(_MAX_EVALUATIONS):
        epsilon = cost(math.exp(x))
        if target * window.least <= epsilon <= target * window.most:
            return math.exp(x)
        gap = min(max(math.log(max(epsilon, 1e-300)) - aim, -_WIDEST_GAP), _WIDEST_GAP)
        too_dear = gap > 0
        if too_dear and x >= ceiling:
            raise _OutOfReachError("smallest", epsilon, high)
        if not too_dear and x <= floor:
            raise _OutOfReachError("largest", epsilon, low)
        if too_dear is last and (not too_dear) in ends:
            stale_x, stale_gap = ends[not too_dear]
            ends[not too_dear] = (stale_x, stale_gap / 2)
        ends[too_dear], last = (x, gap), too_dear
        if len(ends) == 2 and abs(ends[True][0] - ends[False][0]) <= adjacent * (1 + 1e-6):
            return math.exp(ends[False][0])
        if len(ends) == 2:
            x = _between(*ends.values())
        elif stride is None:
            x += _STRIDE * gap
        else:
            x, stride = x + math.copysign(stride, gap), 8 * stride
        x = min(max(x, floor), ceiling)
    raise AccountantError(f"calibration to epsilon = {target:g} did not settle")


def _last_that_fits(cost: Callable[[int], float], target: float, *, guess: int, most: int) -> int:
    """The largest whole number whose cost, which rises, is at most the target; 1 is known to fit."""
    fits, exceeds, candidate = 1, most + 1, guess
    for evaluation in range(_MAX_EVALUATIONS):
        if exceeds - fits <= 1:
            break
        candidate = min(max(candidate, fits + 1), exceeds - 1)
        epsilon = cost(candidate)
        fits, exceeds = (candidate, exceeds) if epsilon <= target else (fits, candidate)
        if evaluation < _MAX_EVALUATIONS // 4 and epsilon > 0:
            # Epsilon goes with about the root of the steps.
            candidate = min(round(candidate * (target / epsilon) ** 2), most)
        else:
            candidate = (fits + exceeds) // 2
    return fits


def _between(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Where the line through two points of opposite sign is zero."""
    (a, gap_a), (b, gap_b) = one, other
    return a + (b - a) * gap_a / (gap_a - gap_b)
