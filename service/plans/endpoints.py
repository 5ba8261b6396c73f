"""``POST /plans``."""

from fastapi import APIRouter, Request

from service.access.guard import PrincipalDep, needs
from service.auth.scopes import Scope
from service.body import read_mapping
from service.context import ContextDep
from service.openapi import request_body
from service.plans.schemas import MechanismPlanRequest, PlanView
from service.plans.service import plan_body
from service.problems import described
from tan_core.spec import StudySpec

router = APIRouter(tags=["plans"])


@router.post(
    "/plans",
    dependencies=[needs(Scope.READ)],
    responses=described(400, 413, 415, 422),
    openapi_extra=request_body(StudySpec, MechanismPlanRequest),
)
async def make_plan(request: Request, context: ContextDep, principal: PrincipalDep) -> PlanView:
    """What a study would do and cost, and whether the budget would admit it now; nothing is stored.

    The body is a study.yaml, a study.yaml with ``num_examples`` (or ``dataset: {num_examples: N}``) for
    data that is not registered, or ``{"mechanism": {...}, "delta": ...}``.
    """
    return await plan_body(context, await read_mapping(request), by=principal)
