"""What is wrong with YAML that was written on a page, and on which of its lines."""

from dataclasses import dataclass
from typing import Any

import yaml

from service.errors import ServiceError
from tan_core.errors import TanError
from tan_core.spec import FieldProblem


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with the text, and where."""

    path: str
    message: str
    value: Any = None
    line: int | None = None
    """From 1; None where the text does not say it at all."""


def faults_of(error: ServiceError | TanError, text: str) -> list[Fault]:
    """What an error says about a text, each with its line."""
    problems = error.problems if isinstance(error, ServiceError) else []
    field = getattr(error, "field", None)
    if not problems and field:
        problems = [FieldProblem(path=field, message=str(error))]
    if not problems:
        return [Fault(path="", message=str(error), line=_line_in(str(error)))]
    root = _composed(text)
    return [
        Fault(
            each.path, each.message, each.value, None if root is None else line_of(root, each.path)
        )
        for each in problems
    ]


def line_of(root: yaml.Node, path: str) -> int | None:
    """The line of the key or the item that a path such as ``search.space.lr.low`` names.

    Where only the beginning of the path is written, it is the line of that: there the rest is missing.
    """
    node, line, parts = root, None, path.split(".")
    while parts:
        if isinstance(node, yaml.SequenceNode) and parts[0].isdigit():
            index = int(parts.pop(0))
            if index >= len(node.value):
                break
            node = node.value[index]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode):
            found = _longest_key(node, parts)
            if found is None:
                break
            key, node, used = found
            line, parts = key.start_mark.line + 1, parts[used:]
        else:
            break
    return line


def _longest_key(
    node: yaml.MappingNode, parts: list[str]
) -> tuple[yaml.Node, yaml.Node, int] | None:
    """The entry whose key is the most of these parts: a key may have dots of its own."""
    by_name = {key.value: (key, value) for key, value in node.value}
    for used in range(len(parts), 0, -1):
        if entry := by_name.get(".".join(parts[:used])):
            return *entry, used
    return None


def _composed(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None


def _line_in(message: str) -> int | None:
    """The line that a parser's message begins with."""
    word, _, rest = message.partition(" ")
    number = rest.partition(",")[0]
    return int(number) if word == "line" and number.isdigit() else None
