"""``study.yaml`` as a value: what a user may ask for, checked before anything else sees it."""

import json
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    StrictBool,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails

from tan_core.accounting import SearchAccounting
from tan_core.mechanism import Accountant
from tan_core.spec.base import Frozen, fault
from tan_core.spec.conditions import Conditions
from tan_core.spec.fields import Place, field_of, option_values, searchable_keys, trainer_needs
from tan_core.spec.first import MAX_POINTS, Point, first_faults
from tan_core.spec.grid import grid_faults
from tan_core.spec.models import ExternalModel, ModelSpec
from tan_core.spec.needs import Need
from tan_core.spec.space import (
    MAX_DIMENSIONS,
    Choices,
    Dimension,
    Range,
    Scalar,
    as_written,
    probes,
)
from tan_core.spec.space_keys import no_field, with_unknown_keys
from tan_core.spec.train import UNAUGMENTED, Clipping, TrainerConfig, TrainSpec

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


def _rising(rungs: list[int]) -> list[int]:
    if any(a >= b for a, b in pairwise(rungs)):
        raise ValueError(f"rungs must rise strictly, smallest first, got {rungs}")
    return rungs


Rungs = Annotated[
    list[Annotated[int, Field(ge=1)]], Field(min_length=1, max_length=8), AfterValidator(_rising)
]


StudyId = Annotated[str, Field(pattern=r"^s-[0-9a-f]{12}$")]
_WITHOUT = "to train with given hyper-parameters: search.accounting: no_search"
_LONGEST_WITH_GAPS = 1000
"""Fields that take some whole numbers only take none so far apart."""

WarmStart = Literal["auto", "none"] | Annotated[list[StudyId], Field(min_length=1, max_length=16)]


class Sampler(StrEnum):
    """Who proposes the parameters of the next trial: samplers of Optuna, or a list that is made before the first one."""

    TPE = "tpe"
    """Multivariate tree-structured Parzen estimator: any space, conditional dimensions too."""
    CMAES = "cmaes"
    """For ranges; choices and conditional dimensions are drawn at random."""
    GP = "gp"
    """Gaussian process: few trials over few ranges."""
    RANDOM = "random"
    """Independent draws from the space."""
    GRID = "grid"
    """All combinations of a space of choices and whole numbers, each once, in an order that is drawn."""


class PrivacySpec(Frozen):
    """The target. ``epsilon`` may be left out only when ``train.noise_multiplier`` is fixed."""

    epsilon: Annotated[float, Field(gt=0, le=1000)] | None = None
    """The private run ends at this epsilon or below it; under ``accounted`` the search and the run together."""
    delta: Annotated[float, Field(gt=0, lt=1)]
    """At this delta: well below one over the number of records."""
    accountant: Accountant = Accountant.PLD
    """Who computes the epsilon that is promised."""


class Metric(StrEnum):
    """What trials are chosen by and private runs are scored by."""

    ACCURACY = "accuracy"
    """Of all records, what is told right."""
    BALANCED_ACCURACY = "balanced_accuracy"
    """The mean over the classes of what is told right of each: guessing has one over their number, whatever their shares."""


