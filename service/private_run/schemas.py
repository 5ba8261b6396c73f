"""What the API says about the course of a private run."""

from datetime import datetime

from pydantic import BaseModel

from tan_core.wire import UpdatePoint


class StepPoint(BaseModel):
    """What its driver reported."""

    at: datetime
    step: int
    steps_per_second: float | None


class Segment(BaseModel):
    """Steps that were charged, before they ran."""

    at: datetime
    start_step: int
    num_steps: int
    charged_steps: int
    """With all that were charged before."""


class SpendingPoint(BaseModel):
    """What so many charged steps cost."""

    charged_steps: int
    epsilon: float


class RatePoint(BaseModel):
    """The learning rate of a step."""

    step: int
    """Steps taken before it."""
    learning_rate: float


class PrivateRunCurves(BaseModel):
    """The private run over its steps. Of a long one some points stand for all.

    There is no loss, no accuracy and no gradient of an example in it: each would be another look at the
    private data, with a price of its own. ``updates`` are functions of what the mechanism released, and are
    told when the run is over: who stops a run for what it shows would owe the price of every planned step.
    """

    steps: int
    """That were planned."""
    charged_steps: int | None
    """So far; None on a public dataset, where nothing is charged."""
    delta: float
    """That every epsilon here holds with, by ``accountant``."""
    accountant: str
    neighboring_relation: str
    search_note: str
    progress: list[StepPoint]
    """In order of time, and of a run that has ended its last step; empty once its events are forgotten."""
    segments: list[Segment]
    """In order of time; empty on a public dataset."""
    spending: list[SpendingPoint]
    """From no step to all that are reserved, ``charged_steps`` among them, or to these once the rest was given back; empty on a
    public dataset."""
    learning_rates: list[RatePoint]
    updates: list[UpdatePoint]
    """Empty until the run has succeeded."""
