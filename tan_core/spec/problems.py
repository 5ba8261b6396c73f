"""What is wrong with a user's input: the path, the value, and what would be accepted."""

from pydantic import BaseModel, ValidationError


class FieldProblem(BaseModel):
    """One field at fault."""

    path: str
    """Dotted path as in the YAML, e.g. ``search.space.learning_rate.low``."""
    message: str
    value: object | None = None


# Pydantic names the member of a union that it tried; the user wrote no such key.
_UNION_TAGS = frozenset(
    ["choices", "range", "fixed", "linear", "mlp", "tanh-cnn", "wrn-16-4", "list[constrained-int]"]
)


def field_problems(error: ValidationError, *, prefix: tuple[str, ...] = ()) -> list[FieldProblem]:
    """Every fault of a pydantic error, once per path, in the user's own words."""
    problems: dict[str, FieldProblem] = {}
    for detail in error.errors(include_url=False, include_context=False):
        path = _user_path((*prefix, *detail["loc"]))
        value = detail["input"] if detail["type"] != "missing" else None
        message = detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "extra_forbidden":
            message = "unknown key"
        known = problems.get(path)
        if known is not None and message not in known.message:
            problems[path] = known.model_copy(update={"message": f"{known.message}; or: {message}"})
        else:
            problems[path] = FieldProblem(path=path, message=message, value=_short(value))
    return list(problems.values())


def _user_path(loc: tuple[int | str, ...]) -> str:
    parts: list[str] = []
    for index, part in enumerate(loc):
        text = str(part)
        if text.startswith(("literal[", "constrained-", "function-", "union[", "list[")):
            continue
        # A union tag follows its own field: model.<tag>.width, space.<key>.<tag>.low.
        before = [str(p) for p in loc[:index]]
        if text in _UNION_TAGS and (before[-1:] == ["model"] or before[-2:-1] == ["space"]):
            continue
        parts.append(text)
    return ".".join(parts)


def _short(value: object) -> object | None:
    """The value if it is small enough to show in an error."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
