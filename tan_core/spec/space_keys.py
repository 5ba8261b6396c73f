"""Keys of ``search.space`` that name no field, told together with the faults of other sections."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import InitErrorDetails
from pydantic_core.core_schema import ErrorType

from tan_core.spec.base import fault
from tan_core.spec.fields import ANY_OPTION, NOT_SEARCHED, field_of, searchable_keys
from tan_core.spec.models import type_of
from tan_core.spec.problems import accepted_keys
from tan_core.spec.space import MAX_DIMENSIONS

_SPACE = ("search", "space")
_KINDS_OF_PYDANTIC = frozenset(get_args(ErrorType))


def no_field(searchable: list[str], key: str) -> str:
    """What is said of a key that is none of those that a study's space may hold.

    Example:
        >>> no_field(["steps", ANY_OPTION], "width")
        'not a trainer or model field: did you mean model.options.width? accepted: steps, model.options.NAME'
        >>> no_field(["steps", ANY_OPTION], "model.pretrained")
        'is not searched, set it below model; accepted: steps, model.options.NAME'
    """
    section, _, name = key.rpartition(".")
    if ANY_OPTION in searchable and section in ("", "model") and name in NOT_SEARCHED:
        return f"is not searched, set it below model; accepted: {', '.join(searchable)}"
    told = accepted_keys(key, searchable)
    if ANY_OPTION in searchable and told.startswith(";"):
        option = ANY_OPTION.replace("NAME", name)
        told = f": did you mean {option}?{told[1:]}"
    return f"not a trainer or model field{told}"


def with_unknown_keys(error: ValidationError, study: Any) -> ValidationError:
    """The faults of a study as it was given, with those of keys of its space that they do not speak of.

    What sections say only together is asked of a study whose fields are all right: a slip in a key
    would be told after everything else was mended, and after another round.
    """
    details = error.errors(include_url=False)
    told = {detail["loc"][2] for detail in details if detail["loc"][:2] == _SPACE != detail["loc"]}
    unknown = [
        fault("spec", (*_SPACE, key), key, message)
        for key, message in _unknown_keys(study)
        if key not in told
    ]
    if not unknown:
        return error
    return ValidationError.from_exception_data(error.title, [*map(_again, details), *unknown])


def _unknown_keys(study: Any) -> Iterator[tuple[str, str]]:
    """Each key that names no field, with what is said of it; none where the model is not known."""
    search = study.get("search") if isinstance(study, Mapping) else None
    space = search.get("space") if isinstance(search, Mapping) else None
    if not isinstance(space, Mapping) or len(space) > MAX_DIMENSIONS:
        return
    model = type_of(study.get("model"))
    if model is None:
        return
    searchable = searchable_keys(model)
    for key in space:
        if isinstance(key, str) and field_of(key, model) is None:
            yield key, no_field(searchable, key)


def _again(detail: Any) -> InitErrorDetails:
    """A fault that was told, to be told with others."""
    kind, loc, given = detail["type"], detail["loc"], detail["input"]
    if kind not in _KINDS_OF_PYDANTIC:
        return fault(kind, loc, given, detail["msg"])
    return InitErrorDetails(type=kind, loc=loc, input=given, ctx=detail.get("ctx", {}))
