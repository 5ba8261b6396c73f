r"""Epsilon by Rényi differential privacy: divergences by dp-accounting, converted here.

Two conversions of a divergence :math:`\varepsilon_\alpha` to (epsilon, delta):

.. math::

    \text{improved:}\quad \varepsilon = \varepsilon_\alpha + \log\tfrac{\alpha-1}{\alpha}
        - \frac{\log(\alpha\delta)}{\alpha-1}, \qquad
    \text{classical:}\quad \varepsilon = \varepsilon_\alpha + \frac{\log(1/\delta)}{\alpha-1}.

The library's own conversion takes a divergence that round-off made negative for a free run; here such
an order is left out.

References:
    Canonne, Kamath and Steinke (2020), proposition 12; Mironov (2017), proposition 3.
"""

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tan_core.accounting.events import rdp_event, relation_of
from tan_core.choice import Choice
from tan_core.errors import AccountantError
from tan_core.mechanism import Mechanism

ORDERS: tuple[float, ...] = (
    *(round(1 + thousandths / 1000, 3) for thousandths in range(20, 150, 5)),
    *(round(1 + hundredths / 100, 2) for hundredths in range(15, 30)),
    *(round(1 + tenths / 10, 1) for tenths in range(3, 100)),
    *(float(order) for order in range(11, 64)),
    64.0, 72.0, 80.0, 96.0, 112.0, 128.0, 160.0, 192.0, 256.0, 384.0, 512.0, 768.0, 1024.0,
)  # fmt: skip


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
        a, r = self.orders, self.divergences
        epsilons = r - np.log(delta) / (a - 1)
        if self.conversion is Conversion.IMPROVED:
            epsilons += np.log1p(-1 / a) - np.log(a) / (a - 1)
            if bool(np.any(_total_variation(r) < delta)):
                return 0.0
        return float(max(np.min(epsilons), 0.0))

    def delta(self, epsilon: float) -> float:
        """The least delta over the orders."""
        a, r = self.orders, self.divergences
        log_deltas = (a - 1) * (r - epsilon)
        if self.conversion is Conversion.IMPROVED:
            log_deltas += (a - 1) * np.log1p(-1 / a) - np.log(a)
            return float(min(np.exp(np.min(log_deltas)), np.min(_total_variation(r)), 1.0))
        return float(min(np.exp(np.min(log_deltas)), 1.0))


def rdp_profile(
    mechanisms: Sequence[Mechanism], conversion: Conversion = Conversion.IMPROVED
) -> RdpProfile:
    """The Rényi divergences of a composition; valid under adaptive choice too.

    Raises:
        UnsupportedEventError: no Rényi bound is known for a sampling and relation.
        AccountantError: no order has a finite divergence.
    """
    from dp_accounting.rdp import RdpAccountant  # see the note in events.py

    events = [rdp_event(mechanism) for mechanism in mechanisms]
    accountant = RdpAccountant(orders=ORDERS, neighboring_relation=relation_of(mechanisms))
    try:
        with np.errstate(all="ignore"), _quiet_about_dropped_orders():
            for event, count in events:
                accountant.compose(event, count)
    except (ArithmeticError, MemoryError, ValueError) as error:
        raise AccountantError(f"rdp failed: {error or type(error).__name__}") from error
    # The library keeps the divergences to itself; its conversions are the only public way out.
    divergences = np.asarray(vars(accountant)["_rdp"], dtype=np.float64)
    orders = np.asarray(ORDERS)
    usable = np.isfinite(divergences) & (divergences >= 0)
    if not np.any(usable):
        raise AccountantError("rdp failed: no order has a finite divergence")
    return RdpProfile(orders[usable], divergences[usable], Conversion(conversion))


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
