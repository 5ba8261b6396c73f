"""Commands that edit what a study is filed under: tag, note, archive, unarchive."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.errors import InputError
from service.cli.options import JsonFlag, StudyReference, StudyReferences

if TYPE_CHECKING:
    from service.client import Client

Json = dict[str, Any]


def tag(
    study: StudyReference,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="[TAG]...", help="Tags to add.")
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="TAG", help="A tag to take away; may be repeated."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take every tag away first.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Add tags to a study or take some away; without either, show them."""
    from service.cli.connect import find_study, label, open_client
    from service.cli.output import show, show_json

    with open_client() as client:
        found = find_study(client, study)
        kept = [] if clear else [each for each in found["tags"] if each not in (remove or [])]
        wanted = list(dict.fromkeys([*kept, *(tags or [])]))
        lacking = set(remove or []) - set(found["tags"])
        if lacking:
            raise InputError(
                f"--remove: {found['name']} has no tag {', '.join(sorted(lacking))}; it has: "
                f"{', '.join(found['tags']) or 'none'}"
            )
        if wanted != found["tags"]:
            found = _edit(client, found, {"tags": wanted})
    if as_json:
        show_json(found)
    else:
        show(f"{label(found)}: {', '.join(found['tags']) or 'no tags'}")


def note(
    study: StudyReference,
    words: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="The note; - reads standard input.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the note.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Set a study's note, in place of the one it has; without a text, show it."""
    from service.cli.connect import find_study, label, open_client
    from service.cli.output import show, show_json

    if clear and words is not None:
        raise InputError("give a text or --clear, not both")
    text = "" if clear else sys.stdin.read().strip() if words == "-" else words
    with open_client() as client:
        found = find_study(client, study)
        if text is not None and text != (found.get("note") or ""):
            found = _edit(client, found, {"note": text})
    if as_json:
        show_json(found)
    else:
        show(f"{label(found)}: {found.get('note') or 'no note'}")


def archive(studies: StudyReferences, as_json: JsonFlag = False) -> None:
    """Hide finished studies from lists; nothing is deleted, and unarchive undoes it."""
    _file(studies, is_archived=True, as_json=as_json)


def unarchive(studies: StudyReferences, as_json: JsonFlag = False) -> None:
    """Bring archived studies back into lists."""
    _file(studies, is_archived=False, as_json=as_json)


def _file(references: list[str], *, is_archived: bool, as_json: bool) -> None:
    from service.cli.connect import find_study, label, open_client
    from service.cli.output import show, show_json

    word = (
        "is archived; tan-cli list --archived only shows it" if is_archived else "is listed again"
    )
    filed: list[Json] = []
    with open_client() as client:
        found = [find_study(client, reference) for reference in references]
        for each in found:
            filed.append(_edit(client, each, {"archived": is_archived}))
            if not as_json:  # at once: what is refused later does not undo it
                show(f"{label(each)} {word}")
    if as_json:
        show_json(filed)


def _edit(client: "Client", study: Json, change: Json) -> Json:
    """The study with the change, refused where somebody edited it since it was read."""
    from service.cli.connect import document

    tag_of_version = f'"{study["version"]}-"'
    return document(client.edit_study(study["id"], change, if_match=tag_of_version))
