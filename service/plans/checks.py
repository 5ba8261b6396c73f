"""Whether a study may and can be run on the data it names. Pure: rows in, faults out."""

import json
import os
from collections.abc import Iterator, Sequence

from service import text
from service.datasets.schemas import NOT_CHARGED_HERE, SUPPORTED_MODES
from service.datasets.service import Protection
from service.db.tables import Dataset
from service.ledger.schemas import AdmissionRule
from tan_core.spec import FieldProblem, SearchAccounting, StudySpec
from tan_core.spec.addresses import is_address
from tan_core.spec.features import feature_models
from tan_core.spec.models import ExternalModel, PythonModel, ScatterModel, too_large_to_whiten
from tan_core.spec.space import Scalar, probes
from tan_core.spec.train import UNAUGMENTED
from tan_core.wire import RECORD

_GIVEN = f"{SearchAccounting.NO_SEARCH.value}, with hyper-parameters that are given"
MAX_CLASSES_TOLD = 1000
"""Whose accuracies are told one by one."""


def is_by_class(spec: StudySpec, dataset: Dataset) -> bool:
    """Whether the private run tells of classes and groups."""
    wanted = spec.evaluation.is_by_class(is_public=dataset.public)
    return wanted and dataset.num_classes <= MAX_CLASSES_TOLD


def unknown_dataset(path: str, name: str, known: Sequence[str]) -> FieldProblem:
    """The fault of a name that is not registered."""
    listed = text.known_names(name, known) if known else "none yet: tan-cli dataset add"
    return FieldProblem(
        path=path,
        message=f"no dataset of this name is registered; registered: {listed}",
        value=name,
    )


def faults(
    spec: StudySpec, private: Dataset, search: Dataset, protected: Protection | None
) -> list[FieldProblem]:
    """Everything that stands between the spec and its data; ``protected`` by the budget of ``private``."""
    return [
        *_mode_faults(spec, private, search),
        *_admission_faults(spec, private, protected),
        *_file_faults("dataset", private),
        *(_file_faults("search.dataset", search) if search is not private else ()),
        *_model_faults(spec, private),
        *_class_faults(spec, private, search),
        *_evaluation_faults(spec, private),
    ]


def import_faults(spec: StudySpec, allowed_prefixes: Sequence[str]) -> Iterator[FieldProblem]:
    """A model made by code of a package whose import nobody has allowed."""
    model = spec.model
    if isinstance(model, PythonModel) and not model.is_allowed(allowed_prefixes):
        listed = ", ".join(allowed_prefixes) or "none"
        yield FieldProblem(
            path="model.name",
            message=f"module {model.module} may not be imported here; "
            f"allowed by TAN_ALLOWED_MODEL_PREFIXES: {listed}",
            value=model.name,
        )


def mode_faults(spec: StudySpec) -> Iterator[FieldProblem]:
    """Modes that no dataset can be searched under today."""
    mode = spec.search.accounting
    if mode not in SUPPORTED_MODES:
        yield FieldProblem(
            path="search.accounting",
            message=f"{mode.value} is not supported yet; accepted today: {', '.join(SUPPORTED_MODES)}",
            value=mode.value,
        )


def _mode_faults(spec: StudySpec, private: Dataset, search: Dataset) -> Iterator[FieldProblem]:
    mode = spec.search.accounting
    if mode not in SUPPORTED_MODES:
        yield from mode_faults(spec)
        return
    if not spec.has_search:
        return
    if mode.is_charged and private.public:
        yield FieldProblem(path="search.accounting", message=NOT_CHARGED_HERE, value=mode.value)
    elif mode is SearchAccounting.DECLARED_UNACCOUNTED and not private.waiver:
        yield FieldProblem(
            path="search.accounting",
            message=(
                f"the owner of dataset {private.name!r} gave no waiver of the accounting of searches when "
                "it was registered (tan-cli dataset add --waiver), and none can be given later; "
                f"accepted here: {_modes_left(private)}"
            ),
            value=mode.value,
        )
    elif mode.value not in private.allowed_modes:
        yield FieldProblem(
            path="search.accounting",
            message=(
                f"dataset {private.name!r} does not allow {mode.value}; "
                f"accepted here: {', '.join([*private.allowed_modes, _GIVEN])}"
            ),
            value=mode.value,
        )
    if mode is SearchAccounting.PUBLIC_PROXY:
        yield from _proxy_faults(private, search)


