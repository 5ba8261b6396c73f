"""Options that several commands share."""

from typing import Annotated

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, and only JSON.")]
StudyReference = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="Id, unique beginning of an id, or name (the newest of that name).",
        show_default=False,
    ),
]
