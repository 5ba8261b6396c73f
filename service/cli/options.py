"""Options that several commands share, and what the shell may complete in them."""

import math
from typing import Annotated

import typer

from service.cli.complete import dataset_names, study_keys, study_references, study_states


def not_empty(value: str | list[str] | None) -> str | list[str] | None:
    """A name as it was given.

    Raises:
        BadParameter: it is empty, and would ask for the list of all.
    """
    if any(not each.strip() for each in ([value] if isinstance(value, str) else value or [])):
        raise typer.BadParameter("a name is needed here, got an empty one")
    return value


def finite(value: float | None) -> float | None:
    """A number as it was given, for what is sent as JSON.

    Raises:
        BadParameter: it is infinite, or none.
    """
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"a finite number is needed here, got {value}")
    return value


def one_line(value: str) -> str:
    """A text as it was given, for what stays in a journal.

    Raises:
        BadParameter: it is blank, or holds what no line of a page shows.
    """
    if not value.strip() or not value.isprintable():
        raise typer.BadParameter("one line of printable text is needed here")
    return value


def sendable_key(value: str | None) -> str | None:
    """An idempotency key as it was given.

    Raises:
        BadParameter: no header can hold it.
    """
    if value is not None and not (value and value.isascii() and value.isprintable()):
        raise typer.BadParameter("printable ASCII is needed here, and some of it")
    return value


JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, and only JSON.")]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the study before it is sent, as privacy.epsilon=1 or "
        "'search.rungs=[16, 64]': VALUE is YAML. May be repeated.",
        show_default=False,
        autocompletion=study_keys,
    ),
]
StudyReference = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="Id, unique beginning of an id, or name (the newest of that name).",
        show_default=False,
        autocompletion=study_references,
        callback=not_empty,
    ),
]
StudyReferences = Annotated[
    list[str],
    typer.Argument(
        metavar="STUDY...",
        help="Ids, unique beginnings of ids, or names.",
        show_default=False,
        autocompletion=study_references,
        callback=not_empty,
    ),
]
StudyStates = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help="Only studies in this state; may be repeated.",
        autocompletion=study_states,
    ),
]
DatasetName = Annotated[
    str,
    typer.Argument(
        metavar="DATASET",
        help="A registered dataset.",
        autocompletion=dataset_names,
        callback=not_empty,
    ),
]
