"""How much each searched parameter mattered for being among the best: PED-ANOVA.

The density of a parameter among the best tenth of the completed trials is held against its density among
all of them: the Pearson divergence of the two, as a share of those of all parameters.

References:
    Watanabe, Bansal and Hutter (2023), "PED-ANOVA", algorithm 1. Grid, bandwidth and prior are those of
    Optuna's evaluator, which tests hold this against: the service runs without Optuna.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from service.dashboard.charts.axis import Axis
from service.dashboard.charts.table import Table
from service.dashboard.charts.trial_point import TrialPoint, completed

TOP_SHARE = 0.1
GRID = 50
LEAST_TRIALS = 20
"""Completed ones: among fewer, a best tenth says nothing."""
_LEAST_WIDTH = 0.5 / 1.64
_TINY = 1e-12
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Importance:
    """The shares of the parameters, the largest first; together 1."""

    shares: tuple[tuple[str, float], ...]
    num_trials: int
    num_best: int

    @property
    def table(self) -> Table:
        """As it is shown."""
        return Table(("parameter", "importance"), self.shares)


def importance(points: Sequence[TrialPoint], axes: Sequence[Axis]) -> Importance | None:
    """The importances; None with fewer than 20 completed trials, one parameter, or nothing to tell apart."""
    done = completed(points)
    if len(done) < LEAST_TRIALS or len(axes) < 2:
        return None
    cut = sorted((value for _, value in done), reverse=True)[math.ceil(TOP_SHARE * len(done)) - 1]
    everyone = [point for point, _ in done]
    best = [point for point, value in done if value >= cut]
    raw = {axis.name: _divergence(axis, best, everyone) for axis in axes}
    total = sum(raw.values())
    if len(best) == len(everyone) or total <= 0:
        return None
    ranked = sorted(raw.items(), key=lambda pair: -pair[1])
    return Importance(
        tuple((name, float(each / total)) for name, each in ranked), len(done), len(best)
    )


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
        return ndtr((edge - centres) / widths)

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
