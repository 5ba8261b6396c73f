"""Commands that look after a running study: pause, resume, finish, logs."""

from typing import Annotated, Any

import typer

from service.cli.errors import InputError
from service.cli.options import JsonFlag, StudyReference

Json = dict[str, Any]
RUNS = ("search", "private")


def pause(study: StudyReference, as_json: JsonFlag = False) -> None:
    """Let a study rest: it stops at its next checkpoint and frees its slot; nothing is lost."""
    from service.cli.connect import document, find_study, label, open_client
    from service.cli.output import show, show_json

    with open_client() as client:
        answer = document(client.pause_study(find_study(client, study)["id"]))
    if as_json:
        show_json(answer)
    else:
        show(f"{label(answer)} pauses at its next checkpoint; `tan-cli resume {answer['id']}`")


def resume(study: StudyReference, as_json: JsonFlag = False) -> None:
    """Go on with a paused study once a slot is free."""
    from service.cli.connect import document, find_study, label, open_client
    from service.cli.output import show, show_json

    with open_client() as client:
        answer = document(client.resume_study(find_study(client, study)["id"]))
    if as_json:
        show_json(answer)
    else:
        place = answer.get("queue_position")
        when = "goes on" if place is None else f"is number {place} in line for a slot"
        show(f"{label(answer)} {when}; watch it with `tan-cli watch {answer['id']}`")


def finish(study: StudyReference, as_json: JsonFlag = False) -> None:
    """End a search early: the trials that run go on to their end, and the best one is promoted."""
    from service.cli.connect import document, find_study, label, open_client
    from service.cli.output import show, show_json

    with open_client() as client:
        answer = document(client.finish_search(find_study(client, study)["id"]))
    if as_json:
        show_json(answer)
    else:
        asks = answer.get("approval") == "required"
        then = "is proposed, and waits for approval," if asks else "is promoted"
        show(
            f"{label(answer)} begins no more trials; the best one {then} once those that run have ended: "
            f"`tan-cli watch {answer['id']}`"
        )


def logs(
    study: StudyReference,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Stay until the attempt has ended.")
    ] = False,
    run: Annotated[
        str | None,
        typer.Option(help="search or private; default: that of the newest attempt."),
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Default: the newest of the run.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the attempts and how they ended, and only JSON."),
    ] = False,
) -> None:
    """Print the log of a study's search or private run; secrets are left out."""
    import sys

    from service.cli.connect import document, find_study, open_client
    from service.cli.output import show, show_json

    if run not in (None, *RUNS):
        raise InputError(f"--run: accepted are {' and '.join(RUNS)}, got {run!r}")
    if follow and as_json:
        raise InputError("--follow goes without --json: a log is text")
    with open_client() as client:
        study_id = find_study(client, study)["id"]
        if as_json:
            show_json(document(client.list_attempts(study_id))["items"])
            return
        is_empty = True

        def write(part: str) -> None:
            nonlocal is_empty
            is_empty = is_empty and not part
            sys.stdout.write(part)
            sys.stdout.flush()

        if follow:
            from service.cli.follow import follow_log

            follow_log(
                client,
                study_id,
                run=run,
                attempt=attempt,
                write=write,
                note=lambda said: show(said, error=True),
            )
        else:
            for part in client.read_log(study_id, run=run, attempt=attempt):
                write(part)
        if is_empty:
            show("the log is empty", error=True)
