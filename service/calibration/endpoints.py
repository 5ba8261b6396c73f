"""``GET /calibration``."""

from typing import Annotated

from fastapi import APIRouter, Query

from service.access.guard import PrincipalDep, needs
from service.auth.scopes import Scope
from service.calibration import service
from service.calibration.schemas import Calibration
from service.context import ContextDep
from service.problems import described

router = APIRouter(tags=["studies"])

DatasetName = Query(
    max_length=100, pattern=r"^[A-Za-z0-9._-]+$", description="Of the private run's dataset"
)
ModelName = Query(max_length=200, pattern=r"^[ -~]+$", description="As in model.name")


@router.get("/calibration", dependencies=[needs(Scope.READ)], responses=described(422))
async def get_calibration(
    context: ContextDep,
    principal: PrincipalDep,
    dataset: Annotated[str | None, DatasetName] = None,
    model: Annotated[str | None, ModelName] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="Studies listed; all are counted")] = 50,
) -> Calibration:
    """What completed studies were predicted to reach, what they reached, and how often the intervals held."""
    return await service.calibration(
        context, dataset=dataset, model=model, limit=limit, tenant=principal.sees
    )
