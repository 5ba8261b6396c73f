"""``/studies``."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response, status
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse

from service import etags
from service.access.audit import note_targets
from service.access.guard import PrincipalDep, needs, needs_study
from service.auth.scopes import Scope
from service.body import read_mapping, validate
from service.context import ContextDep
from service.errors import InvalidInputError
from service.etags import NOT_MODIFIED, IfMatch, IfNoneMatch
from service.idempotency import Keyed, KeyHeader, say_replayed
from service.openapi import request_body
from service.prefix import base_of
from service.problems import described
from service.studies import service
from service.studies.schemas import PromoteRequest, StudyEdit, StudyPage, StudyQuery, StudyView
from service.studies.stream import is_over, stream
from tan_core.spec import StudySpec

router = APIRouter(prefix="/studies", tags=["studies"])

MAX_SEQ = 2**53
EVENT_KINDS = ["state", "trial", "step", "attempt", "features", "reset"]
EVENT = {
    "type": "object",
    "required": ["id", "event", "data"],
    "properties": {
        "id": {"type": "string", "pattern": "^[0-9]+$"},
        "event": {"type": "string", "enum": EVENT_KINDS},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {
                "type": "object",
                "required": ["seq", "kind", "at"],
                "properties": {
                    "seq": {"type": "integer", "minimum": 0},
                    "kind": {"type": "string", "enum": EVENT_KINDS},
                    "at": {"type": "string", "format": "date-time"},
                },
            },
        },
    },
}
"""One of the stream's."""
EVENT_STREAM = {
    200: {
        "description": "Server-Sent Events: id = seq, event = state | trial | step | attempt, or "
        "reset in the place of events that have been forgotten: read the study anew. "
        "The stream ends after the event of a final state.",
        "content": {"text/event-stream": {"itemSchema": EVENT}},
    },
    204: {"description": "The study is final and every event has been seen"},
}
BINARY = {"schema": {"type": "string", "format": "binary"}}


@router.post(
    "",
    dependencies=[needs(Scope.SUBMIT)],
    status_code=status.HTTP_201_CREATED,
    responses=described(400, 409, 413, 415, 422),
    openapi_extra=request_body(StudySpec),
)
async def submit_study(
    request: Request,
    response: Response,
    context: ContextDep,
    principal: PrincipalDep,
    idempotency_key: KeyHeader = None,
) -> StudyView:
    """Submit a study: a study.yaml as JSON or YAML. Planned, reserved and stored, or nothing at all."""
    body = await read_mapping(request)
    spec = validate(StudySpec, body)
    keyed = Keyed.of(idempotency_key, principal, "submit_study", body)
    view, is_new = await service.submit(context, spec, keyed, by=principal)
    response.headers["Location"] = f"{base_of(request)}/studies/{view.id}"
    say_replayed(response, is_new=is_new)
    return view


@router.get("", dependencies=[needs(Scope.READ)], responses=described(422))
async def list_studies(
    context: ContextDep, principal: PrincipalDep, query: Annotated[StudyQuery, Query()]
) -> StudyPage:
    """Studies, the newest first unless ``sort`` says otherwise; archived ones only where ``archived`` says ``include`` or ``only``.

    A cursor is valid only with the filters and the order of the page that gave it. Studies that are stored between two
    pages neither repeat nor hide one that was there before.
    """
    return await service.page(context, query, tenant=principal.sees)


@router.get(
    "/{study_id}",
    dependencies=[needs_study(Scope.READ)],
    response_model=StudyView,
    responses={**NOT_MODIFIED, **described(404, 422)},
)
async def get_study(
    study_id: str, context: ContextDep, if_none_match: IfNoneMatch = None
) -> Response:
    """One study. Its ETag is what an edit names in If-Match."""
    view = await service.get(context, study_id)
    return etags.answer(view.model_dump_json().encode(), if_none_match, version=view.version)


@router.patch(
    "/{study_id}",
    dependencies=[needs_study(Scope.SUBMIT)],
    response_model=StudyView,
    responses=described(400, 404, 409, 412, 413, 415, 422, 428),
    openapi_extra=request_body(StudyEdit, yaml=False),
)
async def edit_study(
    study_id: str, request: Request, context: ContextDep, if_match: IfMatch = None
) -> Response:
    """Change a study's name, its tags, its note, or whether it is archived. If-Match with its ETag is needed.

    An ETag holds until the next edit, however far the study comes meanwhile.
    """
    change = validate(StudyEdit, await read_mapping(request, yaml=False))
    view = await service.edit(context, study_id, change, if_match=if_match)
    return etags.answer(view.model_dump_json().encode(), None, version=view.version)


