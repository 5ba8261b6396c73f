"""Reads ``study.yaml`` into the JSON that is sent. What the fields mean is the server's business."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service.cli.errors import Fault, InputError
from tan_core.errors import ParameterError
from tan_core.spec.yaml import parse_yaml


def read_study(source: str) -> dict[str, Any]:
    """The study in a file, or on standard input for ``-``.

    Raises:
        InputError: no such file, not YAML, or not a mapping of finite values.
    """
    text = _text_of(source)
    try:
        study = parse_yaml(text)
    except ParameterError as error:
        raise InputError(f"{_label(source)}: {error}") from error
    faults = list(_unsendable(study, ()))
    if faults:
        raise InputError(f"{_label(source)} cannot be sent", faults=faults)
    return study


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
    """What YAML can say and JSON cannot: infinities, NaN, tagged values such as dates."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _unsendable(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unsendable(item, (*path, str(index)))
    elif isinstance(value, float) and not math.isfinite(value):
        yield Fault(".".join(path), "must be a finite number", value)
    elif not (value is None or isinstance(value, bool | int | float | str)):
        yield Fault(".".join(path), f"{type(value).__name__} is not accepted here")


def _label(source: str) -> str:
    return "standard input" if source == "-" else source
