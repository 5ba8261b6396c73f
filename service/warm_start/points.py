"""What a search tries first: its own list, and the best of other studies as points of its space. Pure: no database."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

from tan_core.spec import ModelSpec, Scalar, SearchSpec, StudySpec
from tan_core.spec.fields import Place, field_of, model_values, needs_of, option_values
from tan_core.spec.first import varied, written
from tan_core.spec.space import only_value, within
from tan_core.wire import KnownPoint

FEWEST_TRIALS = 4
"""Of a search that is seeded without being asked to: a shorter one would hardly look for itself."""

OWN_LIST = "the study's own list"
"""The source of what stands in ``search.first``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A study and the parameters of its best trials, the best first.

    Args:
        study_id: names it.
        spec: its spec.
        steps: S of its planned private run, which is what ``train.steps: auto`` came to.
        trials: numbers with parameters.
    """

    study_id: str
    spec: StudySpec
    steps: int
    trials: Sequence[tuple[int, Mapping[str, Scalar]]]


def points_of(search: SearchSpec, model: ModelSpec, sources: Iterable[Source]) -> list[KnownPoint]:
    """What to try first: the best trial of each source, then the second best of each.

    Every key of the space takes the value that the source's trial, or else its spec, has for the same
    field. A point with a value outside its dimension is left out, and so is one that is there already.
    There are at most a quarter as many points as trials, and at least one may be. Before them come the study's own,
    ``search.first``, whatever their number.
    """
    own = [
        KnownPoint(params=written(point, search.space), source=OWN_LIST) for point in search.first
    ]
    candidates = [
        [
            KnownPoint(params=params, source=f"{source.study_id} trial {number}")
            for number, chosen in source.trials
            if (params := _translated(search, model, source, chosen)) is not None
        ]
        for source in sources
    ]
    by_rank = (point for rank in zip_longest(*candidates) for point in rank if point is not None)
    learnt = _others(by_rank, own, search)
    return [*own, *islice(learnt, max(1, search.trials // FEWEST_TRIALS))]


def _others(
    points: Iterable[KnownPoint], own: Iterable[KnownPoint], search: SearchSpec
) -> Iterator[KnownPoint]:
    """Those that are none of the study's own, each once."""
    seen = [varied(point.params, search.space) for point in own]
    for point in points:
        apart = varied(point.params, search.space)
        if apart not in seen:
            seen.append(apart)
            yield point


def _translated(
    search: SearchSpec, model: ModelSpec, source: Source, chosen: Mapping[str, Scalar]
) -> dict[str, Scalar] | None:
    """A trial of the source in the names of this space; None where it is not in the space."""
    known = _values(source, chosen)
    params: dict[str, Scalar] = {}
    # What others depend on comes first.
    places = {key: field_of(key, model) for key in search.space}
    searched = places.values()
    for key in sorted(places, key=lambda key: len(needs_of(places[key], model, searched))):
        place = places[key]
        if place is not None and place[0] == "model" and not _reads(model, place, params):
            continue  # an option that another one makes idle may not fit beside it
        dimension = search.space[key]
        only = only_value(dimension)
        value = within(known.get(place), dimension) if only is None else only
        if value is not None:
            params[key] = value
        elif _is_read(place, model, known, searched):
            return None
    # Where features are whitened, learning rates are on another scale.
    own, theirs = candidate_model(model, params), candidate_model(source.spec.model, chosen)
    return params if own.is_whitened == theirs.is_whitened else None


def candidate_model(model: ModelSpec, params: Mapping[str, Scalar]) -> ModelSpec:
    """The model with the options that a trial chose."""
    places = ((field_of(key, model), value) for key, value in params.items())
    options = {place[1]: value for place, value in places if place and place[0] == "model"}
    return model.model_copy(update=option_values(model, options))


def _reads(model: ModelSpec, place: Place, params: Mapping[str, Scalar]) -> bool:
    """Whether a candidate with these values so far reads an option of the model."""
    own = candidate_model(model, params)
    return all(need.is_met(getattr(own, need.other)) for need in needs_of(place, model))


def _is_read(
    place: Place | None,
    model: ModelSpec,
    known: Mapping[Place | None, Any],
    searched: Collection[Place | None],
) -> bool:
    """Whether a candidate with these values of a source reads the field at all."""
    return place is None or all(
        need.is_met(known.get((place[0], need.other))) for need in needs_of(place, model, searched)
    )


def _values(source: Source, chosen: Mapping[str, Scalar]) -> dict[Place | None, Any]:
    """What the source ran with, by field."""
    values: dict[Place | None, Any] = {**_fixed(source.spec)}
    if values["train", "steps"] == "auto":
        values["train", "steps"] = source.steps
    return values | {field_of(key, source.spec.model): value for key, value in chosen.items()}


def _fixed(spec: StudySpec) -> dict[Place, Any]:
    """What the sections ``train`` and ``model`` say, by field."""
    sections = spec.model_dump(mode="json")
    values: dict[Place, Any] = {("train", field): each for field, each in sections["train"].items()}
    if spec.train.class_shares is None:
        values["train", "class_balance"] = 0.0  # all records counted alike
    values |= {("model", option): each for option, each in model_values(sections["model"])}
    return values


def given_values(spec: StudySpec) -> list[dict[str, Scalar]]:
    """What the study gives, under every key that the space of a search may have for it: what it fixes, with each point of
    ``search.first``.

    A dimension of one value fixes it too.
    """
    fixed = _fixed(spec)
    for key, dimension in spec.search.space.items():
        place = spec.field_of(key)
        if place is not None:
            fixed[place] = only_value(dimension)
    return [
        _under_every_key(spec, fixed | {spec.field_of(key): value for key, value in point.items()})
        for point in spec.search.first or [{}]
    ]


def _under_every_key(spec: StudySpec, values: Mapping[Place | None, Any]) -> dict[str, Scalar]:
    return {
        key: value
        for place, value in values.items()
        if place is not None
        for key in (place[1], ".".join(place))
        if isinstance(value, str | int | float) and spec.field_of(key) == place
    }
