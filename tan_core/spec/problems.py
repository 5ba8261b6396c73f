"""What is wrong with a user's input: the path, the value, and what would be accepted."""

import math
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError

from tan_core.spec.models import ACCEPTED_NAMES, MODEL_TAGS


class FieldProblem(BaseModel):
    """One field at fault."""

    path: str
    """Dotted path as in the YAML, e.g. ``search.space.learning_rate.low``."""
    message: str
    value: object | None = None
    """JSON-safe: NaN, infinities and anything large are text."""


_SCALARS = frozenset(["bool", "int", "float", "str"])
_FREE = frozenset(["space", "first", "options", "params"])
"""Mappings whose keys are the user's own, and whose values may be any scalar."""
_ABSENT = frozenset(["missing", "spec", "dataset", "study"])
"""Kinds of fault whose input is None where nothing was written, or that say themselves that it is null: two are told of
whole studies and registrations, the last one of an edit."""
_MESSAGES = {
    "extra_forbidden": "unknown key",
    "missing": "a value is needed here",
    "model_type": "expected a mapping of keys",
    "model_attributes_type": "expected a mapping of keys",
    "dict_type": "expected a mapping of keys",
    "int_parsing_size": "no number so large is accepted here",
}
_PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$": "expected letters, digits and . _ - only, the first a letter or a "
    "digit, 100 at most",
    r"^[A-Za-z0-9._-]+$": "expected letters, digits and . _ - only",
    r"^[A-Za-z0-9._:/-]+$": "expected letters, digits and . _ : / - only",
    r"^[A-Za-z0-9][A-Za-z0-9._@ -]*$": "expected letters, digits, blanks and . _ @ - only, the first a letter or "
    "a digit",
    r"^[a-z0-9][a-z0-9-]*$": "expected small letters, digits and - only, the first no -",
}
_AUTO = "Input should be 'auto'"
_MAX_VALUE_LENGTH = 200
_MOST_EXPLAINED = 100
"""Unknown keys beyond so many are only called so: a body may hold a hundred thousand."""
_MOST_TOLD = 1000
"""Faults beyond so many are not looked at: nobody reads them, and half a million would take seconds to put in words."""
_CLOSE = 0.7
"""Of 1, how much alike a key is to the one that it is taken for: width is not meant by depth."""


def field_problems(
    error: ValidationError, model: type[BaseModel], *, prefix: tuple[str, ...] = ()
) -> list[FieldProblem]:
    """The faults of a value that was to be a ``model``, once per path, in the user's own words: a thousand at most."""
    return problems_of(error.errors(include_url=False), model, prefix=prefix)


def problems_of(
    details: Sequence[Any], model: type[BaseModel] | None, *, prefix: tuple[str, ...] = ()
) -> list[FieldProblem]:
    """The same of faults as pydantic lists them, of a value that was to be a ``model``; None: not known."""
    problems: dict[str, FieldProblem] = {}
    nulls: set[str] = set()
    for detail in details[:_MOST_TOLD]:
        problem = _problem(detail, (*prefix, *detail["loc"]))
        if detail["type"] == "extra_forbidden" and model and len(problems) < _MOST_EXPLAINED:
            message = _unknown_key(str(detail["loc"][-1]), _accepted(model, detail["loc"]))
            problem = problem.model_copy(update={"message": message})
        if detail["input"] is None and detail["type"] not in _ABSENT:
            nulls.add(problem.path)
        known = problems.get(problem.path)
        if known is None or (_is_auto(known) and isinstance(detail["input"], list)):
            problems[problem.path] = problem
        elif problem.message not in known.message:
            message = f"{known.message}; or: {problem.message}"
            problems[problem.path] = known.model_copy(update={"message": message})
    found = [p for p in problems.values() if not _is_other_branch(p, problems)]
    # As a value, null cannot be told from none.
    return [
        p.model_copy(update={"message": f"{p.message}, got null"}) if p.path in nulls else p
        for p in found
    ]


def in_words(detail: Any) -> str:
    """What pydantic says of one fault, with the characters that a text may hold instead of a pattern.

    Example:
        >>> in_words({"type": "string_pattern_mismatch", "ctx": {"pattern": "^[A-Za-z0-9._-]+$"}, "msg": ""})
        'expected letters, digits and . _ - only'
    """
    message = str(detail["msg"]).removeprefix("Value error, ")
    if detail["type"] != "string_pattern_mismatch":
        return message
    return _PATTERNS.get(str(detail["ctx"]["pattern"]), message)


