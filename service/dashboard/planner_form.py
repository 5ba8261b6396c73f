"""What the planner asks for: read from the address, so that a plan can be shared, and made a study."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tan_core.accounting import MIN_DELTA, SearchAccounting
from tan_core.mechanism import NeighboringRelation
from tan_core.planner.sketch import Dials
from tan_core.spec import FieldProblem, field_problems
from tan_core.spec.models import MODEL_TYPES
from tan_core.spec.study import Name

UNNAMED = "your-dataset"
"""Stands in the YAML where no registered dataset was chosen."""
_NUMBERS = ("epsilon", "delta", "num_examples", "batch_size", "steps", "trials")


class PlannerForm(BaseModel):
    """The dials. What is left out takes its default, and so does data that is not chosen."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    dataset: Name | None = None
    """A registered one, which then says N; None: any data of ``num_examples``."""
    num_examples: Annotated[int, Field(ge=1, le=10**9)] = 50_000
    epsilon: Annotated[float, Field(gt=0, le=1000)] = 8.0
    delta: Annotated[float, Field(ge=MIN_DELTA, lt=1)] = 1e-5
    batch_size: Annotated[int, Field(ge=1, le=100_000_000)] = 4096
    steps: Annotated[int, Field(ge=1, le=10_000_000)] = 2500
    model: str = "wrn-16-4"
    trials: Annotated[int, Field(ge=1, le=100_000)] = 24
    accounting: SearchAccounting = SearchAccounting.PUBLIC_PROXY
    search_dataset: Name | None = None
    """A public one that simulations read, under ``public_proxy``."""

    @field_validator("model")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name not in MODEL_TYPES:
            raise ValueError(f"accepted here: {', '.join(MODEL_TYPES)}")
        return name

    @classmethod
    def read(cls, query: Mapping[str, str]) -> tuple[Self, list[FieldProblem]]:
        """The form of an address. A field at fault has its default, and its problem is listed."""
        given = {name: value for name, value in query.items() if value}
        emptied = [
            FieldProblem(path=name, message="is empty; a number is needed")
            for name in _NUMBERS
            if query.get(name) == ""
        ]
        try:
            return cls.model_validate(given), emptied
        except ValidationError as error:
            problems = field_problems(error, cls)
            at_fault = {problem.path.partition(".")[0] for problem in problems}
            kept = {name: value for name, value in given.items() if name not in at_fault}
            return cls.model_validate(kept), [*problems, *emptied]

    def dials(self, relation: NeighboringRelation) -> Dials:
        """What the sketch is made of."""
        return Dials(
            num_examples=self.num_examples,
            expected_batch_size=self.batch_size,
            steps=self.steps,
            epsilon=self.epsilon,
            delta=self.delta,
            trials=self.trials,
            neighboring_relation=relation,
        )

    def study(self) -> dict[str, Any]:
        """The study.yaml of this plan."""
        search: dict[str, Any] = {"accounting": self.accounting.value}
        if self.accounting is SearchAccounting.PUBLIC_PROXY and self.search_dataset:
            search["dataset"] = self.search_dataset
        if self.accounting is not SearchAccounting.NO_SEARCH:
            search["trials"] = self.trials
            search["space"] = {"learning_rate": {"low": 0.25, "high": 16.0, "log": True}}
        return {
            "name": f"{(self.dataset or 'planned')[:80]}-eps{self.epsilon:g}",
            "privacy": {"epsilon": self.epsilon, "delta": self.delta},
            "dataset": self.dataset or UNNAMED,
            "model": {"name": self.model},
            "search": search,
            "train": {"batch_size": self.batch_size, "steps": self.steps},
        }

    def body(self) -> dict[str, Any]:
        """The same as ``POST /plans`` takes it: data that is not registered is its size."""
        study = self.study()
        if self.dataset is None:
            study["dataset"] = {"num_examples": self.num_examples}
        return study


@dataclass(frozen=True, slots=True)
class Dial:
    """A field and its slider, which stands at the logarithm of the value."""

    name: str
    label: str
    hint: str
    value: float
    low: float
    high: float
    is_whole: bool = True
    base: int = 10
    """Of the logarithm."""

    def at(self, value: float) -> float:
        """Where on the slider a value stands."""
        return round(math.log(value, self.base), 4)


def dials_of(form: PlannerForm) -> list[Dial]:
    """The dials in the order of the page. Data that is registered says its own size."""
    many = max(form.num_examples, 16)
    dials = [
        Dial("epsilon", "Target ε", "slack included", form.epsilon, 0.1, 50, is_whole=False),
        Dial("delta", "δ", "below 1/N", form.delta, MIN_DELTA, 1e-2, is_whole=False),
        Dial(
            "num_examples",
            "Training examples N",
            "of the private data",
            form.num_examples,
            100,
            1e8,
        ),
        Dial(
            "batch_size", "Expected batch B", "of the private run", form.batch_size, 8, many, base=2
        ),
        Dial("steps", "Steps S", "of the run and of each trial", form.steps, 10, 100_000),
        Dial("trials", "Trials", "candidates of the search", form.trials, 1, 1000),
    ]
    return [dial for dial in dials if form.dataset is None or dial.name != "num_examples"]
