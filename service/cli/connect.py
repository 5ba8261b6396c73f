"""How commands reach the server, and how they name a study."""

import contextlib
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from service.cli.errors import (
    EXPORT_AGAIN,
    ApiError,
    CliError,
    Exit,
    InputError,
    UnknownStudyError,
)
from service.cli.settings import ClientSettings
from service.client import (
    Client,
    ClientError,
    LostAnswerError,
    ProblemError,
    UnreachableError,
    UnsendableTokenError,
)

Json = dict[str, Any]

SENT_BESIDE = frozenset({"Idempotency-Key"})
"""What goes with a study and is no key of it."""
OF_DATASETS = frozenset({"dataset", "search.dataset"})
"""Keys that name a dataset: the service knows what may stand there, and no schema does."""
_NAMED = 5
"""Of the studies that a beginning of an id fits, the others are counted."""
_CALLED = 50
"""Of the studies of one name so many are looked at, to see whether they are of several tenants."""
_BEGINNING = re.compile("s-[0-9a-f]{0,11}")


@contextlib.contextmanager
def open_client(settings: ClientSettings | None = None) -> Generator[Client]:
    """The client that the environment describes; what it raises is for the user to read."""
    settings = settings or ClientSettings.from_environment()
    try:
        client = Client(settings.api_url, token=settings.token)
    except UnsendableTokenError as error:
        raise InputError(f"TAN_API_TOKEN {error.fault}", hint=EXPORT_AGAIN) from error
    except ValueError as error:
        raise InputError(
            f"TAN_API_URL is not an address: {settings.api_url!r} ({error})"
        ) from error
    with client:
        try:
            yield client
        except ClientError as error:
            raise readable(error) from error


def readable(error: ClientError) -> CliError:
    """The same error, with an exit code and the next command."""
    match error:
        case ProblemError():
            problem = error.problem.model_dump(mode="json")
            return ApiError(error.status, problem, path=error.path)
        case LostAnswerError():
            return CliError(
                f"the server at {error.url} took the study and did not answer ({error.cause}): "
                "it may be stored",
                hint=f"tan-cli submit --idempotency-key {error.idempotency_key} with the same study "
                "asks again and cannot make a second one",
            )
        case UnreachableError():
            return CliError(
                f"cannot reach the server at {error.url} ({error.cause})",
                hint="tan-cli serve starts one here; TAN_API_URL names another one; tan-cli doctor "
                "says what is wrong",
            )
        case _:
            return CliError(str(error), hint="tan-cli doctor")


@contextlib.contextmanager
def study_sent(study: Json, changes: Sequence[str] = ()) -> Generator[None]:
    """What the server refuses of a study comes with the next command about its keys, or about its dataset.

    Args:
        study: as it is sent.
        changes: every ``--set`` that is in it.
    """
    try:
        yield
    except ProblemError as error:
        refusal = readable(error)
        if refusal.exit_code is Exit.OVER_BUDGET:
            refusal.hint = f"tan-cli ledger show {study['dataset']} shows who holds the budget"
        elif any(fault.path in OF_DATASETS and fault.value for fault in refusal.faults):
            refusal.hint = "tan-cli dataset list shows what is registered"
        elif any(fault.path not in SENT_BESIDE for fault in refusal.faults):
            from service.cli.study_file import whole_mapping

            about_keys = "tan-cli schema explains every key of a study.yaml"
            replaced = whole_mapping(changes, refusal.faults)
            refusal.hint = "; ".join(filter(None, [replaced, about_keys]))
        raise refusal from error


@contextlib.contextmanager
def sent_by_options(options: Mapping[str, str]) -> Generator[None]:
    """What the server refuses is told by the options that said it.

    Args:
        options: by what the API calls them. Of these names only those that are no English are replaced
            within messages.
    """
    technical = [name for name in options if re.search("[_:]", name)]
    words = re.compile(rf"\b({'|'.join(map(re.escape, technical))})\b")

    def said(text: str) -> str:
        # Of no names a pattern is empty, and found everywhere.
        return words.sub(lambda name: options[name[0]], text) if technical else text

    try:
        yield
    except ProblemError as error:
        refusal = readable(error)
        refusal.message = said(refusal.message)
        refusal.faults = [
            replace(
                fault,
                path=options.get(fault.path.partition(".")[0], fault.path),
                message=said(fault.message),
            )
            for fault in refusal.faults
        ]
        raise refusal from error


def document(answer: BaseModel) -> Json:
    """An answer as the API writes it: what ``--json`` prints and what the views show."""
    return answer.model_dump(mode="json")


def documents(answers: "list[Any]") -> list[Json]:
    """Several of them."""
    return [document(answer) for answer in answers]


def find_study(client: Client, reference: str) -> Json:
    """The study with this id, this unique beginning of an id, or (the newest) with this name.

    Raises:
        UnknownStudyError: there is none, the beginning is not unique, or the name is that of several tenants' studies:
            anybody may call a study so, and what is asked may be a promotion.
    """
    try:
        return document(client.get_study(reference))
    except ProblemError as error:
        if error.status not in (404, 422):
            raise
    unknown = UnknownStudyError(f"no study has the id or the name {reference!r}")
    try:
        called = list(client.every_study({"name": reference, "archived": "include"}, limit=_CALLED))
    except ProblemError as error:
        if error.status != 422:
            raise
        raise unknown from None  # it can be no name, and no beginning of an id
    newest = {study.tenant: study.id for study in reversed(called) if study.name == reference}
    if len(newest) > 1:
        listed = ", ".join(f"{study_id} of {tenant}" for tenant, study_id in newest.items())
        raise UnknownStudyError(
            f"studies of {len(newest)} tenants are called {reference!r}: {listed}; name one by its id"
        )
    if newest:
        (study_id,) = newest.values()
        if _BEGINNING.fullmatch(reference):
            _expect_no_beginning(client, reference, called=study_id)
        return document(client.get_study(study_id))
    found = client.list_studies({"id_begins": reference, "archived": "include", "limit": _NAMED})
    matching = [study.id for study in found.items]
    if not matching:
        raise unknown
    if len(matching) > 1:
        # Where there are too many to count there are more than a thousand.
        several = "many" if found.total is None else found.total
        others = (found.total or 0) - _NAMED
        more = f" and {others} more" if others > 0 else ""
        raise UnknownStudyError(
            f"{reference!r} is the beginning of {several} studies: {', '.join(matching)}{more}"
        )
    return document(client.get_study(matching[0]))


def _expect_no_beginning(client: Client, reference: str, *, called: str) -> None:
    """Raise where another study's id begins as this one is called."""
    begun = client.list_studies({"id_begins": reference, "archived": "include", "limit": 2}).items
    other = next((study.id for study in begun if study.id != called), None)
    if other is not None:
        raise UnknownStudyError(
            f"{reference!r} is what study {called} is called, and the beginning of {other}; name one by its id"
        )


def label(study: Json) -> str:
    """A study by its name and its id."""
    return f"{study['name']} ({study['id']})"


def read_json(path: Path) -> Json:
    """A signed JSON object in a file."""
    from service.publication.signing import read_signed

    try:
        found = read_signed(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CliError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise CliError(f"{path} holds no JSON object")
    return found
