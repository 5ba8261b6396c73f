"""``/ui/studies/{id}/trials/compare``: two to six trials of one study side by side, at an address that can be shared."""

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from service.access.guard import needs_study
from service.auth.scopes import Scope
from service.context import Context, ContextDep
from service.dashboard import queries, view
from service.dashboard.beside import MOST, Row, chosen_few
from service.dashboard.charts.curves import compared_curves
from service.dashboard.charts.table import Table
from service.dashboard.pages import StudyId
from service.dashboard.render import csv_file, page
from service.dashboard.trial import Number
from service.dashboard.trials_table import columns_of
from service.errors import InvalidInputError, NotFoundError, ServiceError
from service.studies import service as studies
from service.studies.schemas import StudyView
from service.text import on_clipped
from service.trial_spec import settings
from service.trial_table import parameter_names
from service.trial_table import row as trial_row
from service.trials.schemas import TrialView
from tan_core.wire import TrialState

router = APIRouter(
    prefix="/ui/studies/{study_id}/trials/compare",
    dependencies=[needs_study(Scope.READ)],
    include_in_schema=False,
)

Chosen = Annotated[
    list[Number],
    Query(alias="trial", default_factory=list, max_length=100, description="Their numbers"),
]
Rung = Annotated[int, Query(ge=0, le=7)]


@router.get("")
async def compare_trials(
    request: Request, context: ContextDep, study_id: StudyId, chosen: Chosen
) -> HTMLResponse:
    """The trials beside each other; what cannot be compared is said with the way to the table of trials."""
    study = await studies.get(context, study_id)
    trials: list[TrialView] = []
    refusal = None
    try:
        trials = await _trials(context, study, chosen)
    except (InvalidInputError, NotFoundError) as error:
        refusal = error
    rungs = range(len(study.plan["simulations"]))
    standings = study.promotion.standings if study.promotion else []
    return page(
        request,
        "compare_trials.html",
        status=refusal.status if refusal else 200,
        study=study,
        trials=trials,
        refusal=_said(refusal) if refusal else None,
        params=param_rows(trials),
        standings={standing.trial: standing for standing in standings},
        charts=[(rung, chart) for rung in rungs if (chart := compared_curves(trials, rung))],
        heads=[f"Trial {trial.number}" for trial in trials],
        on_clipping=_on_clipping(study, trials),
        is_running=any(trial.state == TrialState.RUNNING for trial in trials),
        query=urlencode([("trial", trial.number) for trial in trials]),
        MOST=MOST,
        fresh_accuracies=view.fresh_accuracies,
        clipped_fraction=view.clipped_fraction,
        trial_seconds=view.trial_seconds,
    )


@router.get("/trials.csv")
async def download_trials(context: ContextDep, study_id: StudyId, chosen: Chosen) -> Response:
    """The trials, with the columns that the file of all trials has."""
    study = await studies.get(context, study_id)
    names, num_rungs = list(study.spec["search"]["space"]), len(study.plan["simulations"])
    rows = [
        list(trial_row(trial.model_dump(), names=names, rungs=range(num_rungs)).values())
        for trial in await _trials(context, study, chosen)
    ]
    return csv_file(Table(columns_of(names, num_rungs), rows), f"{study.id}-trials-compared")


@router.get("/curves.csv")
async def download_curves(
    context: ContextDep, study_id: StudyId, chosen: Chosen, rung: Rung
) -> Response:
    """The numbers of their learning curves at one rung.

    Raises:
        NotFoundError: none of them has told one there.
    """
    study = await studies.get(context, study_id)
    chart = compared_curves(await _trials(context, study, chosen), rung)
    if chart is None:
        raise NotFoundError(
            f"none of these trials of study {study_id!r} has a learning curve there"
        )
    return csv_file(chart.table, f"{study.id}-trials-compared-curves-{rung}")


def param_rows(trials: Sequence[TrialView]) -> list[Row]:
    """Their parameters by name; None where a trial has none of this name."""
    names = parameter_names([trial.model_dump() for trial in trials])
    known = [True] * len(trials)
    return [Row(name, [trial.params.get(name) for trial in trials], known) for name in names]


async def _trials(context: Context, study: StudyView, chosen: Sequence[int]) -> list[TrialView]:
    """The trials that were asked for, each once, in the order of asking.

    Raises:
        InvalidInputError: fewer than two, or more than six.
        NotFoundError: the study has no such trial.
    """
    numbers = chosen_few(
        chosen, field="trial", things="trials", listed="the study's table of trials"
    )
    async with context.database.session() as session:
        found = await queries.trials_named(session, study.id, numbers)
    if unknown := [str(number) for number in numbers if number not in found]:
        raise NotFoundError(f"study {study.id!r} has no trial {', '.join(unknown)}")
    return [found[number] for number in numbers]


def _said(refusal: ServiceError) -> str:
    """Without the name of the field, which nobody wrote."""
    return "; ".join(problem.message for problem in refusal.problems) or refusal.detail


def _on_clipping(study: StudyView, trials: Sequence[TrialView]) -> list[str]:
    """What is said of their shares of clipped gradients, each once: they may have searched how to clip."""
    said = (
        on_clipped(
            settings(study.spec, trial.params)["train"].get("clipping"),
            is_told=view.clipped_fraction(trial) is not None,
        )
        for trial in trials
    )
    return list(dict.fromkeys(filter(None, said)))
