"""How well predictions held, from the studies that were carried to their end."""

from service.calibration import repository
from service.calibration.schemas import Calibration, CalibrationItem
from service.context import Context
from tan_core.planner.prediction import LEVEL


async def calibration(
    context: Context,
    *,
    dataset: str | None,
    model: str | None,
    limit: int,
    tenant: str | None = None,
) -> Calibration:
    """The calibration of what the filters leave, and its newest studies; of one tenant, or (None) of all."""
    async with context.database.session() as session:
        rows = await repository.predicted_and_reached(
            session, dataset=dataset, model=model, limit=limit, tenant=tenant
        )
    studies, inside, mean_absolute_error = 0, 0, None
    if rows:
        studies, inside = rows[0]["studies"], rows[0]["num_inside"]
        mean_absolute_error = rows[0]["mean_absolute_error"]
    return Calibration(
        level=LEVEL,
        studies=studies,
        inside=inside,
        coverage=inside / studies if studies else None,
        mean_absolute_error=mean_absolute_error,
        items=[CalibrationItem.model_validate(row) for row in rows],
    )
