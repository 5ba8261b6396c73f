"""``/studies``."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response, status
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse

from service.body import read_mapping, validate
from service.context import ContextDep
from service.errors import InvalidInputError
from service.openapi import request_body
from service.problems import described
from service.studies import repository, service
from service.studies.lifecycle import StudyState
from service.studies.schemas import PromoteRequest, StudyPage, StudyView
from service.studies.stream import is_over, stream
from tan_core.spec import StudySpec

router = APIRouter(prefix="/studies", tags=["studies"])

MAX_SEQ = 2**53
EVENT_STREAM = {
    200: {
        "description": "Server-Sent Events: id = seq, event = state | trial | step | attempt. "
        "The stream ends after the event of a final state.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    204: {"description": "The study is final and every event has been seen"},
}
BINARY = {"schema": {"type": "string", "format": "binary"}}


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    responses={
        200: {"model": StudyView, "description": "The Idempotency-Key was used for this before"},
        **described(400, 409, 413, 415, 422),
    },
    openapi_extra=request_body(StudySpec),
)
async def submit_study(
    request: Request,
    response: Response,
    context: ContextDep,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=255,
            pattern=r"^[ -~]+$",
            description="Sent twice, a request makes one study",
        ),
    ] = None,
) -> StudyView:
    """Submit a study: a study.yaml as JSON or YAML. Planned, reserved and stored, or nothing at all."""
    spec = validate(StudySpec, await read_mapping(request))
    view, is_new = await service.submit(context, spec, idempotency_key=idempotency_key)
    response.headers["Location"] = f"/studies/{view.id}"
    if not is_new:
        response.status_code = status.HTTP_200_OK
    return view


@router.get("", responses=described(422))
async def list_studies(
    context: ContextDep,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
    state: Annotated[list[StudyState] | None, Query()] = None,
    name: Annotated[str | None, Query(max_length=100, pattern=r"^[A-Za-z0-9._-]+$")] = None,
) -> StudyPage:
    """Studies, newest first. ``state`` may be given more than once."""
    place = repository.Cursor.decode(cursor) if cursor else None
    return await service.page(context, limit=limit, cursor=place, states=state or [], name=name)


@router.get("/{study_id}", responses=described(404))
async def get_study(study_id: str, context: ContextDep) -> StudyView:
    """One study."""
    return await service.get(context, study_id)


@router.get(
    "/{study_id}/events",
    response_class=StreamingResponse,
    responses={**EVENT_STREAM, **described(404, 422)},
)
async def follow_events(
    study_id: str,
    context: ContextDep,
    after: Annotated[int, Query(ge=0, le=MAX_SEQ, description="Replay from this number")] = 0,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> Response:
    """What happened and what happens. Resumes exactly after ``Last-Event-ID``."""
    seen = _sequence(last_event_id) if last_event_id else after
    await service.expect(context, study_id)
    if last_event_id and await is_over(context, study_id, seen):
        return Response(status_code=status.HTTP_204_NO_CONTENT)  # tells browsers not to come back
    return StreamingResponse(
        stream(context, study_id, seen),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


@router.post(
    "/{study_id}/cancel",
    status_code=status.HTTP_202_ACCEPTED,
    responses=described(404, 409),
)
async def cancel_study(study_id: str, context: ContextDep) -> StudyView:
    """Ask for a clean stop. Asking twice is harmless; steps that were charged stay charged."""
    return await service.cancel(context, study_id)


@router.post(
    "/{study_id}/promote",
    status_code=status.HTTP_202_ACCEPTED,
    responses=described(400, 404, 409, 413, 415, 422),
    openapi_extra=request_body(PromoteRequest, required=False, yaml=False),
)
async def promote_study(study_id: str, request: Request, context: ContextDep) -> StudyView:
    """Approve the promotion of a study that waits for it; ``{"trial": n}`` promotes that trial."""
    body = await read_mapping(request, yaml=False) if await request.body() else {}
    return await service.promote(context, study_id, validate(PromoteRequest, body).trial)


@router.get(
    "/{study_id}/statement",
    response_class=JSONResponse,
    responses={
        200: {"content": {"application/json": {"schema": {"type": "object"}}}},
        **described(404),
    },
)
async def get_statement(study_id: str, context: ContextDep) -> JSONResponse:
    """The signed privacy statement of a completed study."""
    return JSONResponse(await service.statement(context, study_id))


@router.get(
    "/{study_id}/model",
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": BINARY}}, **described(404)},
)
async def get_model(study_id: str, context: ContextDep) -> FileResponse:
    """The released weights, as safetensors."""
    model = await service.model(context, study_id)
    return FileResponse(
        model.path,
        media_type="application/octet-stream",
        filename=f"{model.name}.safetensors",
        headers={"ETag": f'"{model.sha256}"'},
    )


def _sequence(last_event_id: str) -> int:
    text = last_event_id.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise InvalidInputError.at("Last-Event-ID", "expected the id of an event: a number", text)
    return int(text)