class SearchSpec(Frozen):
    """The simulations: how many, how large, over which space, and on whose data.

    Under ``no_search`` there are none: the hyper-parameters are those of ``train`` and ``model``.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"accounting": {"const": SearchAccounting.NO_SEARCH.value}}},
            "then": {
                "properties": {
                    "trials": {"const": 0},
                    "space": {"maxProperties": 0},
                    "first": {"maxItems": 0},
                }
            },
            "else": {
                "properties": {"trials": {"minimum": 1}, "space": {"minProperties": 1}},
                "required": ["space"],
            },
        }
    )

    accounting: SearchAccounting
    """How the search touches the private data: it has to be said, and stands beside every epsilon."""
    dataset: Name | None = None
    """``public_proxy`` only: the public dataset that every simulation and score reads."""
    trials: Annotated[int, Field(ge=0, le=100_000)] = 24
    """Candidates that are simulated; 0 under ``no_search``, and nowhere else."""
    rungs: Literal["auto"] | Rungs = "auto"
    """Simulated expected batch sizes, smallest first. auto: as ``planner.batch_ladder`` chooses; of a network, trials
    may begin with the first part of their steps at the second of these in place of the first one."""
    metric: Metric = Metric.ACCURACY
    """What trials are chosen by, and what the private run is scored by."""
    sampler: Sampler = Sampler.TPE
    """Who proposes the parameters of the next trial."""
    budget: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """What the whole search may process, in private runs: trials climb and finalists are repeated while there
    is room. It is raised to what the trials are expected to cost where that is more."""
    warm_start: WarmStart = "auto"
    """Whose best parameters are tried first. auto: those of earlier studies of the same model on the same
    search dataset, if there are any; or none; or the ids of studies."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the proposals and the simulations; the private run draws from the operating system."""
    space: Annotated[dict[str, Dimension], Field(max_length=MAX_DIMENSIONS)] = Field(
        default_factory=dict[str, Dimension]
    )
    """What a candidate may vary: fields of the trainer, ``steps``, and options of the model. At least one,
    and none under ``no_search``."""
    first: Annotated[list[Point], Field(max_length=MAX_POINTS)] = Field(default_factory=list[Point])
    """Points of the space that are tried before any other, as values of its keys. What a point leaves out is chosen as in
    the trials after it."""

    @model_validator(mode="before")
    @classmethod
    def _without_trials(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("accounting") == SearchAccounting.NO_SEARCH:
            return {"trials": 0, **given}
        return given


class BudgetSpec(Frozen):
    """Limits on compute."""

    gpu_hours: Annotated[float, Field(gt=0)] | None = None
    """Of search and private run together."""


class EvaluationSpec(Frozen):
    """What is told of the private model beside its test accuracy. No ε covers it."""

    by_class: Literal["auto"] | StrictBool = "auto"
    """The test accuracy of each class, and of each group where the dataset names a column of them. auto:
    of public data, and where a baseline is asked for."""
    baseline: StrictBool = False
    """Also train a model without noise and clipping, to compare with: on public data, or with
    ``search.accounting: declared_unaccounted``. It reads the data without privacy, and is never released."""

    def is_by_class(self, *, is_public: bool) -> bool:
        """Whether classes and groups are told of."""
        if self.by_class == "auto":
            return is_public or self.baseline
        return self.by_class


class StudySpec(Frozen):
    """A whole study: target in, trained private model and statement out."""

    name: Name
    """Of the study; it need not be unique."""
    privacy: PrivacySpec
    dataset: Name
    """The registered dataset that the private run reads."""
    model: ModelSpec
    """A model by its name, with its options beside it."""
    search: SearchSpec
    """How hyper-parameters are found, or that they are given."""
    train: TrainSpec = TrainSpec()
    promotion: Literal["automatic", "manual"] = "automatic"
    """Whether the best prediction becomes the private run by itself, or waits for an approval."""
    budget: BudgetSpec = BudgetSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
    priority: Annotated[
        int,
        Field(
            ge=-100,
            le=100,
            description="Of the studies that wait for a slot, the highest goes first, then the oldest",
        ),
    ] = 0

    @property
    def has_search(self) -> bool:
        """Whether anything is simulated before the private run."""
        return self.search.accounting is not SearchAccounting.NO_SEARCH

    @property
    def goes_on_from_trial(self) -> bool:
        """Whether the private run begins with the weights of its trial, which are paid for or of public data."""
        if self.train.begin_from == "auto":
            return self.search.accounting.is_charged
        return self.train.begin_from == "trial"

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        faults = [
            *self._target_faults(),
            *self._search_faults(),
            *self._charged_faults(),
            *self._weights_faults(),
            *self._proxy_faults(),
            *self._rung_faults(),
            *self._evaluation_faults(),
            *self._batch_norm_faults(),
            *self._metric_faults(),
            *self._first_faults(),
            *(self._space_faults() or self._faults_of_values()),
        ]
        if faults:
            raise ValidationError.from_exception_data(type(self).__name__, faults)
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _unknown_keys_are_told_too(
        cls, given: Any, handler: ModelWrapValidatorHandler[Self]
    ) -> Self:
        try:
            return handler(given)
        except ValidationError as error:
            raise with_unknown_keys(error, given) from None

    def _target_faults(self) -> list[InitErrorDetails]:
        if self.privacy.epsilon is None and self.train.noise_multiplier is None:
            return [
                _fault(
                    ("privacy", "epsilon"),
                    None,
                    "a target is needed: give privacy.epsilon, or fix train.noise_multiplier",
                )
            ]
        return self._steps_faults()

    def _steps_faults(self) -> list[InitErrorDetails]:
        """Searched steps need free noise, and no second number of steps beside them."""
        problems: list[str] = []
        if self.train.noise_multiplier is not None:
            problems.append(
                "steps cannot be searched while train.noise_multiplier is fixed: "
                "candidates would not end at one epsilon"
            )
        if self.train.steps != "auto":
            problems.append(
                f"steps cannot be searched while train.steps is fixed at {self.train.steps}: "
                "leave train.steps auto"
            )
        return [
            _fault(("search", "space", key), as_written(dimension), "; ".join(problems))
            for key, dimension in self.search.space.items()
            if problems and self.field_of(key) == ("train", "steps")
        ]

    def _search_faults(self) -> list[InitErrorDetails]:
        """A search needs trials and something to vary; a study without one has no use for either."""
        search = self.search
        if not self.has_search:
            unsearched = SearchSpec(accounting=search.accounting)
            return [
                _fault(
                    ("search", field),
                    {key: as_written(one) for key, one in value.items()}
                    if field == "space"
                    else value,
                    "nothing is searched under search.accounting: no_search, so leave it out"
                    + ("; fixed values go below train and model" if field == "space" else ""),
                )
                for field in SearchSpec.model_fields
                if field != "metric"
                if (value := getattr(search, field)) != getattr(unsearched, field)
            ]
        faults: list[InitErrorDetails] = []
        if search.trials < 1:
            problem = f"a search has at least 1 trial, got {search.trials}; {_WITHOUT}"
            faults.append(_fault(("search", "trials"), search.trials, problem))
        if not search.space:
            problem = f"a search needs something to vary, such as learning_rate between two ends; {_WITHOUT}"
            faults.append(_fault(("search", "space"), search.space, problem))
        return faults

    def _charged_faults(self) -> list[InitErrorDetails]:
        """What composes must be fixed before the first trial: one mechanism, and how often it runs."""
        search = self.search
        if not search.accounting.is_charged:
            return []
        faults: list[InitErrorDetails] = []
        if search.rungs != "auto" and len(search.rungs) > 1:
            problem = (
                "each trial is charged, so none climbs: give one batch size, or auto for the smallest whose "
                "trials keep enough noise"
            )
            faults.append(_fault(("search", "rungs"), search.rungs, problem))
        if search.budget != SearchSpec.model_fields["budget"].default:
            problem = "a search that is charged runs each of its trials once; leave it out"
            faults.append(_fault(("search", "budget"), search.budget, problem))
        if self.privacy.accountant is Accountant.PRV:
            problem = "prv does not price a search that is charged; accepted: pld, rdp"
            faults.append(_fault(("privacy", "accountant"), Accountant.PRV.value, problem))
        for key, dimension in search.space.items():
            section, field = self.field_of(key) or ("", "")
            if section == "train" and field in ("steps", "clip_norm"):
                problem = (
                    f"trials of a search that is charged are one mechanism, fixed before the first of them; fix "
                    f"{field} below train"
                )
                faults.append(_fault(("search", "space", key), as_written(dimension), problem))
        return faults

    def _weights_faults(self) -> list[InitErrorDetails]:
        """What a simulation makes of private data is not private: no epsilon would cover a run that goes on from it."""
        mode = self.search.accounting
        is_of_others = (
            mode is SearchAccounting.PUBLIC_PROXY
            and self.search.dataset is not None
            and self.search.dataset != self.dataset
        )
        if self.train.begin_from != "trial" or mode.is_charged or is_of_others:
            return []
        problem = (
            "no weights are there that a private run may go on from: only trials of accounted searches, which are "
            "paid for, and of a public_proxy that is another dataset leave some; accepted here: auto, scratch"
        )
        return [_fault(("train", "begin_from"), "trial", problem)]

    def _proxy_faults(self) -> list[InitErrorDetails]:
        is_proxy = self.search.accounting is SearchAccounting.PUBLIC_PROXY
        if self.search.dataset and self.has_search and not is_proxy:
            return [
                _fault(
                    ("search", "dataset"),
                    self.search.dataset,
                    "only search.accounting: public_proxy searches on another dataset",
                )
            ]
        return []

    def _evaluation_faults(self) -> list[InitErrorDetails]:
        if self.evaluation.baseline and self.evaluation.by_class is False:
            problem = "a baseline is compared with by class; accepted beside it: true, auto"
            return [_fault(("evaluation", "by_class"), False, problem)]
        return []

    def _batch_norm_faults(self) -> list[InitErrorDetails]:
        """A released model says so without its file, so it is no matter of the model alone."""
        model = self.model
        if not isinstance(model, ExternalModel) or model.replace_batch_norm != "frozen":
            return []
        if model.pretrained is not None:
            return []
        problem = "frozen takes mean and variance from the file of model.pretrained, and none is named; accepted without: group"
        return [_fault(("model", "replace_batch_norm"), "frozen", problem)]

    def _metric_faults(self) -> list[InitErrorDetails]:
        """How loud a balanced accuracy is depends on the rarest class, which the service cannot count."""
        if self.search.metric is Metric.ACCURACY or self.train.class_shares is not None:
            return []
        problem = (
            "balanced_accuracy needs train.class_shares, what part of the records has each label, as far as it is publicly "
            "known; accepted without: accuracy"
        )
        return [_fault(("search", "metric"), self.search.metric.value, problem)]

    def _rung_faults(self) -> list[InitErrorDetails]:
        rungs, batch_size = self.search.rungs, self.train.batch_size
        if rungs == "auto" or batch_size == "auto" or rungs[-1] <= batch_size:
            return []
        return [
            _fault(
                ("search", "rungs"),
                rungs[-1],
                f"a simulated batch cannot exceed train.batch_size = {batch_size}",
            )
        ]

    def _first_faults(self) -> list[InitErrorDetails]:
        search = self.search
        if not (self.has_search and search.space):
            return []  # told already
        return [*first_faults(search.first, search.space, self._conditions(), trials=search.trials)]

    def _conditions(self) -> Conditions:
        """What the keys of the space need of one another."""
        return Conditions(self.search.space, self.train.trainer(), self.model)

    def _space_faults(self) -> list[InitErrorDetails]:
        """A dimension must name a field of its own, and hold only values that the field accepts."""
        faults: list[InitErrorDetails] = []
        named: dict[Place, str] = {}
        for key, dimension in self.search.space.items():
            place = self.field_of(key)
            if place is None:
                problem = no_field(self.searchable(), key)
                faults.append(_fault(("search", "space", key), key, problem))
                continue
            if named.setdefault(place, key) != key:
                problem = f"{named[place]} already names this field"
                faults.append(_fault(("search", "space", key), key, problem))
                continue
            faults.extend(self._value_faults(key, dimension))
        return faults

    def _value_faults(
        self, key: str, dimension: Choices | Range | Scalar
    ) -> list[InitErrorDetails]:
        """One fault for each value at the edge of a dimension that its field does not accept."""
        faults = [
            _fault(_place_of(key, suffix), value, problem)
            for suffix, value in probes(dimension)
            if (problem := self._refusal(key, value)) is not None
        ]
        if faults or not isinstance(dimension, Range):
            return faults
        if dimension.is_integer:
            return self._gap_faults(key, dimension)
        if self._refusal(key, dimension.inside) is not None:
            ends = f"low={dimension.low!r}, high={dimension.high!r}"
            return [
                _fault(
                    _place_of(key),
                    ends,
                    f"this field takes integers: write both ends so, got {ends}",
                )
            ]
        return []

    def _gap_faults(self, key: str, dimension: Range) -> list[InitErrorDetails]:
        """What is told of a range whose ends a field accepts and not all that lies between."""
        between = range(int(dimension.low), int(dimension.high) + 1)
        section, _ = self.field_of(key) or ("", "")
        # The trainer's numbers have no gaps, and their ranges, of steps above all, are long.
        if section == "train" or len(between) > _LONGEST_WITH_GAPS:
            return []
        accepted = [value for value in between if self._refusal(key, value) is None]
        if len(accepted) == len(between):
            return []
        problem = f"this field takes some of these numbers only; write choices: {accepted}"
        return [_fault(_place_of(key), f"low={dimension.low}, high={dimension.high}", problem)]

    def _refusal(self, key: str, value: Scalar) -> str | None:
        """Why the field does not accept this value, or None."""
        section, field = self.field_of(key) or ("", "")
        try:
            if section == "model":
                options = option_values(self.model, {**self._beside(field), field: value})
                type(self.model).model_validate({**self.model.model_dump(), **options})
            elif field == "steps":
                TrainSpec.model_validate({"steps": value})
                if value == "auto":
                    return "a searched number of steps must be a number"
            else:
                TrainerConfig.model_validate({field: value})
        except ValidationError as error:
            # The last one: before it may stand "should be 'auto'", which no dimension can be.
            return error.errors()[-1]["msg"].removeprefix("Value error, ")
        return None

    def _beside(self, option: str) -> dict[str, Any]:
        """What other options are in a candidate that reads this one, where some may."""
        return {
            need.other: value
            for need in self.model.needs
            if need.field == option
            for value in self._possible("model", need.other)[1]
            if need.is_met(value)
        }

    def _faults_of_values(self) -> list[InitErrorDetails]:
        """What is told of a space whose every value is accepted by its field."""
        return [
            *self._clipping_faults(),
            *self._augmentation_faults(),
            *self._idle_faults(),
            *self._grid_faults(),
        ]

    def _grid_faults(self) -> list[InitErrorDetails]:
        """A grid must have an end, and a combination for each trial that does not go on from an earlier one."""
        search = self.search
        if not self.has_search or search.sampler is not Sampler.GRID:
            return []
        is_each_anew = not (search.accounting.is_charged and self.goes_on_from_trial)
        trials = search.trials if is_each_anew else None
        return [*grid_faults(search.space, self._conditions(), trials=trials)]

    def _augmentation_faults(self) -> list[InitErrorDetails]:
        """A frozen extractor reads every record once and as it is."""
        if not self.model.has_frozen_features:
            return []
        faults: dict[tuple[str, ...], InitErrorDetails] = {}
        for field, accepted in UNAUGMENTED.items():
            path, values = self._possible("train", field)
            for value in values:
                if value not in accepted:
                    problem = (
                        f"model {self.model.name} trains on features that are computed once, so it "
                        f"takes no augmentation; accepted: {json.dumps(accepted[0])}"
                    )
                    faults.setdefault(path, _fault(path, value, problem))
        return list(faults.values())

    def _clipping_faults(self) -> list[InitErrorDetails]:
        """Every study ends in a private run, which clips."""
        path, values = self._possible("train", "clipping")
        if Clipping.NONE not in values:
            return []
        problem = "a private run without clipping has no epsilon; accepted: per_example, automatic"
        return [_fault(path, Clipping.NONE.value, problem)]

    def _idle_faults(self) -> list[InitErrorDetails]:
        """A field that no candidate could read, for what another field is in all of them.

        An option of the model that is not searched does no harm.
        """
        faults: dict[tuple[str, ...], InitErrorDetails] = {}
        sections: tuple[tuple[Literal["train", "model"], type[BaseModel], Sequence[Need]], ...] = (
            ("train", TrainerConfig, trainer_needs([*map(self.field_of, self.search.space)])),
            ("model", type(self.model), self.model.needs),
        )
        for section, kind, needs in sections:
            for need in needs:
                path, values = self._possible(section, need.field)
                is_harmless = section == "model" and path[0] == "model"
                default = kind.model_fields[need.field].default
                if is_harmless or all(value == default for value in values):
                    continue
                _, others = self._possible(section, need.other)
                if not any(need.is_met(other) for other in others):
                    faults.setdefault(path, _fault(path, values[-1], _idle(need, others)))
        return list(faults.values())

    def _possible(
        self, section: Literal["train", "model"], field: str
    ) -> tuple[tuple[str, ...], list[Any]]:
        """Where the user wrote a field, and its fixed value or the edges of its dimension."""
        for key, dimension in self.search.space.items():
            if self.field_of(key) == (section, field):
                return ("search", "space", key), [value for _, value in probes(dimension)]
        return (section, field), [getattr(self.train if section == "train" else self.model, field)]

    def field_of(self, key: str) -> Place | None:
        """Where a key of the space points: ``("train", field)`` or ``("model", option)``."""
        return field_of(key, self.model)

    def searched(self, field: str) -> Dimension | None:
        """The dimension of a trainer field, under whichever key; None where it is not searched."""
        for key, dimension in self.search.space.items():
            if self.field_of(key) == ("train", field):
                return dimension
        return None

    def searchable(self) -> list[str]:
        """Every key that this study's space may hold."""
        return searchable_keys(self.model)


def _idle(need: Need, others: list[Any]) -> str:
    found = " or ".join(dict.fromkeys(str(other) for other in others))
    return f"has no effect: {need.other} must be {need.wanted}, got {found}"


def _place_of(key: str, suffix: str = "") -> tuple[int | str, ...]:
    """Of a dimension, or of one of its values, in the study."""
    parts = (int(part) if part.isdigit() else part for part in suffix.split(".") if part)
    return ("search", "space", key, *parts)


def _fault(path: tuple[int | str, ...], value: Any, message: str) -> InitErrorDetails:
    return fault("spec", path, value, message)


__all__ = [
    "Accountant",
    "BudgetSpec",
    "Choices",
    "Dimension",
    "EvaluationSpec",
    "PrivacySpec",
    "Range",
    "Sampler",
    "Scalar",
    "SearchAccounting",
    "SearchSpec",
    "StudySpec",
]
