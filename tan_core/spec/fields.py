"""Where a key of the search space points."""

from collections.abc import Collection, Sequence
from typing import Literal, get_origin

from tan_core.spec.models import Model, ModelSpec
from tan_core.spec.needs import Need
from tan_core.spec.train import NEEDS, NEEDS_OF_BOTH, TrainerConfig

STEPS_KEYS = frozenset({"steps", "train.steps"})
"""How a space may name the number of steps, the one field that changes what a candidate costs."""

Place = tuple[Literal["train", "model"], str]


def field_of(key: str, model: ModelSpec | type[Model]) -> Place | None:
    """``("train", field)`` or ``("model", option)``; None where there is no such field.

    Both the bare name and the dotted one are accepted: ``width`` and ``model.width``.
    """
    section, _, name = key.rpartition(".")
    if section in ("", "train") and (name in TrainerConfig.model_fields or name == "steps"):
        return "train", name
    if section in ("", "model") and name in model_options(model):
        return "model", name
    return None


def searchable_keys(model: ModelSpec | type[Model]) -> list[str]:
    """Every key that the space of a study with this model may hold."""
    options = (f"model.{name}" for name in sorted(model_options(model)))
    return [*TrainerConfig.model_fields, "steps", *options]


def model_options(model: ModelSpec | type[Model]) -> set[str]:
    """The options of a model that one scalar can set: not what it is, no lists and no mappings."""
    fields = (model if isinstance(model, type) else type(model)).model_fields
    return {
        name
        for name, field in fields.items()
        if name not in ("name", "pretrained") and get_origin(field.annotation) not in (list, dict)
    }


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
