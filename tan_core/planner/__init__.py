"""Planner: from a study to the run, the simulations and the cost. Pure decisions, no torch."""

from tan_core.planner.build import plan_mechanism, plan_study
from tan_core.planner.candidates import Candidate, Target, candidate, simulation
from tan_core.planner.plan import Plan
from tan_core.planner.promotion import choose_winner
from tan_core.planner.reservations import reservations
from tan_core.planner.segments import Segments, reserved_mechanism, segment_rule

__all__ = [
    "Candidate",
    "Plan",
    "Segments",
    "Target",
    "candidate",
    "choose_winner",
    "plan_mechanism",
    "plan_study",
    "reservations",
    "reserved_mechanism",
    "segment_rule",
    "simulation",
]
