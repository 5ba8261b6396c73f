"""The base of every spec: frozen, strict about unknown keys, and about what a number is."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

_NUMBER = re.compile(
    r"\s*[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?P<exponent>[eE][-+]?[0-9]+)?\s*"
)
"""A text that Python would read as a number."""


class Frozen(BaseModel):
    """Immutable; an unknown key, NaN and infinity are errors.

    Where a number belongs, neither a truth value nor a text is taken for one: Python counts true as 1,
    and ``steps: "128"`` is a slip to be told of. Only a text such as ``1e-5`` is let through: a number
    in YAML 1.2, and a text to the many readers of YAML 1.1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_what_is_no_number(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        faults = [
            fault
            for name, members in _numeric_fields(cls)
            if isinstance(given := data.get(name), bool | str | list)
            for fault in _faults(members, given, (name,))
        ]
        if faults:
            raise ValidationError.from_exception_data(cls.__name__, faults)
        return data


@cache
def _numeric_fields(model: type[BaseModel]) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """The fields that hold numbers or lists of them, with the alternatives of each."""
    fields = ((name, _members(field.annotation)) for name, field in model.model_fields.items())
    return tuple((name, members) for name, members in fields if _holds_numbers(members))


def _members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of an annotation: types, lists and the values of literals."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return tuple(member for each in get_args(annotation) for member in _members(each))
    if origin is Literal:
        return get_args(annotation)
    return (annotation,)


def _item_members(members: tuple[Any, ...]) -> tuple[Any, ...]:
    """The alternatives of the items, where one of the alternatives is a list."""
    lists = (get_args(each)[0] for each in members if get_origin(each) in (list, tuple))
    return tuple(member for each in lists for member in _members(each))


def _holds_numbers(members: tuple[Any, ...]) -> bool:
    items = _item_members(members)
    return int in members or float in members or (bool(items) and _holds_numbers(items))


def _faults(
    members: tuple[Any, ...], given: Any, path: tuple[int | str, ...]
) -> Iterator[InitErrorDetails]:
    """What is given for a number, or within a list of them, and is none."""
    if isinstance(given, list):
        items = _item_members(members)
        for index, item in enumerate(given if items else ()):
            yield from _faults(items, item, (*path, index))
        return
    if not (int in members or float in members):
        return
    if isinstance(given, bool) and not _takes_truth_values(members):
        yield fault("number", path, given, f"{path[0]} takes a number, no truth value")
    elif isinstance(given, str) and str not in members and _is_quoted_number(given):
        message = f"{path[0]} is a number, got the text {given!r}: write it without quotes"
        yield fault("number", path, given, message)


def _takes_truth_values(members: tuple[Any, ...]) -> bool:
    return bool in members or any(isinstance(each, bool) for each in members)


def _is_quoted_number(given: str) -> bool:
    """Whether this is a number that nobody writes as text but by mistake."""
    number = _NUMBER.fullmatch(given)
    return number is not None and number["exponent"] is None


def listed(value: object) -> object:
    """The parts of a text between commas; anything else as it is."""
    if not isinstance(value, str):
        return value
    return [part.strip() for part in value.split(",") if part.strip()]


def fault(kind: str, path: tuple[int | str, ...], value: Any, message: str) -> InitErrorDetails:
    """A fault of our own at a place of what was given, for pydantic to tell with its others."""
    # PydanticCustomError formats its template, so braces inside the message are escaped.
    text = message.replace("{", "{{").replace("}", "}}")
    return InitErrorDetails(type=PydanticCustomError(kind, text), loc=path, input=value)  # type: ignore[arg-type]
