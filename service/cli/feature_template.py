"""What ``tan-cli dataset features`` prints: a line for each column of a table, to be filled in by who knows the data's meaning.

No value of a record is in it. What has to be stated is left open in a way that ``dataset add`` refuses.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from service.cli.errors import Fault, InputError

_OPEN = {
    "number": "{low: LOW, high: HIGH}",
    "text": "{choices: []}",
    "bounded": "",
}
"""By what a column holds, as ``tan_core.data.columns`` tells it."""


def kinds_of(table: Path, *, beside: Mapping[str, str]) -> dict[str, str]:
    """What the columns hold that may be features, in their order.

    Args:
        table: a file or folder on this machine.
        beside: columns that are none, by the option that names them.

    Raises:
        InputError: there is no such table, or no such column.
    """
    from tan_core.data.columns import column_kinds
    from tan_core.data.sources import existing
    from tan_core.errors import DatasetError

    try:
        kinds = column_kinds(existing(str(table)))
    except DatasetError as error:
        raise InputError(str(error)) from error
    faults = [
        Fault(option, f"there is no such column; columns: {', '.join(kinds)}", column)
        for option, column in beside.items()
        if column not in kinds
    ]
    if faults:
        raise InputError("", faults=faults)
    return {name: kind for name, kind in kinds.items() if name not in beside.values()}


def as_yaml(kinds: Mapping[str, str], table: Path, *, beside: Mapping[str, str]) -> str:
    """The file, with what to do about it."""
    return "".join([*_head(table, beside), *(_line(name, kind) for name, kind in kinds.items())])


def as_json(kinds: Mapping[str, str]) -> list[object]:
    """The same as ``POST /datasets`` takes it, where null is what has to be stated."""
    stated: dict[str, dict[str, object]] = {
        "number": {"low": None, "high": None},
        "text": {"choices": []},
    }
    return [
        {"column": name, **stated[kind]} if kind in stated else name
        for name, kind in kinds.items()
        if kind in _OPEN
    ]


def _head(table: Path, beside: Mapping[str, str]) -> list[str]:
    named = " ".join(f"{option} {_key(column)}" for option, column in beside.items())
    return [
        f"# How the columns of {json.dumps(table.name, ensure_ascii=False)} are read: tan-cli dataset add NAME --path TABLE {named} --features FILE.yaml\n",
        "# State what is known of each without the data: what is read off the records tells something of them, and no ε covers that.\n",
        "#   {low: 0, high: 100}       numbers, which become -1 to 1\n",
        "#   {choices: [a, b]}         text, whole numbers or truth values: a column of 0 and 1 for each\n",
        "#   nothing behind the colon  numbers or truth values, as they are\n",
        "# Take out the columns that no model shall read.\n",
    ]


def _line(name: str, kind: str) -> str:
    """Of one column; of what no feature can be, a comment."""
    if kind not in _OPEN:
        return f"# {_key(name)}: neither numbers nor text: no feature\n"
    return f"{_key(name)}: {_OPEN[kind]}".rstrip() + "\n"


def _key(name: str) -> str:
    """The name as a key of YAML, in quotes where it needs them."""
    import yaml

    plain = yaml.safe_dump({name: None}, allow_unicode=True, width=10_000)
    as_text = plain.removesuffix(": null\n")
    return as_text if as_text == name else json.dumps(name)