def _problem(detail: Any, loc: tuple[int | str, ...]) -> FieldProblem:
    kind, value = detail["type"], detail["input"]
    if kind == "union_tag_not_found" and loc[-1:] == ("model",):
        if not isinstance(value, dict):
            path = ".".join(map(str, loc))
            return FieldProblem(path=path, message=_MESSAGES["model_type"], value=_short(value))
        name = value.get("name")
        found = "a model needs a name" if name is None else f"unknown model {name!r}"
        return FieldProblem(
            path=".".join(map(str, (*loc, "name"))),
            message=f"{found}; accepted: {', '.join(ACCEPTED_NAMES)}",
            value=_short(name),
        )
    parts = _user_path(loc, is_written=kind == "extra_forbidden")
    message = in_words(detail)
    if len(parts) < len(loc) and loc[-1] in _SCALARS and not _FREE.isdisjoint(loc[:-2]):
        message = (
            "expected a finite number"
            if parts[-1] in ("low", "high")
            else "expected a number, a text or true/false"
        )
    return FieldProblem(
        path=".".join(parts),
        message=_MESSAGES.get(kind, message),
        value=None if kind == "missing" else _short(value),
    )


def _user_path(loc: Sequence[int | str], *, is_written: bool) -> list[str]:
    """The location without what pydantic adds: validators, list types and members of unions.

    ``is_written``: its last part is a key of the user's, whatever it is called.
    """
    parts: list[str] = []
    space_at: int | None = None  # where the key of search.space stands in ``loc``
    for index, part in enumerate(loc):
        text, parent = str(part), str(loc[index - 1]) if index else ""
        if is_written and index == len(loc) - 1:
            parts.append(text)
            continue
        if text.startswith(("literal[", "constrained-", "function-", "union[", "list[", "lax-or-")):
            continue
        if parent == "space" and space_at is None:
            space_at = index
        is_type = index == len(loc) - 1 and text in _SCALARS and parent not in _FREE
        is_model = parent == "model" and text in MODEL_TAGS
        is_kind = space_at is not None and index == space_at + 1 and _is_tag(text, loc[index + 1 :])
        if not (is_type or is_model or is_kind):
            parts.append(text)
    return parts


def _is_tag(text: str, rest: Sequence[int | str]) -> bool:
    """Whether this is the kind of a dimension, and not the key ``choices`` below one."""
    if text == "choices":
        return bool(rest) and isinstance(rest[0], str)
    return text in ("range", "fixed")


def _unknown_key(key: str, accepted: Sequence[str]) -> str:
    """What is said of a key that its section does not have: those that it has, the nearest first.

    Example:
        >>> _unknown_key("step", ["batch_size", "steps"])
        'unknown key: did you mean steps? accepted: batch_size, steps'
    """
    return f"unknown key{accepted_keys(key, accepted)}"


def accepted_keys(key: str, accepted: Sequence[str]) -> str:
    """What follows on the word that a key is none of these: the nearest of them, whatever its section, and all.

    Example:
        >>> accepted_keys("widthh", ["learning_rate", "model.width"])
        ': did you mean model.width? accepted: learning_rate, model.width'
    """
    of_name = {each.rpartition(".")[2]: each for each in reversed(accepted)}
    meant = get_close_matches(key.rpartition(".")[2], of_name, n=1, cutoff=_CLOSE)
    nearest = f": did you mean {of_name[meant[0]]}?" if meant else ";"
    return f"{nearest} accepted: {', '.join(accepted)}"


def _accepted(model: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """The keys of the section that a location ends in."""
    sections = {model.__name__: model}
    for part in loc[:-1]:
        inner = {
            tag: found
            for section in sections.values()
            if part in section.model_fields
            for tag, found in _sections(section.model_fields[str(part)].annotation)
        }
        if inner:
            sections = inner
        elif part in sections:  # which of several is meant
            sections = {str(part): sections[str(part)]}
    return list(dict.fromkeys(key for each in sections.values() for key in each.model_fields))


def _sections(kind: Any, tag: str | None = None) -> Iterator[tuple[str, type[BaseModel]]]:
    """The models that a type is made of, each by what a location calls it: its tag in a union, or its name."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield tag or kind.__name__, kind
        return
    inner = get_args(kind)
    if get_origin(kind) is Annotated:
        tag = next((each.tag for each in inner[1:] if isinstance(each, Tag)), tag)
        inner = inner[:1]
    for each in inner:
        yield from _sections(each, tag)


def _is_other_branch(problem: FieldProblem, problems: dict[str, FieldProblem]) -> bool:
    """Whether this only says that a list, which has a fault of its own, is no word such as 'auto'."""
    below = f"{problem.path}."
    return _is_auto(problem) and any(path.startswith(below) for path in problems)


def _is_auto(problem: FieldProblem) -> bool:
    """Whether 'auto', alone or with other words, was expected first."""
    return problem.message.startswith(_AUTO)


def _short(value: object) -> object | None:
    """The value if it is small enough to show in an error, and as JSON can hold it."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else text[: _MAX_VALUE_LENGTH - 3] + "..."
