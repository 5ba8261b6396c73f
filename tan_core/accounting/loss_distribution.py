r"""A second, independent bound by privacy loss distributions: small, fast, numpy only.

It serves planning, where a thousand prices are asked for, and checks every promise that is made by
dp-accounting. One step's loss is put on a grid by connecting the dots (Doroshenko et al. 2022): the mass
of each cell goes to its two ends in the one proportion that keeps both its probability under P and under
Q, which makes the new pair dominate the old one. Composition is a power in Fourier space, on a window
outside of which a Chernoff bound finds next to nothing; what lies above it counts as a certain loss. Many unlike
steps are composed by twos (:mod:`tan_core.accounting.sums`).

References:
    Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), "Connect the Dots: Tighter Discrete
    Approximations of Privacy Loss Distributions"; Koskela, Jälkö and Honkela (2020).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from tan_core.accounting.effort import check_effort
from tan_core.accounting.events import SampledGaussian, loss_variance
from tan_core.accounting.gaussian import GaussianProfile
from tan_core.accounting.profile import PrivacyProfile
from tan_core.accounting.sums import FEW, Counted, Sums, coarsened
from tan_core.errors import AccountantError

Floats = NDArray[np.float64]

FINE = 0.05
"""Cell width over a step's standard deviation: epsilon is 0.02 % above its limit."""
MEDIUM = 0.1
"""0.1 % above it at most, at half the time."""
COARSE = 0.25
"""0.6 % above it, at a fifth of the time."""

ROUND_OFF = 5e-12
"""In delta, of up to twenty thousand steps in Fourier space: ours and dp-accounting's alike."""

MIN_NOISE_MULTIPLIER = 0.25
"""Below it one step's losses span so much that the grid no longer fits a thousandth of epsilon."""

_COARSEST_CELL = 0.04  # times the fraction: 0.002 for a fine grid
_FINEST_CELL = 1e-7
_MAX_POINTS = 2**22
LARGEST_LOSS = 600.0
"""Exponentials of losses are taken; dp-accounting, too, loses its digits from here on."""

_THINNED, _THICK = 16, 4096  # cells for each of a rough picture; of a step that needs one

_TAIL = 1e-5  # of delta: what the window may lose on each side, and one-step truncation in sum


def loss_profile(
    events: Sequence[SampledGaussian], *, delta: float, fraction: float = FINE, tight: bool = True
) -> PrivacyProfile:
    """An upper bound on the privacy profile of a composition, accurate for deltas of about ``delta``.

    Formal guarantees:

    * Up to round-off (:data:`ROUND_OFF` in delta), never below the true profile at any delta >=
      ``delta``; exact where no event is sampled.

    Args:
        events: at least one; their noise multipliers at least :data:`MIN_NOISE_MULTIPLIER`.
        delta: the smallest delta that will be asked for, in (0, 1).
        fraction: cell width over the root mean square deviation of a step.
        tight: both directions (a unit added, a unit removed); else removal only, which is the larger one
            in all but contrived settings: for searching, not for promising.

    Raises:
        AccountantError: an event is outside the domain, or the grid would not fit memory.
    """
    for event in events:
        if event.noise_multiplier < MIN_NOISE_MULTIPLIER:
            raise AccountantError(
                f"the loss grid needs noise_multiplier >= {MIN_NOISE_MULTIPLIER:g}, "
                f"got {event.noise_multiplier:g}"
            )
    check_effort("the loss distribution")
    steps = _merged(events)
    if all(step.sampling_rate == 1 for step in steps):
        return GaussianProfile(mu=math.hypot(*(1 / step.noise_multiplier for step in steps)))
    cell = _cell(steps, fraction)
    tail = _TAIL * delta
    with np.errstate(all="ignore"):
        sides = [_compose(steps, cell, tail, removed=True)]
        if tight:
            sides.append(_compose(steps, cell, tail, removed=False))
    return LossProfile(tuple(sides))


