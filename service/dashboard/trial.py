"""``/ui/studies/{id}/trials/{number}``: everything about one trial, at an address that can be shared."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import HTMLResponse

from service.access.guard import needs_study
from service.auth.scopes import Scope
from service.context import ContextDep
from service.dashboard import queries
from service.dashboard.charts.curves import ladder_chart, simulation_name
from service.dashboard.pages import StudyId
from service.dashboard.render import csv_file, page
from service.db.clock import clock
from service.errors import NotFoundError
from service.studies import service as studies
from service.trial_spec import settings
from service.trials.schemas import TrialView
from tan_core.wire import TrialState

router = APIRouter(
    prefix="/ui/studies/{study_id}/trials",
    dependencies=[needs_study(Scope.READ)],
    include_in_schema=False,
)

Number = Annotated[int, Path(ge=0, lt=2**31)]


@router.get("/{number}")
async def show_trial(
    request: Request, context: ContextDep, study_id: StudyId, number: Number
) -> HTMLResponse:
    """One trial: its parameters, its simulations, and how it learnt in them.

    Raises:
        NotFoundError: the study has no such trial.
    """
    study = await studies.get(context, study_id)
    async with context.database.session() as session:
        near = await queries.trials_named(session, study_id, [number - 1, number, number + 1])
        now = await clock(session)
    trial = _expected(near.get(number), study_id, number)
    promotion = study.promotion
    return page(
        request,
        "trial.html",
        study=study,
        trial=trial,
        before=near.get(number - 1),
        after=near.get(number + 1),
        standing=next((one for one in promotion.standings if one.trial == number), None)
        if promotion
        else None,
        is_chosen=promotion is not None and promotion.trial == number,
        seconds=_seconds(trial, now),
        chart=ladder_chart([*trial.scores, *trial.repeats]),
        simulation_name=simulation_name,
        settings=settings(study.spec, trial.params),
    )


@router.get("/{number}/curves.csv")
async def download_curves(context: ContextDep, study_id: StudyId, number: Number) -> Response:
    """The numbers of its learning curves.

    Raises:
        NotFoundError: there is no such trial, or it has told none.
    """
    await studies.expect(context, study_id)
    async with context.database.session() as session:
        found = (await queries.trials_named(session, study_id, [number])).get(number)
    trial = _expected(found, study_id, number)
    chart = ladder_chart([*trial.scores, *trial.repeats])
    if chart is None:
        raise NotFoundError(f"trial {number} of study {study_id!r} has no learning curve")
    return csv_file(chart.table, f"{study_id}-trial-{number}-curves")


def _seconds(trial: TrialView, now: datetime) -> float | None:
    """From its begin to its end, or until now; None of one that was interrupted, whose end nobody told."""
    end = now if trial.state is TrialState.RUNNING else trial.finished_at
    return (end - trial.started_at).total_seconds() if end else None


def _expected(trial: TrialView | None, study_id: str, number: int) -> TrialView:
    if trial is None:
        raise NotFoundError(f"study {study_id!r} has no trial {number}")
    return trial