@router.get(
    "/{study_id}/events",
    dependencies=[needs_study(Scope.READ)],
    response_class=StreamingResponse,
    responses={**EVENT_STREAM, **described(404, 422)},
)
async def follow_events(
    study_id: str,
    context: ContextDep,
    principal: PrincipalDep,
    after: Annotated[int, Query(ge=0, le=MAX_SEQ, description="Replay from this number")] = 0,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> Response:
    """What happened and what happens. Resumes exactly after ``Last-Event-ID``."""
    seen = _sequence(last_event_id) if last_event_id else after
    await service.expect(context, study_id)
    if last_event_id and await is_over(context, study_id, seen, reader=principal):
        return Response(status_code=status.HTTP_204_NO_CONTENT)  # tells browsers not to come back
    return StreamingResponse(
        stream(context, study_id, seen, reader=principal),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


@router.post(
    "/{study_id}/cancel",
    dependencies=[needs_study(Scope.SUBMIT)],
    status_code=status.HTTP_202_ACCEPTED,
    responses=described(404, 409, 422),
)
async def cancel_study(
    study_id: str,
    response: Response,
    context: ContextDep,
    principal: PrincipalDep,
    idempotency_key: KeyHeader = None,
) -> StudyView:
    """Ask for a clean stop. Asking twice is harmless; steps that were charged stay charged."""
    keyed = Keyed.of(idempotency_key, principal, "cancel_study", None, subject=study_id)
    view, is_new = await service.cancel(context, study_id, keyed)
    say_replayed(response, is_new=is_new)
    return view


@router.post(
    "/{study_id}/pause",
    dependencies=[needs_study(Scope.SUBMIT)],
    status_code=status.HTTP_202_ACCEPTED,
    responses=described(404, 409, 422),
)
async def pause_study(study_id: str, context: ContextDep) -> StudyView:
    """Let a study rest: its driver ends at the next checkpoint, its slot is free for others.

    Its state, its reservation and what it has done stay. Asking twice is harmless.
    """
    return await service.pause(context, study_id, wanted=True)


@router.post(
    "/{study_id}/resume",
    dependencies=[needs_study(Scope.SUBMIT)],
    status_code=status.HTTP_202_ACCEPTED,
    responses=described(404, 409, 422),
)
async def resume_study(study_id: str, context: ContextDep) -> StudyView:
    """Go on with a paused study once a slot is free. Asking twice is harmless."""
    return await service.pause(context, study_id, wanted=False)


@router.post(
    "/{study_id}/finish",
    dependencies=[needs_study(Scope.SUBMIT)],
    status_code=status.HTTP_202_ACCEPTED,
    responses=described(404, 409, 422),
)
async def finish_search(study_id: str, context: ContextDep) -> StudyView:
    """End a search early: trials that run go on to their end, no other begins, and the best one is promoted as usual.

    Not where trials are charged: their number was fixed before the first. Asking twice is harmless.
    """
    return await service.finish_search(context, study_id)


@router.post(
    "/{study_id}/promote",
    dependencies=[needs_study(Scope.APPROVE)],
    status_code=status.HTTP_202_ACCEPTED,
    responses=described(400, 404, 409, 413, 415, 422),
    openapi_extra=request_body(PromoteRequest, required=False, yaml=False),
)
async def promote_study(
    study_id: str,
    request: Request,
    response: Response,
    context: ContextDep,
    principal: PrincipalDep,
    idempotency_key: KeyHeader = None,
) -> StudyView:
    """Approve the promotion of a study that waits for it; ``{"trial": n}`` promotes that trial.

    An accounted search on data that require approval waits for it too, before its first trial.
    """
    body = await read_mapping(request, yaml=False) if await request.body() else {}
    trial = validate(PromoteRequest, body).trial
    keyed = Keyed.of(idempotency_key, principal, "promote_study", body, subject=study_id)
    view, is_new = await service.promote(context, study_id, trial, keyed, by=principal)
    if view.promotion and (approval := view.promotion.approved_by):
        trial = "" if approval.trial is None else f"/trials/{approval.trial}"
        note_targets(request, f"{study_id}{trial}")
    say_replayed(response, is_new=is_new)
    return view


@router.get(
    "/{study_id}/statement",
    dependencies=[needs_study(Scope.READ)],
    response_class=JSONResponse,
    responses={
        200: {"content": {"application/json": {"schema": {"type": "object"}}}},
        **NOT_MODIFIED,
        **described(404, 422),
    },
)
async def get_statement(
    study_id: str, context: ContextDep, if_none_match: IfNoneMatch = None
) -> Response:
    """The signed privacy statement of a completed study."""
    document = JSONResponse(await service.statement(context, study_id))
    return etags.answer(bytes(document.body), if_none_match)


@router.get(
    "/{study_id}/model",
    dependencies=[needs_study(Scope.READ)],
    response_class=FileResponse,
    responses={
        200: {"content": {"application/octet-stream": BINARY}},
        **NOT_MODIFIED,
        **described(404, 422),
    },
)
async def get_model(
    study_id: str, context: ContextDep, if_none_match: IfNoneMatch = None
) -> Response:
    """The released weights, as safetensors. Parts of them by Range; the ETag is their SHA-256."""
    model = await service.model(context, study_id)
    tag = f'"{model.sha256}"'
    headers = {"ETag": tag, "Cache-Control": etags.CACHE_CONTROL}
    if etags.is_at_hand(tag, if_none_match):
        return Response(status_code=status.HTTP_304_NOT_MODIFIED, headers=headers)
    return FileResponse(
        model.path,
        media_type="application/octet-stream",
        filename=f"{model.name}.safetensors",
        headers=headers,
    )


def _sequence(last_event_id: str) -> int:
    text = last_event_id.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise InvalidInputError.at("Last-Event-ID", "expected the id of an event: a number", text)
    return int(text)