@dataclass(frozen=True)
class LossProfile:
    """The larger of the profiles of both directions."""

    _sides: tuple["_Composed", ...]

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 at a delta; infinity below what the window lost."""
        return max(side.epsilon(delta) for side in self._sides)

    def delta(self, epsilon: float) -> float:
        """The least delta at an epsilon >= 0."""
        return max(side.delta(epsilon) for side in self._sides)


@dataclass(frozen=True)
class _Composed:
    """A composed distribution: probabilities of the positive losses, and of a certain loss."""

    losses: Floats
    probabilities: Floats
    infinite: float

    @cached_property
    def _mass_above(self) -> Floats:
        return np.cumsum(self.probabilities[::-1])[::-1]

    @cached_property
    def _discounted_above(self) -> Floats:
        return np.cumsum((self.probabilities * np.exp(-self.losses))[::-1])[::-1]

    @cached_property
    def _delta_at_losses(self) -> Floats:
        # At epsilon = losses[i] the cell i itself adds nothing.
        kept = self._mass_above - np.exp(self.losses) * self._discounted_above
        return np.maximum(kept, 0) + self.infinite

    def epsilon(self, delta: float) -> float:
        if delta <= self.infinite:
            return math.inf
        # Epsilon lies at or below the first loss at which delta suffices, and above the one before.
        above = int(np.searchsorted(-self._delta_at_losses, -delta, side="left"))
        gain = float(self._mass_above[above]) + self.infinite - delta
        discounted = float(self._discounted_above[above])
        return max(0.0, math.log(gain / discounted)) if gain > 0 and discounted > 0 else 0.0

    def delta(self, epsilon: float) -> float:
        above = int(np.searchsorted(self.losses, epsilon, side="right"))
        gain = -np.expm1(epsilon - self.losses[above:])
        return min(1.0, _total(self.probabilities[above:], gain) + self.infinite)


def _merged(events: Sequence[SampledGaussian]) -> list[SampledGaussian]:
    """Unlike steps. Equal ones of several runs are one run of them, and all without sampling one step with less noise: exact."""
    counts, shifts = Counter[tuple[float, float]](), list[float]()
    for event in events:
        if event.sampling_rate == 1:
            shifts.append(math.sqrt(event.steps) / event.noise_multiplier)
        else:
            counts[event.sampling_rate, event.noise_multiplier] += event.steps
    merged = [
        SampledGaussian(sampling_rate=q, noise_multiplier=sigma, steps=steps)
        for (q, sigma), steps in counts.items()
    ]
    if shifts:
        # The same to the last bit in whatever order they come.
        sigma = 1 / math.hypot(*sorted(shifts))
        merged.append(SampledGaussian(sampling_rate=1.0, noise_multiplier=sigma, steps=1))
    return merged


def _cell(steps: Sequence[SampledGaussian], fraction: float) -> float:
    """The width of a cell: each step adds its square to the variance of the sum."""
    variance = sum(
        step.steps * loss_variance(step.sampling_rate, 1 / step.noise_multiplier) for step in steps
    )
    deviation = math.sqrt(variance / sum(step.steps for step in steps))
    coarsest = _COARSEST_CELL * fraction
    cell = min(max(fraction * deviation, _FINEST_CELL), coarsest)
    return coarsened(cell, coarsest=coarsest) if len(steps) > FEW else cell


@dataclass(frozen=True)
class _Step:
    """One step's loss on the grid: ``probabilities[i]`` at loss ``(first + i) * cell``."""

    first: int
    probabilities: Floats
    infinite: float
    count: int

    def summed(self, cell: float) -> "_Summed":
        losses = np.arange(self.first, self.first + len(self.probabilities)) * np.float64(cell)
        return _Summed(losses, self.probabilities, self.count)


