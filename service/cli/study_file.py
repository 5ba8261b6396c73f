"""Reads ``study.yaml`` into the JSON that is sent. What the fields mean is the server's business."""

import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from service.cli.errors import Fault, InputError

_FLOAT = re.compile(
    r"^[-+]?(?:(?:[0-9][0-9_]*)(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)"
    r"|(?:[0-9][0-9_]*)?\.[0-9_]+(?:[eE][-+]?[0-9]+)?"
    r"|[0-9][0-9_]*\.(?:[eE][-+]?[0-9]+)?"
    r"|\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)


class _StudyLoader(yaml.SafeLoader):
    """YAML as people write it: ``1e-5`` is a number, a date is text, a key is written once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys are distinct text."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = str(key_node.value)
            if key in seen:
                line = key_node.start_mark.line + 1
                raise InputError(f"line {line}: the key {key!r} is written twice")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_StudyLoader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:float")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StudyLoader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def read_study(source: str) -> dict[str, Any]:
    """The study in a file, or on standard input for ``-``.

    Raises:
        InputError: no such file, not YAML, or not a mapping of finite values.
    """
    text = _text_of(source)
    try:
        # The loader is a SafeLoader: it builds plain values only.
        study = yaml.load(text, Loader=_StudyLoader)  # noqa: S506
    except yaml.MarkedYAMLError as error:
        raise InputError(f"{_label(source)} is not YAML: {_where(error)}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{_label(source)} is not YAML: {error}") from error
    except InputError as error:
        raise InputError(f"{_label(source)}: {error.message}") from error
    if not isinstance(study, dict):
        raise InputError(
            f"{_label(source)} holds {_kind(study)}, not a study: "
            "it starts with keys such as name, privacy, dataset"
        )
    faults = list(_unsendable(study, ()))
    if faults:
        raise InputError(f"{_label(source)} cannot be sent", faults=faults)
    return study


def _text_of(source: str) -> str:
    try:
        return sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(f"no such file: {source}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{_label(source)} is not UTF-8 text: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror or error}") from error


def _unsendable(value: object, path: tuple[str, ...]) -> Iterator[Fault]:
    """What JSON has no word for."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _unsendable(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unsendable(item, (*path, str(index)))
    elif isinstance(value, float) and not math.isfinite(value):
        yield Fault(".".join(path), "must be a finite number", value)
    else:
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            yield Fault(".".join(path), f"{type(value).__name__} is not accepted here")


def _where(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{place}{error.problem or error.context or 'cannot be read'}"


def _label(source: str) -> str:
    return "standard input" if source == "-" else source


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
