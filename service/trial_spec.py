"""What studies ask for and what their trials are, as fields by dotted path: to compare and to repeat them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from tan_core.accounting import SearchAccounting
from tan_core.spec import StudySpec
from tan_core.spec.fields import OPTIONS

Json = dict[str, Any]


def flattened(specs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The value of every field in each spec, by its dotted path; None where a spec has no such field."""
    flat = [dict(_leaves(spec, ())) for spec in specs]
    paths = dict.fromkeys(path for each in flat for path in each)
    return {path: [each.get(path) for each in flat] for path in paths}


def asked(specs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The same of stored specs, without what stands in them and asks for nothing: see :func:`_without_idle`."""
    return flattened([_without_idle(spec) for spec in specs])


def _without_idle(spec: Mapping[str, Any]) -> Json:
    """A stored spec without the trials and the space of a search that is none, and without values whose place the space takes.

    Example:
        >>> _without_idle({"search": {"accounting": "no_search", "trials": 0, "rungs": "auto"}})
        {'search': {'accounting': 'no_search', 'rungs': 'auto'}}
        >>> _without_idle({"train": {"steps": 9, "momentum": 0.0}, "search": {"space": {"steps": [5]}}})
        {'train': {'momentum': 0.0}, 'search': {'space': {'steps': [5]}}}
    """
    search = spec.get("search", {})
    if search.get("accounting") == SearchAccounting.NO_SEARCH:
        kept = {key: value for key, value in search.items() if key not in ("trials", "space")}
        return {**spec, "search": kept}
    taken = {key.removeprefix("train.") for key in search.get("space", {})}
    train = {key: value for key, value in spec.get("train", {}).items() if key not in taken}
    return {**spec, "train": train} if taken else dict(spec)


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    # A dimension of the space is read as one: its low and its high say nothing apart.
    is_dimension = path[:-1] == ("search", "space")
    if isinstance(value, Mapping) and (value or not path) and not is_dimension:
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    else:
        yield ".".join(path), value


def differ(values: Sequence[Any]) -> bool:
    """Whether not all of the values are equal."""
    return any(value != values[0] for value in values)


def settings(spec: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Json]:
    """The sections ``model`` and ``train`` of a stored spec, as a trial with these parameters has them.

    Example:
        >>> settings({"model": {"name": "mlp"}, "train": {"momentum": 0.0}}, {"momentum": 0.9})
        {'model': {'name': 'mlp'}, 'train': {'momentum': 0.9}}
    """
    sections = {name: dict(spec[name]) for name in ("model", "train")}
    for key, value in params.items():
        name = _without_section(key)
        if name.startswith(OPTIONS):
            options = sections["model"].get("options", {})
            sections["model"]["options"] = {**options, name.removeprefix(OPTIONS): value}
            continue
        # A bare name is the trainer's where both have it, as when the trial ran.
        is_model = key.startswith("model.") or (key == name and name not in sections["train"])
        sections["model" if is_model else "train"][name] = value
    return sections


def _without_section(key: str) -> str:
    """The name of a field, however a space named it.

    Example:
        >>> _without_section("train.steps"), _without_section("model.options.width")
        ('steps', 'options.width')
    """
    return key.removeprefix("train.").removeprefix("model.")


def is_searched(spec: Mapping[str, Any], name: str) -> bool:
    """Whether a study searches a field of the trainer or an option of the model, however its space named it.

    Example:
        >>> is_searched({"search": {"space": {"train.clip_norm": 1.0}}}, "clip_norm")
        True
    """
    return name in map(_without_section, spec["search"]["space"])


def settings_compared(studies: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Where the trials that stand for studies differ, or what a study searched: each field's values.

    A study that searches nothing stands for itself. One without a trial yet has None everywhere, and is no
    difference.
    """
    trained = [_trained(study) for study in studies]
    searched = {
        _without_section(key) for study in studies for key in study["spec"]["search"]["space"]
    }
    return {
        path: values
        for path, values in flattened(trained).items()
        if path.partition(".")[2] in searched
        or differ([value for value, known in zip(values, trained, strict=True) if known])
    }


def _trained(study: Mapping[str, Any]) -> dict[str, Json]:
    best, spec = study["best_trial"], study["spec"]
    if not has_settings(best, spec):
        return {}
    return settings(spec, best["params"] if best else {})


def has_settings(best: object, spec: Mapping[str, Any]) -> bool:
    """Whether it is known what a study would train: from its best trial, or as it searches nothing."""
    return best is not None or not spec["search"]["trials"]


def stands_for(study: Mapping[str, Any]) -> str:
    """What ``best_trial`` of a study is: who has promoted nothing yet names its best.

    Example:
        >>> stands_for({"promotion": None}), stands_for({"promotion": {"by": None}})
        ('best so far', 'proposed')
    """
    if not study["promotion"]:
        return "best so far"
    return "promoted" if study["promotion"]["by"] else "proposed"


def repeated(study: Mapping[str, Any], params: Mapping[str, Any], *, number: int) -> Json:
    """The spec of a study that tries one trial's parameters alone, at the batches that the trial climbed.

    Those of a search that was charged are trained without any: what is known of them is paid for, and all of epsilon is
    left for the run.
    """
    spec = study["spec"]
    name = f"{study['name'][:80]}-trial-{number}"
    if SearchAccounting(spec["search"]["accounting"]).is_charged:
        search = {"accounting": SearchAccounting.NO_SEARCH.value}
        alone = settings(spec, params)
        alone["train"].pop("begin_from", None)  # there is no trial to go on from
        return {**spec, **alone, "name": name, "search": search}
    rungs = [round(rung["expected_batch_size"]) for rung in study["plan"]["simulations"]]
    kept = {key: value for key, value in spec["search"].items() if key != "first"}
    alone = {"trials": 1, "rungs": rungs, "warm_start": "none", "space": dict(params)}
    return {**spec, "name": name, "search": {**kept, **alone}}


def sparse(spec: Json) -> Json:
    """What a stored spec says beyond the defaults: the same study, as a person would write it.

    One that today's rules would refuse is left whole.
    """
    try:
        written = StudySpec.model_validate(spec).model_dump(mode="json", exclude_defaults=True)
    except ValidationError:
        return spec
    # What kind of model it is has a default too, in each kind.
    written["model"] = {"name": spec["model"]["name"], **written["model"]}
    if not written["search"].get("trials", True):
        del written["search"]["trials"]  # said by no_search
    return written
