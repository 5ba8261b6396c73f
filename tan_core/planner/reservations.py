"""What the ledger may have to hold for a study: the planned run, or any candidate in its place.

Candidates of one study meet one target, at the study's delta and by its accountant. At the delta of
a budget their prices differ, so the budget must hold the costliest of them before the search begins.
"""

from tan_core import _validate
from tan_core.execution import PrivateRun
from tan_core.mechanism import Mechanism
from tan_core.planner.candidates import Target, candidate
from tan_core.planner.plan import Plan
from tan_core.planner.segments import reserved_mechanism
from tan_core.spec import Choices, Range, StudySpec

MAX_CHOICES = 16
"""So many choices of ``steps`` are calibrated each; of more, so many of them."""

_POINTS_OF_A_RANGE = 5


def reservations(spec: StudySpec, plan: Plan) -> list[Mechanism]:
    """The planned run's mechanism and those of candidates at other steps, each with its slack.

    Formal guarantees:

    * The planned run comes first; without searched ``steps`` it is all there is.
    * The least and the most steps that the search may choose are always among them.

    Of a range, and of more choices than ``MAX_CHOICES``, the values between are spread evenly by
    ratio. At a fixed target the price at another delta moves steadily with the steps, so the ends
    bound it, to the tolerance of the calibration.

    Raises:
        ParameterError: an argument is of another kind.
        UnreachableTargetError: no noise meets the target at some number of steps.
    """
    _validate.instance(StudySpec, spec=spec)
    _validate.instance(Plan, plan=plan)
    runs = runs_to_choose(spec, plan.private_run())
    return list(dict.fromkeys(reserved_mechanism(run.mechanism) for run in runs))


def runs_to_choose(spec: StudySpec, reference: PrivateRun) -> list[PrivateRun]:
    """The planned run, and those of candidates at other steps; as in :func:`reservations`."""
    return [reference] + [
        candidate(
            trainer=spec.train.trainer(),
            model=spec.model,
            reference=reference,
            params={"steps": steps},
            target=Target.of(spec),
        ).private_run
        for steps in _searched_steps(spec)
    ]


def _searched_steps(spec: StudySpec) -> list[int]:
    """Numbers of steps that the search may choose, the least and the most among them."""
    dimension = spec.searched("steps")
    if dimension is None:
        return []
    if isinstance(dimension, Range):
        return _spread(int(dimension.low), int(dimension.high))
    values = dimension.choices if isinstance(dimension, Choices) else [dimension]
    steps = sorted({int(value) for value in values})
    if len(steps) <= MAX_CHOICES:
        return steps
    return [steps[round(i * (len(steps) - 1) / (MAX_CHOICES - 1))] for i in range(MAX_CHOICES)]


def _spread(low: int, high: int) -> list[int]:
    """Both ends and a few whole numbers between, evenly by ratio."""
    last = _POINTS_OF_A_RANGE - 1
    return sorted({round(low * (high / low) ** (i / last)) for i in range(last)} | {high})