def _modes_left(private: Dataset) -> str:
    """What is left of a dataset without a waiver. Its bytes cannot be registered again."""
    left: list[str] = []
    if SearchAccounting.PUBLIC_PROXY.value in private.allowed_modes:
        proxy = (
            ""
            if private.public
            else ", with search.dataset: a public dataset of the same shape and classes"
        )
        left.append(f"public_proxy{proxy}")
    if SearchAccounting.ACCOUNTED.value in private.allowed_modes:
        left.append("accounted, where each trial is charged")
    return "; or ".join([*left, _GIVEN])


def _admission_faults(
    spec: StudySpec, private: Dataset, protected: Protection | None
) -> Iterator[FieldProblem]:
    """What the budget would never admit, whatever is left of it: no batch size or epsilon would make it fit."""
    if protected is None:
        return
    if spec.privacy.delta > protected.budget.delta:
        yield FieldProblem(
            path="privacy.delta",
            message=f"the budget of {private.name!r} ends at delta {protected.budget.delta:g}; "
            "accepted: that, or less",
            value=spec.privacy.delta,
        )
    is_filtered = protected.admission is AdmissionRule.RENYI_FILTER
    if is_filtered and spec.train.max_batch_size is not None:
        yield FieldProblem(
            path="train.max_batch_size",
            message=f"the budget of {private.name!r} admits by a Rényi filter, and no Rényi bound is "
            "known for batches with a cap; leave it out",
            value=spec.train.max_batch_size,
        )


def _proxy_faults(private: Dataset, search: Dataset) -> Iterator[FieldProblem]:
    if search is private and not private.public:
        yield FieldProblem(
            path="search.dataset",
            message=(
                f"public_proxy needs a public dataset to search on: {private.name!r} is private"
            ),
        )
        return
    if not search.public:
        yield FieldProblem(
            path="search.dataset",
            message=f"dataset {search.name!r} is not registered as public",
            value=search.name,
        )
    for what in ("shape", "num_classes"):
        wanted, found = getattr(private, what), getattr(search, what)
        if wanted != found:
            yield FieldProblem(
                path="search.dataset",
                message=f"{what} of {search.name!r} is {found}, of {private.name!r} {wanted}; "
                "they must be equal",
                value=search.name,
            )


def _file_faults(path: str, dataset: Dataset) -> Iterator[FieldProblem]:
    """Files that are gone. Of an address the service asks nothing here: each node fetches what lies there, and checks it."""
    place = dataset.path
    # Not Path.exists, which raises where a folder above may not be entered.
    if place is None or is_address(place) or os.path.exists(place):
        return
    yield FieldProblem(
        path=path,
        message=f"the files of {dataset.name!r} are no longer at {place}, or cannot be reached there",
        value=dataset.name,
    )


def _model_faults(spec: StudySpec, dataset: Dataset) -> Iterator[FieldProblem]:
    name, shape = spec.model.name, dataset.shape
    smallest = spec.model.smallest_side
    if smallest is not None and len(shape) != 3:
        yield FieldProblem(
            path="model.name",
            message=f"{name} needs images; {dataset.name!r} has records of shape {shape}; "
            "accepted: linear, mlp",
            value=name,
        )
    elif smallest is not None and min(shape[1:]) < smallest:
        yield FieldProblem(
            path="model.name",
            message=f"{name} needs images of at least {smallest}x{smallest} pixels; "
            f"{dataset.name!r} has {shape[1]}x{shape[2]}",
            value=name,
        )
    elif isinstance(spec.model, ScatterModel):
        yield from _whitening_faults(spec, dataset)
    elif isinstance(spec.model, ExternalModel):
        yield from _input_faults(spec.model, dataset)
    yield from _augmentation_faults(spec, dataset)


