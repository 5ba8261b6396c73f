"""Commands on what was spent: ledger, statement."""

from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.options import JsonFlag

Json = dict[str, Any]


def ledger(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A registered dataset.")],
    as_json: JsonFlag = False,
) -> None:
    """Show a dataset's budget and every entry of its ledger."""
    from service.cli.client import open_client

    with open_client() as client:
        document = client.ledger(dataset)
    if as_json:
        from service.cli.output import show_json

        show_json(document)
    else:
        from service.cli import privacy_view
        from service.cli.output import show

        show(privacy_view.ledger(document))


def statement(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]", help="Id, beginning of an id, or name.", show_default=False
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Compute ε again from the events, check signature and chain."
        ),
    ] = False,
    file: Annotated[
        Path | None, typer.Option(help="A statement kept in a file, instead of asking the server.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show or verify the privacy statement of a completed study."""
    raise NotImplementedError(study, verify, file, as_json)