@dataclass(frozen=True)
class _Summed:
    """A step's finite losses, drawn ``count`` times and summed."""

    losses: Floats
    probabilities: Floats
    count: int

    def thinned(self) -> "_Summed":
        """A rough picture of it, with a cell for each :data:`_THINNED`."""
        if len(self.losses) < _THICK:
            return self
        starts = np.arange(0, len(self.losses), _THINNED)
        middles = np.minimum(starts + _THINNED // 2, len(self.losses) - 1)
        masses = np.add.reduceat(self.probabilities, starts)
        return _Summed(self.losses[middles], masses, self.count)

    def variance(self) -> float:
        mean = _total(self.probabilities, self.losses)
        return self.count * _total(self.probabilities, (self.losses - mean) ** 2)

    def log_moment(self, tilt: float) -> float:
        """Log of the mean of exp(tilt * sum)."""
        exponents = tilt * self.losses
        top = float(max(exponents[0], exponents[-1]))
        exponents -= top
        return self.count * (top + math.log(_total(self.probabilities, np.exp(exponents))))


def _discretise(event: SampledGaussian, cell: float, tail: float, *, removed: bool) -> _Step:
    """One step, connecting the dots.

    With the unit (P for removal) an output is drawn from (1-q) N(0, s^2) + q N(1, s^2), without it from
    N(0, s^2); the loss is monotone in the output, so cells of loss are intervals of output.
    """
    q, sigma = event.sampling_rate, event.noise_multiplier
    reach = -float(scipy.special.ndtri(max(tail / event.steps, 1e-300))) * sigma
    ends = _loss(np.array([-reach, 1 + reach]), q, sigma)
    if not removed:
        ends = -ends[::-1]
    first, last = math.floor(ends[0] / cell), math.ceil(ends[1] / cell)
    if last - first > _MAX_POINTS:
        raise AccountantError(f"the loss grid would need {last - first} cells")
    losses = np.arange(first, last + 1) * cell
    with_unit, without = _cell_masses(
        _output(losses if removed else -losses[::-1], q, sigma), q, sigma
    )
    p, other = (with_unit, without) if removed else (without[::-1], with_unit[::-1])
    # Cell i lies between losses[i] and losses[i + 1].
    upper = (p - other * np.exp(losses[:-1])) / -math.expm1(-cell)
    upper = np.clip(upper, 0, p)
    probabilities = np.zeros(len(losses))
    probabilities[1:] += upper
    probabilities[:-1] += p - upper
    below, above = _outside(losses, q, sigma, removed=removed)
    probabilities[0] += below  # rounded up
    return _Step(first, probabilities, above, event.steps)


def _loss(output: Floats, q: float, sigma: float) -> Floats:
    """The loss of removal, log(1 - q + q e^((2x - 1) / (2 sigma^2))), at outputs x."""
    exponent = (output - 0.5) / sigma**2
    if q == 1:
        return exponent
    large = np.maximum(
        exponent, LARGEST_LOSS
    )  # of others the exponential is a float, and digits of q stay
    return np.where(
        exponent > LARGEST_LOSS,
        large + np.log(q + (1 - q) * np.exp(-large)),
        np.log1p(q * np.expm1(np.minimum(exponent, LARGEST_LOSS))),
    )


def _output(loss: Floats, q: float, sigma: float) -> Floats:
    """The output at which the loss of removal is this; minus infinity where it is always larger."""
    if q == 1:
        return sigma**2 * loss + 0.5
    ratio = np.where(
        loss > 1,
        loss + np.log1p(-(1 - q) * np.exp(-np.maximum(loss, 0))),
        np.log(np.maximum(np.expm1(np.minimum(loss, 1)) + q, 0)),
    )
    return sigma**2 * (ratio - math.log(q)) + 0.5


def _cell_masses(edges: Floats, q: float, sigma: float) -> tuple[Floats, Floats]:
    """Probabilities between neighbouring outputs, with the unit and without it."""
    without = _normal_mass(edges / sigma)
    return (1 - q) * without + q * _normal_mass((edges - 1) / sigma), without


def _normal_mass(edges: Floats) -> Floats:
    """Standard normal mass between neighbouring edges, which rise, from whichever tail is nearer."""
    tails = scipy.special.ndtr(-np.abs(edges))
    mass = np.diff(tails)
    below = int(np.searchsorted(edges, 0, side="right"))  # edges at or below the middle
    mass[below:] *= -1
    if 0 < below < len(edges):
        mass[below - 1] = scipy.special.ndtr(edges[below]) - tails[below - 1]
    return np.maximum(mass, 0)


def _outside(losses: Floats, q: float, sigma: float, *, removed: bool) -> tuple[float, float]:
    """Probability of a loss below the first and above the last, under the one the loss is of."""
    if removed:
        low, high = _output(losses[[0, -1]], q, sigma)
        below = (1 - q) * scipy.special.ndtr(low / sigma) + q * scipy.special.ndtr(
            (low - 1) / sigma
        )
        above = (1 - q) * scipy.special.ndtr(-high / sigma) + q * scipy.special.ndtr(
            -(high - 1) / sigma
        )
    else:
        high, low = _output(-losses[[0, -1]], q, sigma)
        below, above = scipy.special.ndtr(-high / sigma), scipy.special.ndtr(low / sigma)
    return float(below), float(above)


@dataclass(frozen=True)
class _Sum:
    """The sum of some losses: ``probabilities[i]`` at ``(first + i) * cell``, and of a certain loss."""

    first: int
    probabilities: Floats
    infinite: float


def _compose(
    events: Sequence[SampledGaussian], cell: float, tail: float, *, removed: bool
) -> _Composed:
    """The distribution of the sum of all steps' losses, on a window."""
    if len(events) > FEW:
        composed = _sum_of_many(events, cell, tail, removed=removed)
    else:
        composed = _sum_of_few(events, cell, tail, removed=removed)
    losses = np.arange(composed.first, composed.first + len(composed.probabilities)) * np.float64(
        cell
    )
    kept = losses >= 0
    return _Composed(losses[kept], composed.probabilities[kept], composed.infinite)


def _sum_of_many(
    events: Sequence[SampledGaussian], cell: float, tail: float, *, removed: bool
) -> _Sum:
    """By twos. Each leaf and branch may lose some of the tail: they share it."""
    share = tail / 2 ** math.ceil(math.log2(len(events)))

    def leaf(step: Counted[SampledGaussian]) -> _Sum:
        check_effort("the loss distribution")
        event = replace(step.part, steps=step.count)
        return _sum_of_few([event], cell, share, removed=removed)

    counted = [Counted(replace(event, steps=1), event.steps) for event in events]
    return _sums.of(
        counted,
        on=(cell, share, removed),
        leaf=leaf,
        add=lambda one, other: _added(one, other, share),
    )


_sums: Sums[SampledGaussian, _Sum] = Sums(lambda composed: len(composed.probabilities))


def _added(one: _Sum, other: _Sum, tail: float) -> _Sum:
    """Both losses together; what lies above but for ``tail`` is certain, and what lies below is rounded up."""
    length = len(one.probabilities) + len(other.probabilities) - 1
    size = scipy.fft.next_fast_len(length, real=True)
    spectrum = scipy.fft.rfft(one.probabilities, size) * scipy.fft.rfft(other.probabilities, size)
    probabilities = np.maximum(scipy.fft.irfft(spectrum, n=size)[:length], 0)
    below = int(np.searchsorted(np.cumsum(probabilities), tail))
    above = int(np.searchsorted(np.cumsum(probabilities[::-1]), tail))
    kept = probabilities[below : max(length - above, below + 1)].copy()
    kept[0] += probabilities[:below].sum()
    infinite = one.infinite + other.infinite + float(probabilities[below + len(kept) :].sum())
    return _Sum(one.first + other.first + below, kept, infinite)


def _sum_of_few(
    events: Sequence[SampledGaussian], cell: float, tail: float, *, removed: bool
) -> _Sum:
    """In Fourier space at once."""
    steps = [_discretise(event, cell, tail, removed=removed) for event in events]
    low, high = _window(steps, cell, tail)
    size = scipy.fft.next_fast_len(max(high - low, 2), real=True)
    if size > _MAX_POINTS:
        raise AccountantError(f"the loss grid would need {size} cells")
    spectrum, centre = np.zeros(size // 2 + 1, dtype=np.complex128), 0
    for step in steps:
        # Centred, so that phases stay small and their powers exact.
        mean = round(_total(step.probabilities, np.arange(len(step.probabilities))))
        spectrum += step.count * np.log(scipy.fft.rfft(_folded(step.probabilities, mean, size)))
        centre += step.count * (step.first + mean)
    composed = scipy.fft.irfft(np.exp(spectrum), n=size)
    composed = np.maximum(np.roll(composed, -((low - centre) % size)), 0)
    infinite = sum(step.count * step.infinite for step in steps) + tail
    return _Sum(low, composed, infinite)


def _folded(probabilities: Floats, centre: int, size: int) -> Floats:
    """The probabilities on a circle of ``size`` cells, with index ``centre`` at 0."""
    start = -centre % size
    padded = np.zeros(-(-(start + len(probabilities)) // size) * size)
    padded[start : start + len(probabilities)] = probabilities
    return padded.reshape(-1, size).sum(axis=0)


def _window(steps: Sequence[_Step], cell: float, tail: float) -> tuple[int, int]:
    """Cells between which the sum lies, but for ``tail`` on each side."""
    sums = [step.summed(cell) for step in steps]
    deviation = math.sqrt(sum(each.variance() for each in sums)) + cell
    high = _reach(sums, deviation, tail, upwards=1)
    low = -_reach(sums, deviation, tail, upwards=-1)
    if high > LARGEST_LOSS:
        raise AccountantError(f"the loss grid ends at {LARGEST_LOSS:g}, and {high:.3g} is needed")
    return math.floor(low / cell) - 1, math.ceil(high / cell) + 1


def _reach(sums: Sequence[_Summed], deviation: float, tail: float, *, upwards: int) -> float:
    """A bound on the sum (or its negative), but for ``tail``: Chernoff's, which holds at any tilt.

    The bound falls with the tilt to one minimum; the first tilt is the best for a Gaussian sum, and
    heavier tails ask for smaller ones. Which tilt is best, a rough picture says as well.
    """

    def bound(of: Sequence[_Summed], tilt: float) -> float:
        return (sum(each.log_moment(upwards * tilt) for each in of) - math.log(tail)) / tilt

    rough = [each.thinned() for each in sums]
    tilt, best, best_bound = 2 * math.sqrt(-math.log(tail)) / deviation, 0.0, math.inf
    while tilt > 0 and (tilted := bound(rough, tilt)) <= best_bound:
        best, best_bound = tilt, tilted
        tilt /= 1.5
    return bound(sums, best)


def _total(weights: Floats, values: Floats | NDArray[np.int64]) -> float:
    """Their inner product; not by BLAS, whose threads cost more than they help here."""
    return float(np.sum(weights * values))
