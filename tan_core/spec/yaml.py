"""``study.yaml`` as text to a plain mapping: safe, bounded, and every fault with line and column.

Beside PyYAML's safe loader: duplicate keys are refused instead of dropped; documents that expand
(aliases of aliases) or nest without bound are refused; and scalars follow YAML 1.2 where 1.1
surprises: ``1e-5`` is a number, ``no`` is a word, ``12:30`` and ``2024-01-01`` are text.
"""

import re
from collections.abc import Hashable
from typing import Any, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tan_core import _validate
from tan_core.errors import ParameterError
from tan_core.spec.study import StudySpec

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
MAX_NODES = 50_000
"""As written, and after aliases are expanded."""
_NOTHING = object()


def parse_yaml(text: str, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """The mapping that a YAML document holds.

    Args:
        text: one document.
        max_bytes: of its UTF-8 form.

    Raises:
        ParameterError: not YAML, not a mapping, too large, too deep, or with a key twice; the message
            starts with line and column where there is one.

    Example:
        >>> parse_yaml("privacy: {epsilon: 3, delta: 1e-5}")
        {'privacy': {'epsilon': 3, 'delta': 1e-05}}
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] a path or an open file is easily given
        raise ParameterError(
            f"text must be the YAML itself, as str, got {type(text).__name__}: read a file first",
            field="text",
        )
    _validate.positive_integer(max_bytes=max_bytes)
    data = _parsed(text, max_bytes=max_bytes, nothing=None)
    if not isinstance(data, dict):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        if isinstance(data, str) and "\n" not in text.strip():
            found = f"{data!r:.80}: the name of a file is not read"
        raise ParameterError(f"expected a mapping of keys, got {found}")
    return data


def parse_yaml_value(text: str) -> Any:
    """The value that a YAML document holds, whatever its kind; read as :func:`parse_yaml` reads those of a study.

    Args:
        text: one document: what may stand behind a key.

    Raises:
        ParameterError: not YAML, nothing but blanks and comments, too large, too deep, or with a key twice.

    Example:
        >>> [parse_yaml_value(text) for text in ("1e-5", "no", "null", "[16, 64]", "{low: 1, high: 2}")]
        [1e-05, 'no', None, [16, 64], {'low': 1, 'high': 2}]
    """
    value = _parsed(text, max_bytes=MAX_BYTES, nothing=_NOTHING)
    if value is _NOTHING:
        raise ParameterError("expected a value, got nothing; accepted: null, '' for an empty text")
    return value


def load_study(text: str) -> StudySpec:
    """The study that a YAML document describes.

    Raises:
        ParameterError: the text is not an acceptable document.
        pydantic.ValidationError: the document is not an acceptable study; see ``field_problems``.
    """
    return StudySpec.model_validate(parse_yaml(text))


def _parsed(text: str, *, max_bytes: int, nothing: object) -> Any:
    """The value of the one document; ``nothing`` where there is none."""
    size = len(text.encode(errors="replace"))
    if size > max_bytes:
        raise ParameterError(f"a study may have {max_bytes} bytes of YAML, got {size}")
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        return nothing if root is None else loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        raise ParameterError(_located(error)) from error
    except (yaml.YAMLError, ValueError) as error:
        raise ParameterError(f"not YAML: {str(error).splitlines()[0]}") from error


class _Loader(yaml.SafeLoader):
    """One document of plain values, within bounds."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own protocol; filled below

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._num_nodes = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        """A node; refused below the depth limit, before recursion can exhaust the stack."""
        self._depth += 1
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES:  # a megabyte of them takes half a minute
            _refuse(f"holds more than {MAX_NODES} values", self.peek_event().start_mark)
        if self._depth > MAX_DEPTH:
            _refuse(f"nested deeper than {MAX_DEPTH} levels", self.peek_event().start_mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def compose_document(self) -> Node | None:
        """The root; refused where its aliases expand without bound."""
        root = super().compose_document()
        if root is not None:
            _count(root, counts={}, open_nodes=set())
        return root

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A dictionary of unlike text keys."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
                _refuse("a key must be text", key_node.start_mark)
            if key_node.value in seen:
                _refuse(f"key {key_node.value!r} is given twice", key_node.start_mark)
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


def _count(node: Node, *, counts: dict[int, int], open_nodes: set[int]) -> int:
    """How many nodes a node expands to."""
    identity = id(node)
    if identity in counts:
        return counts[identity]
    if identity in open_nodes:
        _refuse("an alias of its own parent", node.start_mark)
    open_nodes.add(identity)
    total = 1 + sum(_count(c, counts=counts, open_nodes=open_nodes) for c in _children(node))
    open_nodes.discard(identity)
    if total > MAX_NODES:
        _refuse(f"expands to more than {MAX_NODES} values", node.start_mark)
    counts[identity] = total
    return total


def _children(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, SequenceNode) else []


def _refuse(problem: str, mark: Any) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _located(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    problem = ", ".join(part for part in (error.context, error.problem) if part) or "not YAML"
    if mark is None:
        return problem
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


# PyYAML picks resolvers by first character; None stands for any. The order matters: int before float.
for _tag, _pattern in (
    ("null", r"~|null|Null|NULL|"),
    ("bool", r"true|True|TRUE|false|False|FALSE"),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F]+"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    ),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), [None]
    )
