"""``tan-cli submit``: send a study, and stay with it to its end if that is asked for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.complete import study_references
from service.cli.errors import Exit, InputError, UnknownStudyError
from service.cli.options import Changes, JsonFlag

if TYPE_CHECKING:
    from service.client import Client

Json = dict[str, Any]


def submit(
    study_yaml: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY.yaml]",
            help="The study; - reads standard input. Without it, the first --from STUDY is "
            "submitted again.",
            show_default=False,
        ),
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="STUDY",
            help="Try the best parameters of this study first: sets search.warm_start. "
            "May be repeated.",
            show_default=False,
            autocompletion=study_references,
        ),
    ] = None,
    changes: Changes = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Stay until the study has ended; exit 1 if it failed.")
    ] = False,
    as_json: JsonFlag = False,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            help="The same key again gives the same study instead of a second one; default: a fresh key."
        ),
    ] = None,
) -> None:
    """Submit a study."""
    from service.cli.connect import open_client
    from service.cli.output import show_json
    from service.cli.study_file import read_mapping, with_changes

    if study_yaml is None and not sources:
        raise InputError("give a STUDY.yaml, or --from STUDY to submit that study again")
    changes = changes or []
    spec = None if study_yaml is None else with_changes(read_mapping(study_yaml), changes)
    with open_client() as client:
        if sources:
            found = [_source(client, source) for source in sources]
            spec = _warm_started(spec, found, changes)
        study = send(
            client, spec or {}, changes=changes, idempotency_key=idempotency_key, quiet=as_json
        )
        if watch:
            study = accompany(client, study, quiet=as_json)
    if as_json:
        show_json(study)
    elif watch:
        from service.cli import views
        from service.cli.output import show

        show(views.study(study))
    raise typer.Exit(outcome(study) if watch else Exit.DONE)


def send(
    client: "Client",
    spec: Json,
    *,
    changes: Sequence[str] = (),
    idempotency_key: str | None = None,
    quiet: bool = False,
) -> Json:
    """The study that the server stored, announced on standard output unless ``quiet``; ``changes`` are made already."""
    from service.cli.connect import document, label, study_sent
    from service.cli.output import show

    try:
        with study_sent(spec, changes):
            study = document(client.submit_study(spec, idempotency_key=idempotency_key))
    except ValueError as error:
        raise InputError(f"--idempotency-key: {error}") from error
    if not quiet:
        show(f"submitted {label(study)}; watch it with `tan-cli watch {study['id']}`")
    return study


def accompany(client: "Client", study: Json, *, quiet: bool = False) -> Json:
    """The study as it ended; its progress is shown on the way, on standard error if ``quiet``."""
    from service.cli.follow import follow
    from service.cli.live import open_display
    from service.cli.output import console

    screen = console(error=quiet)
    if quiet and not screen.is_terminal:
        return follow(client, study)
    try:
        with open_display(screen, study["name"]) as display:
            return follow(client, study, display=display)
    except KeyboardInterrupt:
        console(error=True).print(
            f"\nno longer watching; the study goes on: `tan-cli watch {study['id']}`, "
            f"`tan-cli cancel {study['id']}`"
        )
        raise


def outcome(study: Json) -> Exit:
    """The exit code of a study that has ended."""
    return Exit.DONE if study["state"] == "completed" else Exit.FAILED


def _source(client: "Client", reference: str) -> Json:
    """A study that another one may begin from."""
    from service.cli.connect import find_study

    try:
        return find_study(client, reference)
    except UnknownStudyError as error:
        raise InputError(f"--from: {error.message}", hint=error.hint) from error


def _warm_started(spec: Json | None, sources: list[Json], changes: list[str]) -> Json:
    """The spec, or the first source's with the changes, with the sources to begin from.

    A study without a search that is submitted again has none to begin.
    """
    from service.cli.study_file import with_changes

    begun = dict(with_changes(sources[0]["spec"], changes) if spec is None else spec)
    search = begun.get("search")
    if spec is None and len(sources) == 1 and sources[0]["spec"]["search"]["trials"] == 0:
        return begun
    if isinstance(search, dict):  # whatever else it is, the server refuses it by its path
        begun["search"] = {**search, "warm_start": list(dict.fromkeys(s["id"] for s in sources))}
    return begun
