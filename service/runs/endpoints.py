"""``/worker``: what runs inside Ray asks and reports (tan_core/wire.py)."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response, status

from service.context import ContextDep
from service.problems import described
from service.runs import service
from tan_core.wire import (
    HEARTBEAT_PAUSE,
    Assignment,
    Finish,
    Heartbeat,
    HeartbeatReply,
    SegmentEnd,
    SegmentGrant,
    SegmentRequest,
    TrialReport,
)

router = APIRouter(
    prefix="/worker/runs/{run_id}", tags=["worker"], responses=described(400, 401, 409, 422)
)

RunId = Annotated[str, Path(max_length=200)]
Number = Annotated[int, Path(ge=0, le=2**53)]
Authorization = Annotated[str | None, Header(description="Bearer token of this attempt")]


@router.get("")
async def get_assignment(
    run_id: RunId,
    context: ContextDep,
    fence: Annotated[int, Query(ge=1, le=2**53)],
    authorization: Authorization = None,
) -> Assignment:
    """What the driver is to do."""
    driver = service.authenticate(context, run_id, fence, authorization)
    return await service.assignment(context, driver)


@router.post("/heartbeat")
async def post_heartbeat(
    run_id: RunId,
    body: Heartbeat,
    response: Response,
    context: ContextDep,
    authorization: Authorization = None,
) -> HeartbeatReply:
    """The driver lives; the reply says whether it is still wanted, and a header how often to say so."""
    driver = service.authenticate(context, run_id, body.fence, authorization)
    reply = await service.heartbeat(context, driver, body)
    response.headers[HEARTBEAT_PAUSE] = f"{await context.pace.seconds():.2f}"
    return reply


@router.put("/trials/{number}", status_code=status.HTTP_204_NO_CONTENT)
async def put_trial(
    run_id: RunId,
    number: Number,
    body: TrialReport,
    context: ContextDep,
    authorization: Authorization = None,
) -> None:
    """The whole present state of one trial."""
    driver = service.authenticate(context, run_id, body.fence, authorization)
    await service.report_trial(context, driver, number, body)


@router.post("/segments")
async def post_segment(
    run_id: RunId, body: SegmentRequest, context: ContextDep, authorization: Authorization = None
) -> SegmentGrant:
    """Charge the next steps before they run; 0 granted: the reservation is used up."""
    driver = service.authenticate(context, run_id, body.fence, authorization)
    return await service.begin_segment(context, driver, body)


@router.post("/segments/{segment}/end", status_code=status.HTTP_204_NO_CONTENT)
async def post_segment_end(
    run_id: RunId,
    segment: Number,
    body: SegmentEnd,
    context: ContextDep,
    authorization: Authorization = None,
) -> None:
    """The segment's steps are done and its checkpoint is on storage."""
    driver = service.authenticate(context, run_id, body.fence, authorization)
    await service.end_segment(context, driver, segment, body)


@router.post("/finish", status_code=status.HTTP_204_NO_CONTENT)
async def post_finish(
    run_id: RunId, body: Finish, context: ContextDep, authorization: Authorization = None
) -> None:
    """The attempt's final report."""
    driver = service.authenticate(context, run_id, body.fence, authorization)
    await service.finish(context, driver, body)
