"""Epsilon by Rényi differential privacy (dp-accounting), with the improved conversion."""

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import numpy as np
from dp_accounting.rdp import RdpAccountant

from tan_core.accounting.pld import dp_event
from tan_core.errors import AccountantError
from tan_core.mechanism import Mechanism

CONVERSION = "rdp improved"

ORDERS: tuple[float, ...] = (
    *(round(1 + tenths / 10, 1) for tenths in range(1, 100)),
    *(float(order) for order in range(11, 64)),
    128.0, 256.0, 512.0, 1024.0,
)  # fmt: skip


def rdp_epsilon(mechanisms: Sequence[Mechanism], delta: float) -> float:
    """An upper bound on the epsilon of the composition; valid under adaptive choice too."""
    accountant = RdpAccountant(orders=ORDERS)
    try:
        with np.errstate(all="ignore"), _quiet_about_dropped_orders():
            for mechanism in mechanisms:
                accountant.compose(dp_event(mechanism), mechanism.steps)
            return float(accountant.get_epsilon(delta))
    except (ArithmeticError, MemoryError, ValueError) as error:
        raise AccountantError(f"rdp failed: {error or type(error).__name__}") from error


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
