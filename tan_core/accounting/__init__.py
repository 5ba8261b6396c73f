"""Accounting: what a mechanism costs, and the noise that a target needs. No torch here."""

from tan_core.accounting.calibrate import (
    calibrate_noise_multiplier,
    calibrate_sampling_rate,
    calibrate_steps,
)
from tan_core.accounting.conditions import Candidates, Released, Scores, SelectionConditions
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
from tan_core.accounting.search import (
    SEARCH_NOTES,
    SearchAccounting,
    SearchPrice,
    note_of_search,
    price_search,
)
from tan_core.accounting.selection import SelectionBound, calibrate_selection, price_selection
from tan_core.accounting.trial_count import NegativeBinomialTrials, PoissonTrials, TrialCount

__all__ = [
    "MIN_DELTA",
    "SEARCH_NOTES",
    "Candidates",
    "Conversion",
    "GdpEstimate",
    "NegativeBinomialTrials",
    "PoissonTrials",
    "Price",
    "PrivacyProfile",
    "Released",
    "Scores",
    "SearchAccounting",
    "SearchPrice",
    "SelectionBound",
    "SelectionConditions",
    "TrialCount",
    "calibrate_noise_multiplier",
    "calibrate_sampling_rate",
    "calibrate_selection",
    "calibrate_steps",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_estimate",
    "gdp_mu",
    "note_of_search",
    "price",
    "price_search",
    "price_selection",
    "round_up",
]
