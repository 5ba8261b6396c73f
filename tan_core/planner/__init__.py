"""Planner: from a study to the run, the simulations and the cost. Pure decisions, no torch."""

from tan_core.planner.build import plan_mechanism, plan_study
from tan_core.planner.candidates import Candidate, Target, candidate, simulation
from tan_core.planner.climb import may_climb, most_examples
from tan_core.planner.cost import MeasuredRate
from tan_core.planner.counted import Counted
from tan_core.planner.finals import Goal, Repeat, next_repeat
from tan_core.planner.heats import SMALLEST_PART, in_parts
from tan_core.planner.lineage import factor_of, start_of
from tan_core.planner.model_cost import ModelCost, model_cost
from tan_core.planner.plan import Plan
from tan_core.planner.prediction import Evaluation, Standing, observed, rests_on, standings
from tan_core.planner.promotion import Promotion, choose_winner
from tan_core.planner.reservations import reservations
from tan_core.planner.rungs import batch_ladder, reduction_factor
from tan_core.planner.segments import Segments, reserved_mechanism, segment_rule

__all__ = [
    "SMALLEST_PART",
    "Candidate",
    "Counted",
    "Evaluation",
    "Goal",
    "MeasuredRate",
    "ModelCost",
    "Plan",
    "Promotion",
    "Repeat",
    "Segments",
    "Standing",
    "Target",
    "batch_ladder",
    "candidate",
    "choose_winner",
    "factor_of",
    "in_parts",
    "may_climb",
    "model_cost",
    "most_examples",
    "next_repeat",
    "observed",
    "plan_mechanism",
    "plan_study",
    "reduction_factor",
    "reservations",
    "reserved_mechanism",
    "rests_on",
    "segment_rule",
    "simulation",
    "standings",
    "start_of",
]
