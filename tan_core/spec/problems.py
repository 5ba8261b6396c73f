"""What is wrong with a user's input: the path, the value, and what would be accepted."""

import math
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from tan_core.spec.models import ACCEPTED_NAMES, MODEL_TAGS


class FieldProblem(BaseModel):
    """One field at fault."""

    path: str
    """Dotted path as in the YAML, e.g. ``search.space.learning_rate.low``."""
    message: str
    value: object | None = None
    """JSON-safe: NaN, infinities and anything large are text."""


_SCALARS = frozenset(["bool", "int", "float", "str"])
_MESSAGES = {
    "extra_forbidden": "unknown key",
    "missing": "a value is needed here",
    "model_type": "expected a mapping of keys",
    "model_attributes_type": "expected a mapping of keys",
    "dict_type": "expected a mapping of keys",
}
_PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$": "expected letters, digits and . _ - only, the first a letter or a "
    "digit, 100 at most",
    r"^[A-Za-z0-9._-]+$": "expected letters, digits and . _ - only",
    r"^[A-Za-z0-9._:/-]+$": "expected letters, digits and . _ : / - only",
    r"^[a-z0-9][a-z0-9-]*$": "expected small letters, digits and - only, the first no -",
}
_AUTO = "Input should be 'auto'"
_MAX_VALUE_LENGTH = 200


def field_problems(error: ValidationError, *, prefix: tuple[str, ...] = ()) -> list[FieldProblem]:
    """Every fault of a pydantic error, once per path, in the user's own words."""
    problems: dict[str, FieldProblem] = {}
    for detail in error.errors(include_url=False):
        problem = _problem(detail, (*prefix, *detail["loc"]))
        known = problems.get(problem.path)
        if known is None or (_is_auto(known) and isinstance(detail["input"], list)):
            problems[problem.path] = problem
        elif problem.message not in known.message:
            message = f"{known.message}; or: {problem.message}"
            problems[problem.path] = known.model_copy(update={"message": message})
    return [p for p in problems.values() if not _is_other_branch(p, problems)]


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
    parts = _user_path(loc)
    message = in_words(detail)
    if len(parts) < len(loc) and loc[-1] in _SCALARS:
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


def _user_path(loc: Sequence[int | str]) -> list[str]:
    """The location without what pydantic adds: validators, list types and members of unions."""
    parts: list[str] = []
    space_at: int | None = None  # where the key of search.space stands in ``loc``
    for index, part in enumerate(loc):
        text, parent = str(part), str(loc[index - 1]) if index else ""
        if text.startswith(("literal[", "constrained-", "function-", "union[", "list[", "lax-or-")):
            continue
        if parent == "space" and space_at is None:
            space_at = index
        is_member = parent == "model" and text in MODEL_TAGS
        if index > 1 and loc[index - 2] == "options":
            is_member = text in _SCALARS
        if space_at is not None:
            is_kind = index == space_at + 1 and _is_tag(text, loc[index + 1 :])
            is_type = space_at < index == len(loc) - 1 and text in _SCALARS
            is_member = is_member or is_kind or is_type
        if not is_member:
            parts.append(text)
    return parts


def _is_tag(text: str, rest: Sequence[int | str]) -> bool:
    """Whether this is the kind of a dimension, and not the key ``choices`` below one."""
    if text == "choices":
        return bool(rest) and isinstance(rest[0], str)
    return text in ("range", "fixed")


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
