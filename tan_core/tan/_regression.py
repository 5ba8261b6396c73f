r"""Linear regression over a few grouped observations, with the spread of a new one.

.. math:: y = X\beta + \text{rung} + \text{seed} + \text{rest}, \qquad
          \operatorname{Var} = \sigma^2 (f_{rung}, f_{seed}, f_{rest}), \quad \textstyle\sum f = 1.

Observations of one rung share their rung effect, those of one seed their seed effect. Given the three
shares everything is textbook: flat prior on :math:`\beta`, scaled inverse chi-square prior on
:math:`\sigma^2`, hence a Student t for every new observation. Ratios of the shares are uniform on a
logarithmic grid and weighted by their evidence, so nothing is iterated and no share has to be
estimable: one seed, or one rung, is enough.

References:
    Gelman et al. (2013), "Bayesian Data Analysis", sections 14.2 (regression) and 14.7 (unequal
    variances, correlations).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy

Array: TypeAlias = npt.NDArray[np.float64]

_LEVELS = 5  # the three standard deviations are within 1 : 1/2 : ... : 1/16 of one another
_CHI_BINS, _LAST_LOG_ODDS = 48, 9.0  # probabilities to 1e-4 on either side


@dataclass(frozen=True, slots=True)
class VariancePrior:
    """A scaled inverse chi-square: as if ``weight`` earlier observations had this ``std``."""

    std: float
    weight: float


@dataclass(frozen=True, slots=True)
class NormalMixture:
    """A weighted mixture of normal distributions."""

    weights: Array
    means: Array
    stds: Array

    def quantile(self, probability: float) -> float:
        """The value below which this probability lies: between the quantiles of the components."""
        ends = self.means + self.stds * scipy.special.ndtri(probability)

        def excess(value: float) -> float:
            return (
                float(self.weights @ scipy.special.ndtr((value - self.means) / self.stds))
                - probability
            )

        low, high = float(ends.min()), float(ends.max())
        if excess(low) >= 0 or excess(high) <= 0:  # components that agree, up to round-off
            return (low + high) / 2
        return float(scipy.optimize.brentq(excess, low, high, xtol=1e-9))


@dataclass(frozen=True, slots=True)
class Regression:
    """The posterior: one row per combination of shares.

    Args:
        weights: H, of each combination.
        shares: H x 3, of rung, seed and rest.
        coefficients: H x P.
        covariances: H x P x P, of the coefficients, over sigma^2.
        variances: H, sigma^2: the variance of one new observation about the true line.
        degrees: of freedom.
    """

    weights: Array
    shares: Array
    coefficients: Array
    covariances: Array
    variances: Array
    degrees: float

    @classmethod
    def fit(
        cls,
        design: Array,
        values: Array,
        *,
        rungs: Sequence[float],
        seeds: Sequence[float],
        prior: VariancePrior,
    ) -> Self:
        """The posterior given an N x P design of full rank, N values, and the N labels of the groups."""
        shares = _share_grid()
        kernels = np.stack([_same(rungs), _same(seeds), np.eye(len(values))])
        roots = np.linalg.cholesky(np.einsum("hk,kij->hij", shares, kernels))
        # Both sides in units of independent noise, at every combination of shares: H x N x (P + 1).
        sides = np.column_stack([design, values])
        white = _array(np.linalg.solve(roots, np.broadcast_to(sides, (len(shares), *sides.shape))))
        white_design, white_values = white[:, :, :-1], white[:, :, -1]
        covariances = _array(np.linalg.inv(white_design.mT @ white_design))
        coefficients = np.einsum("hij,hnj,hn->hi", covariances, white_design, white_values)
        residuals = white_values - np.einsum("hnj,hj->hn", white_design, coefficients)
        degrees = prior.weight + len(values) - design.shape[1]
        variances = (prior.weight * prior.std**2 + (residuals**2).sum(axis=1)) / degrees
        log_evidence = (
            -np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
            + np.linalg.slogdet(covariances)[1] / 2
            - degrees / 2 * np.log(variances)
        )
        return cls(
            weights=scipy.special.softmax(log_evidence),
            shares=shares,
            coefficients=coefficients,
            covariances=covariances,
            variances=variances,
            degrees=degrees,
        )

    def new_observation(self, row: Array, *, drift: float, drift_std: float) -> NormalMixture:
        """One observation of a new seed on a new rung, moved by a normal drift.

        A Student t is a normal whose variance is over an uncertain chi-square: written out so, the
        drift's variance adds exactly, and never makes the sum narrower.
        """
        leverage = np.einsum("i,hij,j->h", row, self.covariances, row)
        chi_weights, chi_squares = _mean_chi_squares(self.degrees)
        variances = np.outer(self.variances * (1 + leverage), 1 / chi_squares) + drift_std**2
        return NormalMixture(
            weights=np.outer(self.weights, chi_weights).ravel(),
            means=np.repeat(self.coefficients @ row + drift, len(chi_squares)),
            stds=np.sqrt(variances).ravel(),
        )

    def mean_coefficients(self) -> Array:
        """The coefficients, averaged over the shares."""
        return self.weights @ self.coefficients

    def stds(self) -> tuple[float, float]:
        """Spread of rungs about the line, and of seeds on one rung."""
        rung, seed, rest = (self.weights * self.variances) @ self.shares
        return float(np.sqrt(rung)), float(np.sqrt(seed + rest))


def _share_grid() -> Array:
    """Every combination of three standard deviations in powers of 2, as shares of the variance.

    A grid of equal steps would do for like spreads alone: its smallest share bounds the total by what
    the least noisy part shows.
    """
    powers = [row for row in product(range(_LEVELS), repeat=3) if min(row) == 0]
    variances = 4.0 ** -np.array(powers, dtype=np.float64)
    return variances / variances.sum(axis=1, keepdims=True)


def _mean_chi_squares(degrees: float) -> tuple[Array, Array]:
    """Weights and values of a chi-square over its degrees of freedom, in bins of equal log odds."""
    edges = scipy.special.expit(np.linspace(-_LAST_LOG_ODDS, _LAST_LOG_ODDS, 2 * _CHI_BINS + 1))
    weights = np.diff(edges[::2])
    values = 2 / degrees * scipy.special.gammaincinv(degrees / 2, edges[1::2])
    return _array(weights / weights.sum()), _array(values)


def _same(labels: Sequence[float]) -> Array:
    """1 where two observations have the same label."""
    column = np.asarray(labels)[:, None]
    return (column == column.T).astype(np.float64)


def _array(values: Any) -> Array:
    """What numpy's linear algebra returns, as what it is here."""
    return np.asarray(values, dtype=np.float64)
