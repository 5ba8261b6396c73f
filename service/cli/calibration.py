"""The command on how often predictions held: calibration."""

from typing import Annotated

import typer

from service.cli.options import JsonFlag

MAX_LIMIT = 200


def calibration(
    dataset: Annotated[
        str | None, typer.Option(help="Only studies on this dataset.", show_default=False)
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Only studies of this model.", show_default=False)
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MAX_LIMIT, help="List at most so many, newest first.")
    ] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Show what searches predicted beside what the private runs reached."""
    from service.cli.connect import document, open_client
    from service.cli.output import show, show_json

    with open_client() as client:
        found = document(client.get_calibration(dataset=dataset, model=model, limit=limit))
        if dataset is not None and not found["studies"]:
            client.get_dataset(dataset)  # an unknown name is an error, not an empty answer
    if as_json:
        show_json(found)
    else:
        from service.cli import prediction_view

        is_filtered = dataset is not None or model is not None
        show(prediction_view.calibration(found, is_filtered=is_filtered))
