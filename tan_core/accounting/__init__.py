"""Accounting: what a mechanism costs, and the noise that a target needs. No torch here."""

from tan_core.accounting.calibrate import (
    calibrate_noise_multiplier,
    calibrate_sampling_rate,
    calibrate_steps,
)
from tan_core.accounting.gaussian import (
    GdpEstimate,
    gdp_delta,
    gdp_epsilon,
    gdp_estimate,
    gdp_mu,
)
from tan_core.accounting.price import MIN_DELTA, Price, price, round_up
from tan_core.accounting.profile import PrivacyProfile
from tan_core.accounting.rdp import Conversion

__all__ = [
    "MIN_DELTA",
    "Conversion",
    "GdpEstimate",
    "Price",
    "PrivacyProfile",
    "calibrate_noise_multiplier",
    "calibrate_sampling_rate",
    "calibrate_steps",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_estimate",
    "gdp_mu",
    "price",
    "round_up",
]
