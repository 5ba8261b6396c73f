"""The page of calibration: what was predicted, what was reached, and how often the intervals held."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from service.access.guard import PrincipalDep, needs
from service.auth.scopes import Scope
from service.calibration.endpoints import DatasetName, ModelName
from service.calibration.schemas import CalibrationItem
from service.calibration.service import calibration
from service.context import ContextDep
from service.dashboard import queries
from service.dashboard.charts.calibration import calibration_chart, calibration_table
from service.dashboard.render import page
from service.datasets import service as datasets

CALIBRATED_STUDIES = 200
LISTED_STUDIES = 50


@dataclass(frozen=True, slots=True)
class Group:
    """Studies of one model on one dataset."""

    dataset: str
    model: str
    studies: int
    inside: int
    mean_absolute_error: float


router = APIRouter(include_in_schema=False)


@router.get("/ui/calibration", dependencies=[needs(Scope.READ)])
async def show_calibration(
    request: Request,
    context: ContextDep,
    principal: PrincipalDep,
    dataset: Annotated[str | None, DatasetName] = None,
    model: Annotated[str | None, ModelName] = None,
) -> HTMLResponse:
    """Every study that was predicted and completed, or those of a dataset or a model."""
    found = await calibration(
        context, dataset=dataset, model=model, limit=CALIBRATED_STUDIES, tenant=principal.sees
    )
    async with context.database.session() as session:
        if dataset is not None and not found.items:
            await datasets.find(session, dataset)  # an unknown name is an error, not an empty page
        terms = await queries.terms(session, [item.study for item in found.items])
    return page(
        request,
        "calibration.html",
        calibration=found,
        chart=calibration_chart(found.items),
        table=calibration_table(found.items),
        groups=groups(found.items),
        num_listed=LISTED_STUDIES,
        terms=terms,
        dataset=dataset,
        model=model,
        query=_query(dataset=dataset, model=model),
    )


@router.get("/ui/calibration.csv", dependencies=[needs(Scope.READ)])
async def get_calibration_numbers(
    context: ContextDep,
    principal: PrincipalDep,
    dataset: Annotated[str | None, DatasetName] = None,
    model: Annotated[str | None, ModelName] = None,
) -> Response:
    """The drawn studies, newest first."""
    found = await calibration(
        context, dataset=dataset, model=model, limit=CALIBRATED_STUDIES, tenant=principal.sees
    )
    return Response(calibration_table(found.items).csv(), media_type="text/csv; charset=utf-8")


def groups(items: Sequence[CalibrationItem]) -> list[Group]:
    """The studies by dataset and model, the most studied first."""
    found: dict[tuple[str, str], list[CalibrationItem]] = defaultdict(list)
    for item in items:
        found[item.dataset, item.model].append(item)
    made = [
        Group(
            dataset=dataset,
            model=model,
            studies=len(members),
            inside=sum(one.inside for one in members),
            mean_absolute_error=fmean(abs(one.error) for one in members),
        )
        for (dataset, model), members in found.items()
    ]
    return sorted(made, key=lambda group: (-group.studies, group.dataset, group.model))


def _query(**filters: str | None) -> str:
    given = urlencode({name: value for name, value in filters.items() if value is not None})
    return f"?{given}" if given else ""
