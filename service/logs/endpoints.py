"""``/studies/{id}/attempts`` and ``/studies/{id}/logs``."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from service.access.guard import PrincipalDep, needs_study
from service.auth.scopes import Scope
from service.context import ContextDep
from service.logs import service
from service.logs.schemas import AttemptList, RunKind
from service.problems import described

router = APIRouter(
    prefix="/studies/{study_id}",
    tags=["studies"],
    dependencies=[needs_study(Scope.READ)],
    responses=described(404, 422),
)
LOG: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "What the driver said, secrets removed: at most the last MiB",
        "content": {"text/plain": {"schema": {"type": "string"}, "example": "loading digits\n"}},
    }
}


@router.get("/attempts")
async def list_attempts(study_id: str, context: ContextDep) -> AttemptList:
    """Every driver that worked for the study, the oldest first, and how it ended."""
    return AttemptList(items=await service.attempts(context, study_id))


@router.get("/logs", response_class=StreamingResponse, responses=LOG)
async def read_log(
    study_id: str,
    context: ContextDep,
    principal: PrincipalDep,
    run: Annotated[
        RunKind | None, Query(description="search or private; unset: that of the newest attempt")
    ] = None,
    attempt: Annotated[int | None, Query(ge=1, le=2**53, description="Unset: the newest")] = None,
    follow: Annotated[bool, Query(description="Stay until the attempt has ended")] = False,
) -> StreamingResponse:
    """The log of one driver. Kept with the study: the cluster may be gone."""
    submission_id = await service.find(context, study_id, run=run, attempt=attempt)
    return StreamingResponse(
        service.read(context, submission_id, follow=follow, reader=principal),
        media_type="text/plain; charset=utf-8",
        headers={
            "X-Accel-Buffering": "no",
            # A driver may print HTML.
            "X-Content-Type-Options": "nosniff",
        },
    )
