r"""The law of the number of trials: what a private selection draws from, and what its price assumes.

Releasing the best of a *fixed* number of trials costs almost as much as releasing them all. Releasing
the best of a random number, drawn from one of these laws and kept secret, costs little more than a few
trials, however many were run (Liu and Talwar 2019; Papernot and Steinke 2022).
"""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
import scipy

from tan_core import _validate
from tan_core.errors import ParameterError

MAX_MEAN = 1e4
MAX_SHAPE = 100.0
_BISECTIONS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NegativeBinomialTrials:
    r"""The negative binomial law truncated to K >= 1: shape 1 is geometric, shape 0 logarithmic.

    With halting probability :math:`\gamma` and shape :math:`h`, for :math:`k \ge 1`,

    .. math::

        P(K = k) = \frac{(1-\gamma)^k}{\gamma^{-h} - 1} \prod_{l=0}^{k-1} \frac{l + h}{l + 1},
        \qquad P(K = k) = \frac{(1-\gamma)^k}{k \log(1/\gamma)} \text{ at } h = 0.

    Formal guarantees:

    * :attr:`halting_probability` is rounded so that the true mean never exceeds ``mean``, to 1e-12.
    * :meth:`sample` draws from the very masses that :meth:`pmf` returns.

    Args:
        mean: expected number of trials, in [1, 1e4]; 1 is a single trial.
        shape: :math:`h` in [0, 100]. A smaller shape is cheaper and has the heavier tail: at the same
            mean, more often a single trial and now and then very many.

    Raises:
        ParameterError: an argument is outside the domain above.

    References:
        `Papernot and Steinke (2022) <https://arxiv.org/abs/2110.03620>`_, definition 1.

    Example:
        >>> law = NegativeBinomialTrials(mean=10.0, shape=1.0)
        >>> f"{law}: stops after each trial with probability {law.halting_probability:.3f}"
        'geometric, mean 10: stops after each trial with probability 0.100'
    """

    mean: float
    shape: float

    def __post_init__(self) -> None:
        _validate.make_plain(self, "mean", "shape")
        _validate.in_range(1, MAX_MEAN, mean=self.mean)
        _validate.in_range(0, MAX_SHAPE, shape=self.shape)

    def __str__(self) -> str:
        named = {0.0: "logarithmic", 1.0: "geometric"}.get(self.shape)
        return f"{named or f'negative binomial of shape {self.shape:g}'}, mean {self.mean:g}"

    @property
    def log_inverse_halting(self) -> float:
        r""":math:`\log(1/\gamma)`: the most, per unit of ``shape + 1``, that selection can add."""
        return last_holding(
            lambda length: _negative_binomial_mean(length, self.shape) <= self.mean,
            holds_at=0.0,
            fails_at=2 * math.log(self.mean) + 2,
        )

    @property
    def halting_probability(self) -> float:
        r""":math:`\gamma` in (0, 1]."""
        return math.exp(-self.log_inverse_halting)

    def pmf(self, trials: int) -> float:
        """The probability of exactly this many trials."""
        return _mass_at(self._masses(), _num(trials) - 1)

    def sample(self, rng: np.random.Generator) -> int:
        """A number of trials, at least 1. It must stay as secret as the noise: seed ``rng`` so."""
        return 1 + _inverse(self._masses(), _uniform(rng))

    def _masses(self) -> Iterator[float]:
        """P(K = 1), P(K = 2), ..."""
        length, h = self.log_inverse_halting, self.shape
        survival = -math.expm1(-length)
        normaliser = length * float(scipy.special.exprel(h * length))
        mass = survival / normaliser if normaliser > 0 else 1.0
        for k in count(1):
            yield mass
            mass *= survival * (k + h) / (k + 1)
            if mass < sys.float_info.min:  # it would round to itself, for ever, and not reach 0
                mass = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonTrials:
    """The Poisson law; zero trials, and then nothing to release, are possible.

    Args:
        mean: expected number of trials, in [1, 500].

    Raises:
        ParameterError: ``mean`` is outside the domain above.

    Example:
        >>> f"{PoissonTrials(mean=5.0).pmf(0):.4f}"
        '0.0067'
    """

    mean: float

    def __post_init__(self) -> None:
        _validate.make_plain(self, "mean")
        _validate.in_range(1, 500, mean=self.mean)

    def __str__(self) -> str:
        return f"Poisson, mean {self.mean:g}"

    def pmf(self, trials: int) -> float:
        """The probability of exactly this many trials."""
        return _mass_at(self._masses(), _num(trials))

    def sample(self, rng: np.random.Generator) -> int:
        """A number of trials, at least 0. It must stay as secret as the noise: seed ``rng`` so."""
        return _inverse(self._masses(), _uniform(rng))

    def _masses(self) -> Iterator[float]:
        """P(K = 0), P(K = 1), ..."""
        mass = math.exp(-self.mean)
        for k in count(1):
            yield mass
            mass *= self.mean / k


TrialCount = NegativeBinomialTrials | PoissonTrials
"""A law that the price of a private selection is known for."""


def last_holding(
    condition: Callable[[float], bool], *, holds_at: float, fails_at: float, tolerance: float = 0.0
) -> float:
    """The point nearest to ``fails_at`` at which a monotone condition was seen, or is known, to hold.

    Whatever the round-off, the result is on the safe side: the condition holds there.

    Args:
        condition: true on the side of ``holds_at``, false on the other.
        holds_at: where it holds; not evaluated.
        fails_at: where it fails; not evaluated.
        tolerance: how far from the edge the result may be; 0 is as close as floats allow.
    """
    for _ in range(_BISECTIONS):
        middle = (holds_at + fails_at) / 2
        if abs(fails_at - holds_at) <= tolerance or middle in (holds_at, fails_at):
            break
        if condition(middle):
            holds_at = middle
        else:
            fails_at = middle
    return holds_at


def _negative_binomial_mean(length: float, shape: float) -> float:
    """The mean at halting probability e^-length; stable near 1 and for small shapes."""
    return math.expm1(length) / (length * float(scipy.special.exprel(-shape * length)))


def _num(trials: int) -> int:
    trials = _validate.plain(trials)
    _validate.integer(trials=trials)
    return trials


def _mass_at(masses: Iterator[float], index: int) -> float:
    for at, mass in enumerate(masses if index >= 0 else ()):
        if at == index or mass == 0:  # all that follow are nothing, too
            return mass
    return 0.0


def _uniform(rng: object) -> float:
    """A number in [0, 1) of whatever draws them: NumPy's generators, or the system's own."""
    draw = getattr(rng, "random", None)
    if not callable(draw):
        raise ParameterError(f"rng must be a numpy.random.Generator, got {rng!r:.40}", field="rng")
    return float(draw())  # pyright: ignore[reportArgumentType] whatever it is


def _inverse(masses: Iterator[float], uniform: float) -> int:
    """The index at which the running sum of the masses passes a number in [0, 1)."""
    index, mass = 0, next(masses)
    while uniform >= mass > 0:  # 0: the whole law lies below, all but its round-off
        uniform, index, mass = uniform - mass, index + 1, next(masses)
    return index
