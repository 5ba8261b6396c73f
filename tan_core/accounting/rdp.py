r"""Epsilon by Rényi differential privacy: divergences by dp-accounting, converted here.

Two conversions of a divergence :math:`\varepsilon_\alpha` to (epsilon, delta):

.. math::

    \text{improved:}\quad \varepsilon = \varepsilon_\alpha + \log\tfrac{\alpha-1}{\alpha}
        - \frac{\log(\alpha\delta)}{\alpha-1}, \qquad
    \text{classical:}\quad \varepsilon = \varepsilon_\alpha + \frac{\log(1/\delta)}{\alpha-1}.

The library's own conversion takes a divergence that round-off made negative for a free run; here such
an order is left out.

Each order costs the library up to some milliseconds, and most of 204 tell nothing. With
:math:`t = \alpha - 1`, :math:`K(t) = t\,\varepsilon_\alpha` is a sum of log-moments of privacy losses,
so convex. Both conversions are :math:`\varepsilon = (K(t) + g(t)) / t` with

.. math::

    \text{classical:}\quad g(t) = \log\tfrac{1}{\delta}, \qquad
    \text{improved:}\quad g(t) = \log\tfrac{1}{\delta} + t\log t - (t + 1)\log(t + 1),

and :math:`g'' = 0` or :math:`1/t - 1/(t + 1) > 0`: wherever :math:`\varepsilon \le c`, the convex
:math:`K + g - c\,t` is at most 0, and that is an interval. So over the orders epsilon falls and then
rises, and the logarithm of delta, :math:`K(t) - t\,\varepsilon + \dots`, is convex. The library is exact
at whole orders and above the truth at others (it adds up terms of alternating sign by their size): the
best whole order is found by halving, and of the others those between its neighbours can be better.

References:
    Canonne, Kamath and Steinke (2020), proposition 12; Mironov (2017), proposition 3.
"""

import logging
import math
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tan_core.accounting.events import rdp_event, relation_of
from tan_core.choice import Choice
from tan_core.errors import AccountantError
from tan_core.mechanism import Mechanism, Sampling

ORDERS: tuple[float, ...] = (
    *(round(1 + thousandths / 1000, 3) for thousandths in range(20, 150, 5)),
    *(round(1 + hundredths / 100, 2) for hundredths in range(15, 30)),
    *(round(1 + tenths / 10, 1) for tenths in range(3, 100)),
    *(float(order) for order in range(11, 64)),
    64.0, 72.0, 80.0, 96.0, 112.0, 128.0, 160.0, 192.0, 256.0, 384.0, 512.0, 768.0, 1024.0,
)  # fmt: skip

_WHOLE = tuple(order for order in ORDERS if order.is_integer())


class Conversion(Choice):
    """How a Rényi divergence becomes (epsilon, delta)."""

    IMPROVED = "improved"
    CLASSICAL = "classical"


@dataclass(frozen=True, slots=True)
class RdpProfile:
    """Rényi divergences of a composition at :data:`ORDERS`. Made by :func:`rdp_profile`."""

    orders: NDArray[np.float64]
    divergences: NDArray[np.float64]
    conversion: Conversion

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 over the orders."""
        r = self.divergences
        if self.conversion is Conversion.IMPROVED and bool(np.any(_total_variation(r) < delta)):
            return 0.0
        return float(max(np.min(_epsilons(self.orders, r, delta, self.conversion)), 0.0))

    def delta(self, epsilon: float) -> float:
        """The least delta over the orders."""
        r = self.divergences
        least = np.exp(min(np.min(_log_deltas(self.orders, r, epsilon, self.conversion)), 0.0))
        if self.conversion is Conversion.IMPROVED:
            return float(min(least, np.min(_total_variation(r))))
        return float(least)


@dataclass(frozen=True, slots=True)
class SearchedRdpProfile:
    """The answers of :func:`rdp_profile` from the orders that can give them: see the module's docstring.

    All of them are computed where convexity is not known, for batches of fixed size, or where the library
    has no divergence at a whole order that it was asked for.
    """

    mechanisms: Sequence[Mechanism]
    conversion: Conversion = Conversion.IMPROVED
    _known: dict[float, float] = field(default_factory=dict)

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 over the orders."""
        return self._around(lambda a, r: _epsilons(a, r, delta, self.conversion)).epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """The least delta over the orders."""
        return self._around(lambda a, r: _log_deltas(a, r, epsilon, self.conversion)).delta(epsilon)

    def _around(self, bounds: "_Bounds") -> RdpProfile:
        """The divergences around the best order, and at the lowest, which bound total variation."""
        if any(one.sampling is Sampling.FIXED_SIZE for one in self.mechanisms):
            return rdp_profile(self.mechanisms, self.conversion)
        try:
            low, high = 0, len(_WHOLE) - 1
            while low < high:
                middle = (low + high) // 2
                falls = self._bound(bounds, middle) > self._bound(bounds, middle + 1)
                low, high = (middle + 1, high) if falls else (low, middle)
        except _NoDivergenceError:
            return rdp_profile(self.mechanisms, self.conversion)
        below = _WHOLE[low - 1] if low else 1.0
        above = _WHOLE[min(low + 1, len(_WHOLE) - 1)]
        self._learn([ORDERS[0], _WHOLE[0], *(order for order in ORDERS if below < order < above)])
        return _profile(sorted(self._known.items()), self.conversion)

    def _bound(self, bounds: "_Bounds", index: int) -> float:
        order = _WHOLE[index]
        self._learn([order])
        divergence = self._known[order]
        if not _is_usable(divergence):
            raise _NoDivergenceError
        return float(bounds(np.float64(order), np.float64(divergence)))

    def _learn(self, orders: Sequence[float]) -> None:
        asked = [order for order in orders if order not in self._known]
        if asked:
            found = _divergences(self.mechanisms, asked)
            self._known.update(zip(asked, found.tolist(), strict=True))


