"""How much each searched parameter mattered, at one batch: PED-ANOVA, and rank correlation.

PED-ANOVA: the density of a parameter among the best tenth of the trials is held against its density among
all of them: the Pearson divergence of the two, as a share of those of all parameters. It says how much a
parameter mattered for being among the best, and needs many trials. Spearman's rank correlation of a number
with the accuracy says which way it goes, and a few trials have one.

References:
    Watanabe, Bansal and Hutter (2023), "PED-ANOVA", algorithm 1. Grid, bandwidth and prior are those of
    Optuna's evaluator, which tests hold this against: the service runs without Optuna.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts arrive when they are used
from numpy.typing import NDArray

from service.dashboard.charts.axis import Axis
from service.dashboard.charts.table import Table
from service.dashboard.charts.trial_point import TrialPoint

TOP_SHARE = 0.1
GRID = 50
LEAST_TRIALS = 20
"""Among fewer, a best tenth says nothing."""
LEAST_RANKED = 6
"""Among fewer, one trial turns a correlation round."""
_LEAST_WIDTH = 0.5 / 1.64
_TINY = 1e-12
Floats = NDArray[np.float64]
Scored = Sequence[tuple[TrialPoint, float]]


@dataclass(frozen=True, slots=True)
class Importance:
    """What is said of each parameter, the one that mattered most first."""

    rows: tuple[tuple[str, float | None, float | None], ...]
    """Name, share of the importance and rank correlation; None where there is none. Shares are 1 together."""
    num_trials: int
    num_best: int
    """Behind the shares; 0 where there are none."""

    @property
    def table(self) -> Table:
        """As it is shown."""
        return Table(("parameter", "importance", "rank correlation"), self.rows)


def importance(scored: Scored, axes: Sequence[Axis]) -> Importance | None:
    """What mattered to the accuracies of trials at one batch; None where nothing can be said of any parameter."""
    shares, num_best = _shares(scored, axes)
    rows = [(axis.name, shares.get(axis.name), _correlation(axis, scored)) for axis in axes]
    if all(share is None and correlation is None for _, share, correlation in rows):
        return None
    ranked = sorted(rows, key=lambda row: (-(row[1] or 0), -abs(row[2] or 0)))
    return Importance(tuple(ranked), len(scored), num_best)


def _shares(scored: Scored, axes: Sequence[Axis]) -> tuple[dict[str, float], int]:
    """By name, and of how many best trials; none with few trials, one parameter, or nothing to tell apart."""
    if len(scored) < LEAST_TRIALS or len(axes) < 2:
        return {}, 0
    cut = sorted((value for _, value in scored), reverse=True)[
        math.ceil(TOP_SHARE * len(scored)) - 1
    ]
    everyone = [point for point, _ in scored]
    best = [point for point, value in scored if value >= cut]
    raw = {axis.name: _divergence(axis, best, everyone) for axis in axes}
    total = sum(raw.values())
    if len(best) == len(everyone) or total <= 0:
        return {}, 0
    return {name: float(each / total) for name, each in raw.items()}, len(best)


def _correlation(axis: Axis, scored: Scored) -> float | None:
    """Spearman's, of the trials that have the parameter; None of words, of few trials and of equal ones."""
    if any(isinstance(choice, str | bool) for choice in axis.choices):
        return None
    placed = [(axis.place(point.params.get(axis.name)), value) for point, value in scored]
    known = [(place, value) for place, value in placed if place is not None]
    if len(known) < LEAST_RANKED:
        return None
    places, values = (_ranks(np.array(each)) for each in zip(*known, strict=True))
    if np.ptp(places) == 0 or np.ptp(values) == 0:
        return None
    return float(np.corrcoef(places, values)[0, 1])


def _ranks(values: Floats) -> Floats:
    """Equal ones share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _divergence(axis: Axis, best: Sequence[TrialPoint], everyone: Sequence[TrialPoint]) -> float:
    """Pearson's, of the best against all; of those that have the parameter, by their share of either."""
    top, every = _counts(axis, best), _counts(axis, everyone)
    if not top.sum() or every.sum() < 2:
        return 0.0
    density = _choices_density if axis.choices else _range_density
    ratio = density(top) / density(every)
    divergence = float(density(every) @ (ratio - 1) ** 2)
    of_best, of_all = top.sum() / len(best), every.sum() / len(everyone)
    return divergence * of_best**2 / of_all


def _counts(axis: Axis, points: Sequence[TrialPoint]) -> Floats:
    """How many of the trials lie at each place of the axis's grid."""
    places = [axis.place(point.params.get(axis.name)) for point in points]
    known = np.array([place for place in places if place is not None])
    size = axis.num_places(GRID)
    # Ties go to the lower place.
    indices = np.clip(np.ceil(known * (size - 1) - 0.5).astype(int), 0, size - 1)
    return np.bincount(indices, minlength=size).astype(np.float64)


def _range_density(counts: Floats) -> Floats:
    """A normal kernel on each place, cut at the ends of the grid, and a broad one as prior."""
    seen = np.flatnonzero(counts).astype(np.float64)
    weights = counts[counts > 0]
    last = counts.size - 1
    widths = np.append(np.full(seen.size, _width(seen, weights)), last + 1.0)
    centres = np.append(seen, last / 2)
    grid = np.arange(counts.size)[:, None]

    def below(edge: NDArray[np.floating[Any]] | float) -> Floats:
        return scipy.special.ndtr((edge - centres) / widths)

    mass = (below(grid + 0.5) - below(grid - 0.5)) / (below(last + 0.5) - below(-0.5))
    mixed = mass @ np.append(weights, 1.0) / (weights.sum() + 1.0)
    return mixed + _TINY


def _width(seen: Floats, weights: Floats) -> float:
    """Scott's rule."""
    total = weights.sum()
    mean = (seen @ weights) / total
    deviation = math.sqrt(((seen - mean) ** 2 @ weights) / max(1.0, total - 1))
    reached = np.cumsum(weights)
    first = np.searchsorted(reached, total // 4, side="left")
    third = np.searchsorted(reached, total * 3 // 4, side="right")
    spread = seen[min(seen.size - 1, int(third))] - seen[int(first)]
    return max(1.059 * min(spread / 1.34, deviation) * total**-0.2, _LEAST_WIDTH)


def _choices_density(counts: Floats) -> Floats:
    """The choices as often as they were taken, each kernel and a prior spread over all of them."""
    seen = np.flatnonzero(counts)
    kernels = np.full((seen.size + 1, counts.size), 1 / (seen.size + 1))
    kernels[np.arange(seen.size), seen] += 1
    kernels /= kernels.sum(axis=1, keepdims=True)
    weights = np.append(counts[seen], 1.0)
    return weights @ kernels / weights.sum() + _TINY