def _input_faults(model: ExternalModel, dataset: Dataset) -> Iterator[FieldProblem]:
    """What a model is to read of images, where the records are others."""
    if model.input is None:
        return
    try:
        model.input.shape_of(dataset.shape)
    except ValueError as error:
        yield FieldProblem(
            path="model.input",
            message=f"{error}, which {dataset.name!r} has",
            value=model.input.model_dump(mode="json", exclude_none=True),
        )


def _class_faults(spec: StudySpec, private: Dataset, search: Dataset) -> Iterator[FieldProblem]:
    """Shares of classes that are not those of the dataset, or of gradients that are clipped with several classes in them."""
    shares = spec.train.class_shares
    if shares is None:
        return
    if len(shares) != private.num_classes:
        yield FieldProblem(
            path="train.class_shares",
            message=f"{private.name!r} has {private.num_classes} classes; accepted: a share for each, in the order of the labels",
            value=shares,
        )
    of_users = next((each for each in (private, search) if each.unit != RECORD), None)
    if of_users is not None:
        yield FieldProblem(
            path="train.class_shares",
            message=f"one guarantee of {of_users.name!r} is for a user, whose gradient is clipped once and may be of records of "
            "several classes; leave it out",
            value=shares,
        )


def _whitening_faults(spec: StudySpec, dataset: Dataset) -> Iterator[FieldProblem]:
    """Whitened features, of the study or of one of its candidates, whose moments would fill the memory."""
    place = ("model", "normalization")
    searched = next((k for k in spec.search.space if spec.field_of(k) == place), None)
    for model in feature_models(spec.model, spec.search.space):
        if not (isinstance(model, ScatterModel) and model.is_whitened):
            continue
        problem = too_large_to_whiten(dataset.shape, has_patches=model.patches)
        if problem:
            yield FieldProblem(
                path=f"search.space.{searched}" if searched else "model.normalization",
                message=f"{dataset.name!r}: {problem}",
                value=model.normalization,
            )
            return


def _evaluation_faults(spec: StudySpec, private: Dataset) -> Iterator[FieldProblem]:
    """What would be read or told of private data that nobody has declared, or of too many classes."""
    asked = spec.evaluation
    unaccounted = spec.search.accounting is SearchAccounting.DECLARED_UNACCOUNTED
    if asked.baseline and not (private.public or unaccounted):
        yield FieldProblem(
            path="evaluation.baseline",
            message=f"a model without privacy would read {private.name!r} unaccounted; accepted: public "
            "data, or search.accounting: declared_unaccounted, which says so beside every epsilon",
            value=True,
        )
    is_asked = asked.by_class is True or asked.baseline
    if is_asked and private.num_classes > MAX_CLASSES_TOLD:
        yield FieldProblem(
            path="evaluation.by_class",
            message=f"at most {MAX_CLASSES_TOLD:,} classes are told of one by one, "
            f"{private.name!r} has {private.num_classes:,}",
            value=asked.by_class,
        )


def _augmentation_faults(spec: StudySpec, dataset: Dataset) -> Iterator[FieldProblem]:
    """A table has no views; and what is mirrored around an image for a crop must be in it."""
    is_table, side = len(dataset.shape) != 3, min(dataset.shape[1:], default=0)
    for field, unchanged in UNAUGMENTED.items():
        for path, value in _written(spec, field):
            if is_table and value not in unchanged:
                message = (
                    f"{dataset.name!r} is a table: only images can be augmented; "
                    f"accepted: {json.dumps(unchanged[0])}"
                )
                yield FieldProblem(path=path, message=message, value=value)
            elif field == "crop_padding" and isinstance(value, int) and 0 < side <= value:
                message = (
                    f"the images of {dataset.name!r} have a side of {side} pixels; accepted: fewer"
                )
                yield FieldProblem(path=path, message=message, value=value)


def _written(spec: StudySpec, field: str) -> Iterator[tuple[str, Scalar]]:
    """Where the study says what a field of the trainer is, and what: its fixed value, or the edges of its dimension."""
    for key, dimension in spec.search.space.items():
        if spec.field_of(key) == ("train", field):
            for suffix, value in probes(dimension):
                yield f"search.space.{key}{suffix}", value
            return
    yield f"train.{field}", getattr(spec.train, field)
