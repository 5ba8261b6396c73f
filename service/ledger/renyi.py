r"""Rényi divergences of an event, beside those that the database computes; and what they sum to.

One step of the Poisson-sampled Gaussian mechanism has, at order :math:`\alpha`,

.. math::

    \frac{1}{\alpha - 1} \log \mathbb{E}_{t \sim N(0, 1)}
        \left[\left(1 - q + q e^{t/\sigma - 1/(2\sigma^2)}\right)^\alpha\right].

References:
    Mironov, Talwar and Zhang (2019), theorem 4; Canonne, Kamath and Steinke (2020), proposition 12.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tan_core.mechanism import Mechanism, NeighboringRelation, Sampling

ORDERS: tuple[float, ...] = (
    1.0625, 1.125, 1.1875, 1.25, 1.375, 1.5, 1.625, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.25, 3.5, 3.75,
    4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0, 24.0,
    28.0, 32.0, 36.0, 40.0, 48.0, 56.0, 64.0, 80.0, 96.0, 128.0, 160.0, 192.0, 256.0, 384.0, 512.0,
)  # fmt: skip
"""As ``ledger_orders()`` has them in the database."""
MAX_ORDER_OVER_SIGMA = 60.0
"""Above it a divergence is huge, of no use, and not computed."""
TOLERANCE = 1e-9
_ROUND_OFF = 1e-11
"""What a logarithm of nearly 1 may be off by, absolute; it is divided by order - 1."""
Divergences = tuple[float | None, ...]


def divergences(mechanism: Mechanism) -> Divergences | None:
    """Of one step at :data:`ORDERS`, whatever the number of steps; None for a sampling and relation without a known bound."""
    rate, sigma = mechanism.sampling_rate, mechanism.noise_multiplier
    replaced = mechanism.neighboring_relation is NeighboringRelation.REPLACE_ONE
    if mechanism.sampling is not Sampling.POISSON or (replaced and rate < 1):
        return None
    return _of_step(rate, sigma / mechanism.neighboring_relation.sensitivity)


@lru_cache(maxsize=4096)
def _of_step(rate: float, sigma: float) -> Divergences:
    return tuple(_divergence(rate, sigma, order) for order in ORDERS)


def agree(stored: Sequence[float | None] | None, computed: Divergences | None) -> bool:
    """Whether two computations of the same divergences differ by no more than rounding."""
    if stored is None or computed is None:
        return stored is None and computed is None
    return len(stored) == len(computed) and all(
        (one is None and other is None)
        or (
            one is not None
            and other is not None
            and math.isclose(
                one, other, rel_tol=TOLERANCE, abs_tol=_ROUND_OFF / (ORDERS[place] - 1)
            )
        )
        for place, (one, other) in enumerate(zip(stored, computed, strict=True))
    )


def epsilon(mechanisms: Sequence[Mechanism], *, order: float | None, delta: float) -> float:
    """What the mechanisms sum to, as an epsilon at ``delta``: at one order, or at the best of all.

    Infinite where no divergence is known. The best of all is no guarantee under adaptive choice.
    """
    if not mechanisms:
        return 0.0
    spent = np.zeros(len(ORDERS))
    for mechanism in mechanisms:
        spent += mechanism.steps * _known(divergences(mechanism))
    places = range(len(ORDERS)) if order is None else [ORDERS.index(order)]
    return min(_epsilon_at(place, float(spent[place]), delta) for place in places)


def least(order: float, delta: float) -> float:
    """The epsilon at one order of what diverges by next to nothing: under a filter no smaller limit admits anything."""
    return _epsilon_at(ORDERS.index(order), 0.0, delta)


def wall(budget: float) -> float:
    """The epsilon that no client of a ``pld`` scope gets beyond, whatever it says it priced."""
    return max(1.2 * budget, budget + 1)


def _epsilon_at(place: int, spent: float, delta: float) -> float:
    order = ORDERS[place]
    return max(0.0, spent + math.log1p(-1 / order) - math.log(delta * order) / (order - 1))


@lru_cache(maxsize=4096)
def _known(found: Divergences | None) -> NDArray[np.float64]:
    """With infinity where none is."""
    none: Divergences = (None,) * len(ORDERS)
    return np.array([math.inf if one is None else one for one in found or none])


def _divergence(rate: float, sigma: float, order: float) -> float | None:
    """By the trapezoid rule at half the step of the database: what both agree on is the integral."""
    if order > MAX_ORDER_OVER_SIGMA * sigma:
        return None
    step = min(0.25, sigma / 4) / 2
    t = np.arange(-10.0, order / sigma + 10.0 + step, step)
    loss = t / sigma - 1 / (2 * sigma**2)
    kept = math.log1p(-rate) if rate < 1 else -math.inf
    logarithms = order * np.logaddexp(kept, math.log(rate) + loss) - t**2 / 2
    largest = float(np.max(logarithms))
    total = float(np.sum(np.exp(logarithms - largest))) * step / math.sqrt(2 * math.pi)
    return max(0.0, largest + math.log(total)) / (order - 1)
