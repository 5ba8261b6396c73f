"""``GET /studies/{id}/run``."""

from fastapi import APIRouter

from service.access.guard import needs_study
from service.auth.scopes import Scope
from service.context import ContextDep
from service.errors import NotFoundError
from service.private_run.schemas import PrivateRunCurves
from service.private_run.service import curves
from service.problems import described

router = APIRouter(tags=["studies"])


@router.get(
    "/studies/{study_id}/run",
    dependencies=[needs_study(Scope.READ)],
    responses=described(404, 422),
)
async def get_private_run(study_id: str, context: ContextDep) -> PrivateRunCurves:
    """The private run over its steps: what was done, charged and spent, and how fast."""
    found = await curves(context, study_id)
    if found is None:
        raise NotFoundError(f"study {study_id!r} has no private run yet")
    return found
