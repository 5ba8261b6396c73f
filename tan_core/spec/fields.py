"""Where a key of the search space points."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, get_origin

from tan_core.spec.models import Model, ModelSpec, PythonModel, TimmModel
from tan_core.spec.needs import Need
from tan_core.spec.train import NEEDS, NEEDS_OF_BOTH, TrainerConfig

OF_TRAINER = [name for name in TrainerConfig.model_fields if name != "class_shares"]
"""What one scalar can set: shares of classes are facts, and no choice."""

_STEPS_KEYS = frozenset({"steps", "train.steps"})

Place = tuple[Literal["train", "model"], str]

OPTIONS = "options."
"""Before what the function of a model takes whose code is not ours, as the name of its field."""
ANY_OPTION = f"model.{OPTIONS}NAME"
"""How those are told as keys of a space."""
NOT_SEARCHED = frozenset(["name", "pretrained", "replace_batch_norm", "input"])
"""Fields of a model that are the same for all candidates: what it is, and what has one value that can be trained."""


def field_of(key: str, model: ModelSpec | type[Model]) -> Place | None:
    """``("train", field)`` or ``("model", option)``; None where there is no such field.

    Both the bare name and the dotted one are accepted: ``width`` and ``model.width``. What the function of a
    model takes has its prefix in either, for nobody knows its names here: a slip in ``learning_rate`` would be one.

    Example:
        >>> from tan_core.spec.models import PythonModel
        >>> field_of("model.options.width", PythonModel(name="python:lab:small"))
        ('model', 'options.width')
    """
    section, _, name = key.rpartition(".")
    if section in ("", "train") and (name in OF_TRAINER or name == "steps"):
        return "train", name
    if section in ("", "model") and name in model_options(model):
        return "model", name
    if section in ("options", "model.options") and name and _takes_any(model):
        return "model", OPTIONS + name
    return None


def searches_steps(space: Collection[str]) -> bool:
    """Whether the keys of a space name the number of steps, the one field that changes what a candidate costs.

    Example:
        >>> searches_steps({"train.steps": [100, 200]}), searches_steps({"learning_rate": 1.0})
        (True, False)
    """
    return not _STEPS_KEYS.isdisjoint(space)


def searchable_keys(model: ModelSpec | type[Model]) -> list[str]:
    """Every key that the space of a study with this model may hold."""
    options = [f"model.{name}" for name in sorted(model_options(model))]
    return [
        *OF_TRAINER,
        "steps",
        *options,
        *([ANY_OPTION] if _takes_any(model) else []),
    ]


def model_options(model: ModelSpec | type[Model]) -> set[str]:
    """The options of a model that one scalar can set: not what it is, and no mappings."""
    kind = model if isinstance(model, type) else type(model)
    return {
        name
        for name, field in kind.model_fields.items()
        if name not in NOT_SEARCHED
        and (get_origin(field.annotation) not in (list, dict) or name in kind.one_is_enough)
    }


def _takes_any(model: ModelSpec | type[Model]) -> bool:
    """Whether names of options are those of a function that is not ours."""
    return issubclass(model if isinstance(model, type) else type(model), TimmModel | PythonModel)


def model_values(model: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The options of a model as data, each by the name that :func:`field_of` gives it; a list of one as that one.

    Example:
        >>> dict(model_values({"name": "python:lab:small", "options": {"width": 8}}))
        {'name': 'python:lab:small', 'options.width': 8}
    """
    for name, value in model.items():
        if name == "options":
            yield from ((OPTIONS + option, each) for option, each in value.items())
        else:
            yield name, value[0] if isinstance(value, list) and len(value) == 1 else value


def option_values(model: ModelSpec, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Values of options, by the names of :func:`field_of`, as values of the model's fields; nobody has checked them.

    Example:
        >>> from tan_core.spec.models import PythonModel
        >>> model = PythonModel(name="python:lab:small", options={"width": 8, "depth": 2})
        >>> option_values(model, {"options.width": 16})
        {'options': {'width': 16, 'depth': 2}}
    """
    values = {name: value for name, value in chosen.items() if not name.startswith(OPTIONS)}
    if isinstance(model, TimmModel | PythonModel):
        own = {
            name.removeprefix(OPTIONS): value
            for name, value in chosen.items()
            if name.startswith(OPTIONS)
        }
        values |= {"options": {**model.options, **own}} if own else {}
    return values


def needs_of(
    place: Place | None, model: ModelSpec, searched: Collection[Place | None] = ()
) -> list[Need]:
    """What a field needs to be read, of fields of its own section; empty where it always is.

    Args:
        place: of the field.
        model: whose options need one another.
        searched: what else the same search varies.
    """
    if place is None:
        return []
    section, field = place
    needs = trainer_needs(searched) if section == "train" else model.needs
    return [need for need in needs if need.field == field]


def trainer_needs(searched: Collection[Place | None] = ()) -> Sequence[Need]:
    """Of the trainer's fields, where a search varies these."""
    return NEEDS_OF_BOTH if {("train", "momentum"), ("train", "beta1")} <= {*searched} else NEEDS
