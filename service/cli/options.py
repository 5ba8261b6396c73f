"""Options that several commands share, and what the shell may complete in them."""

from typing import Annotated

import typer

from service.cli.complete import dataset_names, study_references, study_states

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, and only JSON.")]
StudyReference = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="Id, unique beginning of an id, or name (the newest of that name).",
        show_default=False,
        autocompletion=study_references,
    ),
]
StudyReferences = Annotated[
    list[str],
    typer.Argument(
        metavar="STUDY...",
        help="Ids, unique beginnings of ids, or names.",
        show_default=False,
        autocompletion=study_references,
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
    typer.Argument(metavar="DATASET", help="A registered dataset.", autocompletion=dataset_names),
]
