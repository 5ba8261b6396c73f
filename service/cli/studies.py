"""Commands on studies: list, show, watch, cancel, promote."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from service.cli.complete import dataset_names
from service.cli.errors import Exit, InputError
from service.cli.options import JsonFlag, StudyReference, StudyStates

Json = dict[str, Any]

_AWAITING = "awaiting_approval"


def list_studies(
    state: StudyStates = None,
    dataset: Annotated[
        str | None, typer.Option(help="Only studies on this dataset.", autocompletion=dataset_names)
    ] = None,
    model: Annotated[str | None, typer.Option(help="Only studies of this model.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Only with this tag; may be repeated.")
    ] = None,
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only studies whose name holds this.")
    ] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Only archived studies.")] = False,
    sort: Annotated[
        str,
        typer.Option(
            help="created_at, name, target_epsilon, best_accuracy, predicted_accuracy or test_accuracy; "
            "a minus before it puts the last first."
        ),
    ] = "-created_at",
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many; default: 20, and all of a CSV.")
    ] = None,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV: a line for each study.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """List studies, newest first."""
    if as_csv and as_json:
        raise InputError("give --csv or --json, not both")
    query = {
        "state": state,
        "dataset": dataset,
        "model": model,
        "tag": tag,
        "name_contains": search,
        "archived": "only" if archived else None,
        "sort": sort,
    }
    from service.cli.connect import documents, open_client, sent_by_options

    at_most = limit or 20
    asked = limit if as_csv else at_most + 1
    options = {name: f"--{name}" for name in query} | {"name_contains": "--search"}
    with open_client() as client, sent_by_options(options):
        items = documents(list(client.every_study(query, limit=asked)))
        if dataset is not None and not items:
            client.get_dataset(dataset)  # an unknown name is an error, not an empty list
        goes_on = not as_csv and len(items) > at_most
        total = (
            client.list_studies({**query, "limit": 1}).total if goes_on and not as_json else None
        )
        is_filtered = any((state, dataset, model, tag, search, archived))
        waiting = 0
        if not (as_json or as_csv or state == [_AWAITING]):
            waiting = sum(item["state"] == _AWAITING for item in items)
            if is_filtered or goes_on:
                waiting = client.list_studies({"state": [_AWAITING], "limit": 1}).total
    if as_json:
        from service.cli.output import show_json

        show_json(items[:at_most])
    elif as_csv:
        _write_csv(items)
    else:
        from service.cli import views
        from service.cli.output import show

        show(views.studies(items[:at_most], is_filtered=is_filtered))
        if waiting:
            what = "study awaits" if waiting == 1 else "studies await"
            show(f"{waiting:,} {what} approval: tan-cli list --state {_AWAITING}")
        if goes_on:
            of = "" if total is None else f" of {total:,}"
            show(f"the first {at_most}{of}; --limit shows more")


def _write_csv(items: Sequence[Json]) -> None:
    import csv
    import sys

    from service.study_table import COLUMNS, row
    from service.text import in_cell

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(map(in_cell, row(item)) for item in items)


def show_study(study: StudyReference, as_json: JsonFlag = False) -> None:
    """Show one study."""
    from service.cli.connect import documents, find_study, open_client
    from service.cli.output import show_json

    with open_client() as client:
        found = find_study(client, study)
        has_history = not as_json and (found["progress"].get("attempt") or 0) > 0
        attempts = documents(client.list_attempts(found["id"]).items) if has_history else []
    if as_json:
        show_json(found)
    else:
        _show_study(found, attempts)


def watch(
    study: StudyReference,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every event as one line of JSON.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Show how it stands now, and do not stay.")
    ] = False,
) -> None:
    """Watch a study until it has ended; exit 1 if it did not complete."""
    from service.cli.connect import documents, find_study, open_client
    from service.cli.progress import of_study
    from service.cli.submit import accompany, outcome

    with open_client() as client:
        found = find_study(client, study)
        if once:
            trials = [] if as_json else documents(list(client.every_trial(found["id"])))
            final = found
            _show_now(found, trials, as_json=as_json)
        elif as_json:
            from service.cli.follow import follow
            from service.cli.output import show_json_line

            final = follow(client, found, on_event=lambda event: show_json_line(event.data))
        else:
            final = accompany(client, found)
            _show_study(final)
    is_under_way = once and not of_study(final).is_over
    raise typer.Exit(Exit.DONE if is_under_way else outcome(final))


def cancel(study: StudyReference, as_json: JsonFlag = False) -> None:
    """Cancel a study; what was spent stays spent, what never began is released."""
    from service.cli.connect import document, find_study, label, open_client
    from service.cli.output import show, show_json

    with open_client() as client:
        answer = document(client.cancel_study(find_study(client, study)["id"]))
    if as_json:
        show_json(answer)
    else:
        is_over = answer.get("state") == "cancelled"
        show(f"{label(answer)} is cancelled" if is_over else f"{label(answer)} is being cancelled")


def promote(
    study: StudyReference,
    trial: Annotated[
        int | None, typer.Option(min=0, help="The trial to promote; default: the search's winner.")
    ] = None,
    only_list: Annotated[
        bool,
        typer.Option("--list", help="Only show the trials that may be promoted, and predictions."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Start the private run of a study that awaits approval."""
    from service.cli import prediction_view
    from service.cli.connect import document, find_study, label, open_client, readable
    from service.cli.output import show, show_error, show_json
    from service.client import ProblemError

    with open_client() as client:
        found = find_study(client, study)
        if only_list:
            if as_json:
                show_json(found["promotion"])
            else:
                show(prediction_view.standings(found))
            return
        try:
            answer = document(client.promote_study(found["id"], {"trial": trial}))
        except ProblemError as refusal:
            error = readable(refusal)
            if error.exit_code is not Exit.BAD_INPUT:
                raise
            show_error(
                error, hint=f"tan-cli promote {found['id']} --trial NUMBER, with one of these"
            )
            show(prediction_view.standings(found), error=True)
            raise typer.Exit(error.exit_code) from refusal
    if as_json:
        show_json(answer)
    else:
        which = "the search's winner" if trial is None else f"trial {trial}"
        if not answer["spec"]["search"]["trials"]:
            which = "what was given with it"
        elif found["promotion"] is None and found["state"] == "awaiting_approval":
            show(
                f"{label(answer)}: its search may begin; the private run waits for a promote of its own"
            )
            return
        show(f"{label(answer)}: {which} is promoted to the private run")


def _show_study(study: Json, attempts: Sequence[Json] = ()) -> None:
    from service.cli import views
    from service.cli.output import show

    show(views.study(study, attempts))


def _show_now(study: Json, trials: Sequence[Json], *, as_json: bool) -> None:
    """What ``watch`` shows, once."""
    from service.cli.live import still
    from service.cli.output import console, show, show_json

    if as_json:
        show_json(study)
    else:
        show(still(study, trials, width=console().width))
