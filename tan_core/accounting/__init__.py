"""Accounting: what a mechanism costs, and the noise that a target needs. No torch here."""

from tan_core.accounting.calibrate import calibrate_noise_multiplier, calibrate_steps
from tan_core.accounting.gaussian import gdp_delta, gdp_epsilon, gdp_mu
from tan_core.accounting.price import MIN_DELTA, Price, price, round_up

__all__ = [
    "MIN_DELTA",
    "Price",
    "calibrate_noise_multiplier",
    "calibrate_steps",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "price",
    "round_up",
]
