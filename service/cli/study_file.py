"""Reads YAML files, a study's first of all, into the JSON that is sent. What the fields mean is the server's business."""

import math
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from service.cli.errors import Fault, InputError
from service.text import first_of
from tan_core.errors import ParameterError
from tan_core.spec.yaml import parse_yaml, parse_yaml_value

Json = dict[str, Any]

_NAME = r'(?:"[^"]+"|[^".]+)'
_KEY = re.compile(rf"{_NAME}(?:\.{_NAME})*")
_LEFT_OVER = re.compile(r"^unknown key\b|\bleave it out\b")
"""How the service refuses a key that does not go with others."""


def read_mapping(source: str) -> Json:
    """The mapping in a file, or on standard input for ``-``.

    Raises:
        InputError: no such file, not YAML, or not a mapping of finite values.
    """
    text = _text_of(source)
    try:
        found = parse_yaml(text)
    except ParameterError as error:
        raise InputError(f"{_label(source)}: {error}") from error
    faults = list(_unsendable(found, ()))
    if faults:
        raise InputError(f"{_label(source)} cannot be sent", faults=faults)
    return found


def with_changes(study: Json, changes: Sequence[str]) -> Json:
    """The study after every ``--set KEY=VALUE``, in their order; the one that is given stays as it was.

    Args:
        study: as YAML holds it.
        changes: KEY is a path of names with dots between them. A name that holds dots itself stands in double
            quotes, unless there is such a key already. VALUE is YAML. What is missing on the way is made.

    Raises:
        InputError: names each that cannot be made.

    Example:
        >>> study = {"privacy": {"epsilon": 3, "delta": 1e-05}}
        >>> with_changes(study, ["privacy.epsilon=1", "search.rungs=[16, 64]"])
        {'privacy': {'epsilon': 1, 'delta': 1e-05}, 'search': {'rungs': [16, 64]}}
    """
    faults: list[Fault] = []
    for change in changes:
        try:
            names, value = _assignment(change)
            unsendable = _unsendable(_changed(None, names, value), ())
            faults += [replace(fault, path=f"--set {fault.path}") for fault in unsendable]
            study = _changed(study, names, value)
        except ParameterError as error:
            faults.append(Fault(f"--set {change}", str(error)))
    if faults:
        raise InputError("", faults=faults)
    return study


def whole_mapping(changes: Sequence[str], faults: Sequence[Fault]) -> str | None:
    """What to type where keys of a mapping are left that do not go with those that ``--set`` gave it; None where none are.

    Example:
        >>> left = Fault("model.hidden", "unknown key; accepted: pretrained, name", [64])
        >>> whole_mapping(["model.name=linear"], [left])
        "--set 'model={name: linear}' replaces all of model, without hidden"
        >>> whole_mapping(["model.hidden=[32]"], [left]) is None
        True
    """
    given = [_assignment(change) for change in changes]
    was_set = {".".join(names[:size]) for names, _ in given for size in range(1, len(names) + 1)}
    left = [
        fault.path.rpartition(".")
        for fault in faults
        if _LEFT_OVER.search(fault.message) and fault.path not in was_set
    ]
    mapping = next((above for above, _, _ in left if above in was_set), None)
    below = [(names, value) for names, value in given if ".".join(names[:-1]) == mapping]
    if mapping is None or not below:
        return None
    whole = {names[-1]: value for names, value in below}
    flow = yaml.safe_dump(
        whole, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
    )
    keys = [key for above, _, key in left if above == mapping]
    change = shlex.quote(f"{mapping}={flow.strip()}")
    return f"--set {change} replaces all of {mapping}, without {first_of(keys)}"


def _assignment(change: str) -> tuple[tuple[str, ...], Any]:
    """The names and the value of ``KEY=VALUE``."""
    key, equals, value = change.partition("=")
    if not equals:
        raise ParameterError("expected KEY=VALUE, as privacy.epsilon=1")
    if not _KEY.fullmatch(key.strip()):
        raise ParameterError(
            "expected a KEY of names with a dot between them, as privacy.epsilon; a name that holds "
            "dots stands in double quotes"
        )
    names = re.findall(_NAME, key.strip())
    return tuple(name.strip('"') for name in names), parse_yaml_value(value)


def _changed(found: Any, names: tuple[str, ...], value: Any, above: str = "") -> Json:
    """A copy of a mapping, or of nothing, with a value at the end of the path."""
    if found is None:
        found = {}
    if not isinstance(found, dict):
        raise ParameterError(f"{above} is no mapping but a {type(found).__name__}: it has no keys")
    # Keys may hold dots, as model.options.width of search.space: one that is there is meant.
    lengths = range(len(names), 0, -1)
    length = next((size for size in lengths if ".".join(names[:size]) in found), 1)
    name, rest = ".".join(names[:length]), names[length:]
    if rest:
        value = _changed(found.get(name), rest, value, f"{above}.{name}" if above else name)
    return {**found, name: value}


def _text_of(source: str) -> str:
    try:
        return sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(
            f"no such file: {source}", hint=f"tan-cli init {source} writes one"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{_label(source)} is not UTF-8 text: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror or error}") from error


def _unsendable(value: object, path: tuple[str, ...]) -> Iterator[Fault]:
    """What YAML can say and JSON cannot: infinities, NaN, half a surrogate pair, tagged values such as dates."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _unsendable(key, (*path, str(key)))
            yield from _unsendable(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unsendable(item, (*path, str(index)))
    elif isinstance(value, float) and not math.isfinite(value):
        yield Fault(".".join(path), "must be a finite number", value)
    elif isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        yield Fault(".".join(path), "holds half a surrogate pair, which UTF-8 cannot carry")
    elif not (value is None or isinstance(value, bool | int | float | str)):
        yield Fault(".".join(path), f"{type(value).__name__} is not accepted here")


def _label(source: str) -> str:
    return "standard input" if source == "-" else source
