"""The command on what was promised: the privacy statement."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.complete import study_references
from service.cli.errors import CliError, Exit, InputError
from service.cli.keys import ExpectedKey, ExpectedKeyId, expected_key
from service.cli.options import JsonFlag

if TYPE_CHECKING:
    from service.client import Client
    from service.ledger.schemas import Account, Entry
    from service.statements.check import Check

Json = dict[str, Any]

MOST_ENTRIES = 10_000
_ID = re.compile("s-[0-9a-f]{12}")


def statement(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]",
            help="Id, beginning of an id, or name.",
            show_default=False,
            autocompletion=study_references,
        ),
    ] = None,
    kept: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="The statement of that study in a file, to look at without any server.",
            show_default=False,
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Compute ε again from the events, check the signature and, with a server, the ledger's "
            "chain; exit 1 if anything does not hold.",
        ),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(help="A statement kept in a file, to show or to --verify without any server."),
    ] = None,
    key_id: ExpectedKeyId = None,
    key: ExpectedKey = None,
    as_json: JsonFlag = False,
) -> None:
    """Show or verify the privacy statement of a completed study."""
    if (study is None) == (file is None):
        given = "none" if study is None else "both"
        raise InputError(f"a statement is named by a STUDY or by --file: got {given} of them")
    file = file or kept
    key_id = expected_key(key, key_id)
    found: list[Check] = []
    if file is not None:
        from service.cli.connect import read_json

        document = read_json(file)
        if study is not None:
            _expect_study(document, study, file)
        if verify:
            found = _verify(document, key_id)
    else:
        from service.cli.connect import document, find_study, open_client
        from service.statements.check import check_study

        with open_client() as client:
            study_id = find_study(client, study or "")["id"]
            document = client.get_statement(study_id)
            if verify:
                found = [
                    *_verify(document, key_id),
                    *check_study(document, study_id),
                    *_check_ledger(client, document),
                ]
    _show(document, found, as_json=as_json, verify=verify)
    raise typer.Exit(Exit.FAILED if any(check.is_bad for check in found) else Exit.DONE)


def _expect_study(document: Json, study: str, file: Path) -> None:
    """Raise unless the statement is of the study that was named: what has the form of an id is no name here."""
    about = document.get("study")
    known = about if isinstance(about, dict) else {}
    named = known.get("id") if _ID.fullmatch(study) else known.get("name")
    if study not in (known.get("id"), named):
        raise CliError(f"{file} is about study {known.get('id')!r}, not {study!r}")


def _verify(document: Json, key_id: str | None) -> "list[Check]":
    from service.statements.verify import verify_statement

    return verify_statement(document, key_id=key_id)


def _check_ledger(client: "Client", document: Json) -> "list[Check]":
    """Whether the ledger still holds the entry that was signed, in a chain that is whole."""
    from service.cli.privacy_view import body
    from service.statements.check import Check, check_public
    from service.statements.ledger_check import Known, check_ledger, entries_needed
    from service.statements.verify import MALFORMED

    said = body(document)
    try:
        dataset = said["dataset"]["name"]
        if not said.get("ledger"):
            row = client.get_dataset(dataset)
            return [check_public(said, public=row.public, sha256=row.content_sha256)]
        first, last = entries_needed(said)
    except MALFORMED as error:
        return [Check("ledger entry", False, f"none is named: {error}")]
    report = client.verify_ledger(dataset)
    account, entries = entries_between(client, dataset, first, min(last, report.num_entries))
    known = Known(
        scope=account.scope, chain=report, reservations=account.reservations, entries=entries
    )
    return check_ledger(said, known)


def entries_between(
    client: "Client", dataset: str, first: int, last: int
) -> "tuple[Account, list[Entry]]":
    """The account, and the journal from one entry to another, in as many answers as it takes."""
    account = client.get_ledger(
        dataset, entries=max(1, min(last - first + 1, MOST_ENTRIES)), until=max(1, last)
    )
    entries = account.entries
    while entries and entries[0].seq > first:
        before = entries[0].seq - 1
        page = client.get_ledger(
            dataset, entries=min(before - first + 1, MOST_ENTRIES), until=before
        )
        if not page.entries or page.entries[-1].seq > before:
            break
        entries = [*page.entries, *entries]
    return account, entries


def _show(document: Json, found: "list[Check]", *, as_json: bool, verify: bool) -> None:
    from service.cli.output import printable, show, show_json

    if as_json:
        verdict = [
            {"name": check.name, "is_good": check.is_good, "detail": check.detail}
            for check in found
        ]
        show_json({**document, "checks": verdict} if verify else document)
        return
    from rich.errors import NotRenderableError

    from service.cli import privacy_view
    from service.statements.verify import MALFORMED

    try:
        show(privacy_view.statement(printable(document)))
    except (*MALFORMED, RecursionError, NotRenderableError) as error:
        # What cannot be read can still be verified, and then says itself what is wrong with it.
        if not verify:
            raise CliError(f"this is no privacy statement that I can read: {error!r}") from error
    if verify:
        show("", privacy_view.checks(found))
