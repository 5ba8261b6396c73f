"""``/worker``: what runs inside Ray asks and reports (tan_core/wire.py)."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response, status

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

Number = Annotated[int, Path(ge=0, le=2**53)]
Authorization = Annotated[str | None, Header(description="Bearer token of this attempt")]


async def _driver(
    request: Request, run_id: str, context: ContextDep, authorization: Authorization = None
) -> service.Driver:
    """Who calls. Known before a report is looked at: to say what is wrong with a large one takes seconds.

    Raises:
        UnauthorizedError: the token is of no attempt, or of another one than the report says.
    """
    if request.method == "GET":
        fence: Any = request.query_params.get("fence")
    else:
        try:
            report = await request.json()
        except ValueError:
            report = None
        fence = report.get("fence") if isinstance(report, dict) else None
    return service.authenticate(context, run_id, fence, authorization)


DriverDep = Annotated[service.Driver, Depends(_driver)]


@router.get("")
async def get_assignment(
    context: ContextDep, driver: DriverDep, fence: Annotated[int, Query(ge=1, le=2**53)]
) -> Assignment:
    """What the driver is to do."""
    return await service.assignment(context, driver)


@router.post("/heartbeat")
async def post_heartbeat(
    body: Heartbeat, response: Response, context: ContextDep, driver: DriverDep
) -> HeartbeatReply:
    """The driver lives; the reply says whether it is still wanted, and a header how often to say so."""
    reply = await service.heartbeat(context, driver, body)
    response.headers[HEARTBEAT_PAUSE] = f"{await context.pace.seconds():.2f}"
    return reply


@router.put("/trials/{number}", status_code=status.HTTP_204_NO_CONTENT)
async def put_trial(
    number: Number, body: TrialReport, context: ContextDep, driver: DriverDep
) -> None:
    """The whole present state of one trial."""
    await service.report_trial(context, driver, number, body)


@router.post("/segments")
async def post_segment(
    body: SegmentRequest, context: ContextDep, driver: DriverDep
) -> SegmentGrant:
    """Charge the next steps before they run; 0 granted: the reservation is used up."""
    return await service.begin_segment(context, driver, body)


@router.post("/segments/{segment}/end", status_code=status.HTTP_204_NO_CONTENT)
async def post_segment_end(
    segment: Number, body: SegmentEnd, context: ContextDep, driver: DriverDep
) -> None:
    """The segment's steps are done and its checkpoint is on storage."""
    await service.end_segment(context, driver, segment, body)


@router.post("/finish", status_code=status.HTTP_204_NO_CONTENT)
async def post_finish(body: Finish, context: ContextDep, driver: DriverDep) -> None:
    """The attempt's final report."""
    await service.finish(context, driver, body)
