"""What a plan may be asked for by: a study, a study on data that is not registered, a mechanism."""

from typing import Annotated, Literal

from pydantic import Field

from service.ledger.schemas import BudgetFit
from tan_core.mechanism import Accountant
from tan_core.planner import Plan
from tan_core.spec.base import Frozen

NumExamples = Annotated[int, Field(ge=1, le=10**12)]


class PlanView(Plan):
    """A plan as it is told, with what is so now; what a study keeps of it says nothing that may change."""

    budget: BudgetFit | None = Field(default=None, exclude_if=lambda budget: budget is None)
    """Whether the budget of the dataset would admit the study now; left out where there is none: the data are public, or not
    registered."""


class UnregisteredDataset(Frozen):
    """``dataset: {num_examples: N}``: a plan needs no more than N."""

    num_examples: NumExamples


class MechanismShape(Frozen):
    """A private run whose noise is fixed: its epsilon is computed."""

    num_examples: NumExamples
    expected_batch_size: Annotated[float, Field(ge=1, le=1e12)]
    noise_multiplier: Annotated[float, Field(gt=0, le=10_000)]
    steps: Annotated[int, Field(ge=1, le=10_000_000)]
    clip_norm: Annotated[float, Field(gt=0, le=1e9)] = 1.0


class MechanismPlanRequest(Frozen):
    """A plan by mechanism instead of by target."""

    mechanism: MechanismShape
    delta: Annotated[float, Field(gt=0, lt=1)]
    accountant: Accountant = Accountant.PLD
    trials: Annotated[int, Field(ge=1, le=100_000)] = 24
    rungs: (
        Literal["auto"]
        | Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1, max_length=8)]
    ) = "auto"
    """Simulated batch sizes, smallest first."""
