"""Verification of a privacy statement in the page: what ``tan-cli statement --verify`` does."""

from functools import partial
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from service.access.guard import needs
from service.auth.scopes import Scope
from service.context import Context, ContextDep
from service.dashboard.forms import read_form
from service.dashboard.render import page
from service.datasets import service as datasets
from service.errors import NotFoundError
from service.ledger import repository as ledger
from service.ledger.service import Ledger, scope_id_of
from service.publication.keys import public_keys
from service.publication.signing import read_signed
from service.statements.check import Check, check_public, check_study
from service.studies import repository as studies

router = APIRouter(include_in_schema=False)


@router.post("/ui/statements/verify", dependencies=[needs(Scope.READ)])
async def verify_pasted(request: Request, context: ContextDep) -> HTMLResponse:
    """The verdict on the statement in the form, as a part of a page."""
    text = dict(await read_form(request)).get("statement", "")
    return verdict(request, await checks_of(context, text))


def verdict(request: Request, checks: list[Check]) -> HTMLResponse:
    """What was checked, as a part of a page."""
    return page(
        request,
        "_verdict.html",
        checks=checks,
        is_good=not any(check.is_bad for check in checks),
        is_open=any(check.is_good is None for check in checks),
    )


async def checks_of(context: Context, text: str, *, study_id: str | None = None) -> list[Check]:
    """Everything that is checked of a text, against this service's keys and its ledger.

    Args:
        context: the process's.
        text: of the statement.
        study_id: of whose it has to be; None: of any.
    """
    try:
        document = read_signed(text)
    except (ValueError, RecursionError) as error:
        return [Check("format", False, f"this is not JSON: {error}")]
    if not isinstance(document, dict):
        return [Check("format", False, "expected a JSON object")]
    key_id = await _expected_key(context, document)
    found = await context.arithmetic.run(partial(_verdict, document, key_id))
    if study_id is not None:
        found = [*found, *check_study(document, study_id)]
    if any(check.is_bad for check in found):
        return found
    return [*found, *await _against_ledger(context, document), await _issued(context, document)]


def _verdict(document: dict[str, Any], key_id: str) -> list[Check]:
    # Here, because it brings dp-accounting: half a second of the API's start for what few ask.
    from service.statements.verify import verify_statement

    return verify_statement(document, key_id=key_id)


async def _expected_key(context: Context, document: dict[str, Any]) -> str:
    """The key that signed it where it is one of this service's, retired ones too; else the present one."""
    known = [
        key.public_key for key in await to_thread.run_sync(public_keys, context.settings.home_path)
    ]
    signature = document.get("signature")
    stated = signature.get("public_key") if isinstance(signature, dict) else None
    return stated if stated in known else known[0]


async def _against_ledger(context: Context, document: dict[str, Any]) -> list[Check]:
    """Of a statement that is signed by this service, and so of the form that it writes."""
    if not document.get("ledger"):
        return [await _without_ledger(context, document)]
    # Here, as above.
    from service.statements.ledger_check import Known, check_ledger, entries_needed

    async with context.database.snapshot() as session:
        try:
            scope_id = await scope_id_of(session, document["dataset"]["name"])
        except NotFoundError as error:
            return [Check("ledger entry", False, error.detail)]
        first, last = entries_needed(document)
        entries = await ledger.entries(session, scope_id, last=last - first + 1, until=last)
        scope = await ledger.scope(session, scope_id)
        held = await ledger.reservations(session, scope_id)
    async with context.database.session() as session:
        chain = await Ledger().verify_chain(session, scope_id)
    known = Known(scope=scope, chain=chain, reservations=held, entries=entries)
    return await context.arithmetic.run(partial(check_ledger, document, known))


async def _without_ledger(context: Context, document: dict[str, Any]) -> Check:
    about = document.get("dataset")
    named = about.get("name") if isinstance(about, dict) else None
    try:
        async with context.database.session() as session:
            row = await datasets.find(session, str(named))
    except NotFoundError as error:
        return Check("ledger", False, error.detail)
    return check_public(document, public=row.public, sha256=row.content_sha256)


async def _issued(context: Context, document: dict[str, Any]) -> Check:
    """Whether it is the very one that this service keeps of its study: no journal says all that a statement does."""
    about = document.get("study")
    study_id = about.get("id") if isinstance(about, dict) else None
    async with context.database.session() as session:
        study = await studies.find(session, str(study_id))
    if study is None or study.statement is None:
        return Check("issued", None, f"no study {study_id!r:.40} has a statement here")
    if study.statement != document:
        return Check("issued", False, f"it is not the statement that is kept of study {study.id}")
    return Check("issued", True, f"the statement that is kept of study {study.id}")