def rdp_profile(
    mechanisms: Sequence[Mechanism], conversion: Conversion = Conversion.IMPROVED
) -> RdpProfile:
    """The Rényi divergences of a composition; valid under adaptive choice too.

    Raises:
        UnsupportedEventError: no Rényi bound is known for a sampling and relation.
        AccountantError: no order has a finite divergence.
    """
    found = _divergences(mechanisms, ORDERS)
    return _profile(zip(ORDERS, found.tolist(), strict=True), Conversion(conversion))


class _NoDivergenceError(Exception):
    """Of an order: it did not converge, or round-off took it below 0."""


_Array = NDArray[np.float64]
_Bounds = Callable[[Any, Any], Any]
"""Of orders and divergences, arrays or numbers: what falls and then rises."""


def _profile(found: Iterable[tuple[float, float]], conversion: Conversion) -> RdpProfile:
    usable = [(order, divergence) for order, divergence in found if _is_usable(divergence)]
    if not usable:
        raise AccountantError("rdp failed: no order has a finite divergence")
    orders, divergences = np.array(usable).T
    return RdpProfile(orders, divergences, conversion)


def _is_usable(divergence: float) -> bool:
    return math.isfinite(divergence) and divergence >= 0


def _divergences(mechanisms: Sequence[Mechanism], orders: Sequence[float]) -> _Array:
    from dp_accounting.rdp import RdpAccountant  # see the note in events.py

    events = [rdp_event(mechanism) for mechanism in mechanisms]
    accountant = RdpAccountant(orders=orders, neighboring_relation=relation_of(mechanisms))
    try:
        with np.errstate(all="ignore"), _quiet_about_dropped_orders():
            for event, count in events:
                accountant.compose(event, count)
    except (ArithmeticError, MemoryError, ValueError) as error:
        raise AccountantError.of_library("rdp", error) from error
    # The library keeps the divergences to itself; its conversions are the only public way out.
    return np.asarray(vars(accountant)["_rdp"], dtype=np.float64)


def _epsilons(a: _Array, r: _Array, delta: float, conversion: Conversion) -> _Array:
    epsilons = r - np.log(delta) / (a - 1)
    if conversion is Conversion.IMPROVED:
        epsilons = epsilons + np.log1p(-1 / a) - np.log(a) / (a - 1)
    return epsilons


def _log_deltas(a: _Array, r: _Array, epsilon: float, conversion: Conversion) -> _Array:
    log_deltas = (a - 1) * (r - epsilon)
    if conversion is Conversion.IMPROVED:
        log_deltas = log_deltas + (a - 1) * np.log1p(-1 / a) - np.log(a)
    return log_deltas


def _total_variation(divergences: NDArray[np.float64]) -> NDArray[np.float64]:
    """A bound on delta at epsilon 0 (Bretagnolle and Huber): a divergence of any order is above KL."""
    return np.sqrt(-np.expm1(-divergences))


class _DroppedOrder(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to let a record pass: a fractional order that is left out harms nothing."""
        return not str(record.msg).startswith("_compute_log_a_frac failed to converge")


@contextmanager
def _quiet_about_dropped_orders() -> Generator[None]:
    """Epsilon is a minimum over orders: one that does not converge is infinite, and says so 100x."""
    logger, dropped = logging.getLogger("absl"), _DroppedOrder()
    logger.addFilter(dropped)
    try:
        yield
    finally:
        logger.removeFilter(dropped)
