"""``/keys``, and a ledger as it leaves: ``/datasets/{name}/ledger/export``."""

from pathlib import Path
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from service.access.guard import PrincipalDep, needs, open_to_all
from service.auth.scopes import Scope
from service.body import read_mapping, validate
from service.context import ContextDep
from service.errors import ConflictError
from service.ledger import export, repository
from service.ledger.notes import RESTORED
from service.ledger.schemas import Head, RestoredBackupRequest
from service.ledger.service import Ledger, scope_id_of
from service.openapi import request_body
from service.problems import described
from service.publication import keys
from service.publication.published import Published, holds
from service.publication.schemas import KeyList, PublicKey
from service.publication.signing import sign

router = APIRouter()


@router.get("/keys", tags=["keys"], dependencies=[open_to_all()])
async def list_keys(context: ContextDep) -> KeyList:
    """The public keys of the service: what a statement's signature is checked with."""
    home = context.settings.home_path
    return KeyList(items=await to_thread.run_sync(keys.public_keys, home))


@router.post("/keys/rotate", tags=["keys"], dependencies=[needs(Scope.ADMIN)])
async def rotate_key(context: ContextDep) -> PublicKey:
    """Let a fresh key sign from now on. What the old one signed stays verifiable."""
    return await to_thread.run_sync(keys.rotate, context.settings.home_path)


@router.get(
    "/datasets/{name}/ledger/export",
    tags=["datasets"],
    dependencies=[needs(Scope.READ)],
    response_class=JSONResponse,
    responses={
        200: {"content": {"application/json": {"schema": {"type": "object"}}}},
        **described(404),
    },
)
async def export_ledger(name: str, request: Request, context: ContextDep) -> JSONResponse:
    """The whole ledger, signed. Its head is published: no older database is served any more.

    Not of a restored one that nobody has accepted yet: nothing in it would say what it lacks.
    """
    await request.app.state.published.check(context.database, believe=False)
    async with context.database.snapshot() as session:
        scope_id = await scope_id_of(session, name)
        document = await export.document(session, scope_id, name)
        mark = Head.model_validate(document["head"])
        await request.app.state.published.leave(session, scope_id, mark)
    return await to_thread.run_sync(_signed, document, context.settings.home_path)


def _signed(document: dict[str, Any], home: Path) -> JSONResponse:
    return JSONResponse(sign(document, keys.signing_key(home)))


@router.post(
    "/datasets/{name}/ledger/restored-backup",
    tags=["datasets"],
    dependencies=[needs(Scope.ADMIN)],
    responses=described(400, 404, 409, 413, 415, 422),
    openapi_extra=request_body(RestoredBackupRequest, yaml=False),
)
async def accept_restored_backup(
    name: str, request: Request, context: ContextDep, principal: PrincipalDep
) -> Head:
    """Go on with a database that is older than what left the service. It is in the ledger for ever."""
    asked = validate(RestoredBackupRequest, await read_mapping(request, yaml=False))
    published: Published = request.app.state.published
    marks = await to_thread.run_sync(published.marks)
    async with context.database.session() as session:
        scope_id = await scope_id_of(session, name)
        mark = marks.get(scope_id)
        if mark is None or await holds(session, scope_id, mark):
            raise ConflictError(f"the ledger of {name!r} holds all that left: nothing to accept")
        head = await repository.head(session, scope_id)
        note: dict[str, Any] = {
            RESTORED: {
                "published": mark.model_dump(),
                "head": head.model_dump(),
                "reason": asked.reason,
            }
        }
        await Ledger().attest_scope(session, scope_id, note=note, actor=principal.actor)
        accepted = await repository.head(session, scope_id)
    await to_thread.run_sync(published.accept, scope_id, accepted)
    return accepted
