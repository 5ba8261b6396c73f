"""Two to six studies side by side: what differs in what was asked, and what came of it."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.guard import PrincipalDep, expect_study, needs
from service.auth.scopes import Principal, Scope
from service.context import Context, ContextDep
from service.dashboard.beside import Row, chosen_few
from service.dashboard.charts.compared import Search, best_so_far, predictions_chart
from service.dashboard.charts.compared_runs import NamedRun, compared_spending, compared_updates
from service.dashboard.charts.table import Cell, Table
from service.dashboard.render import page
from service.dashboard.view import seconds_taken
from service.db.clock import clock
from service.db.tables import Trial
from service.errors import NotFoundError
from service.private_run.service import curves
from service.studies import service as studies
from service.studies.schemas import StudyView
from service.text import is_balanced, on_one_line
from service.trial_spec import asked, has_settings, settings_compared, stands_for
from tan_core.wire import TrialState

UNCOMPARED = frozenset({"name"})
"""Of a spec: what always differs."""
RUN_CHARTS = {"spending": compared_spending, "updates": compared_updates}

router = APIRouter(include_in_schema=False)
Chosen = Annotated[
    list[Annotated[str, Query(max_length=200)]],
    Query(
        alias="study",
        default_factory=list,
        max_length=100,
        description="Identifiers of the studies",
    ),
]


@router.get("/ui/compare", dependencies=[needs(Scope.READ)])
async def compare_studies(
    request: Request, context: ContextDep, principal: PrincipalDep, chosen: Chosen
) -> HTMLResponse:
    """The studies beside each other."""
    compared = await _studies(context, principal, chosen)
    rows = spec_rows([study.spec for study in compared])
    async with context.database.session() as session:
        searches = await _searches(session, compared)
        now = await clock(session)
    runs = await _runs(context, compared)
    return page(
        request,
        "compare.html",
        studies=compared,
        balanced=[is_balanced(study.spec["search"].get("metric")) for study in compared],
        has_charged=any(study.plan.get("charged_search") for study in compared),
        goes_on=any(study.plan.get("goes_on") for study in compared),
        differing=[row for row in rows if row.differs],
        agreeing=[row for row in rows if not row.differs],
        trained=trained_rows(compared),
        trial_of={study.id: stands_for(study.model_dump()) for study in compared},
        seconds={study.id: seconds_taken(study, now) for study in compared},
        history=best_so_far(searches),
        predictions=predictions_chart(compared),
        spending=compared_spending(runs),
        updates=compared_updates(runs),
        query=urlencode([("study", study.id) for study in compared]),
    )


@router.get("/ui/compare/{name}.csv", dependencies=[needs(Scope.READ)])
async def get_compared_numbers(
    name: str, context: ContextDep, principal: PrincipalDep, chosen: Chosen
) -> Response:
    """The numbers of the comparison: ``spec``, ``trained``, or a chart by its name."""
    compared = await _studies(context, principal, chosen)
    table: Table | None = None
    if name in ("spec", "trained"):
        of_specs = name == "spec"
        rows = spec_rows([each.spec for each in compared]) if of_specs else trained_rows(compared)
        table = Table(
            columns=("field", *labels(compared)),
            rows=[(row.path, *(_cell(value) for value in row.values)) for row in rows],
        )
    elif name == "history":
        async with context.database.session() as session:
            chart = best_so_far(await _searches(session, compared))
        table = chart.table if chart else None
    elif name == "predictions":
        drawn = predictions_chart(compared)
        table = drawn.table if drawn else None
    elif name in RUN_CHARTS:
        drawn = RUN_CHARTS[name](await _runs(context, compared))
        table = drawn.table if drawn else None
    if table is None:
        raise NotFoundError(f"there are no numbers at /ui/compare/{name}.csv")
    return Response(table.csv(), media_type="text/csv; charset=utf-8")


def _cell(value: Any) -> Cell:
    return on_one_line(value) if isinstance(value, list | Mapping) else value


def labels(compared: Sequence[StudyView]) -> list[str]:
    """Names that tell the studies apart: two of one name have their identifiers beside it."""
    names = [study.name for study in compared]
    return [
        study.name if names.count(study.name) == 1 else f"{study.name} {study.id}"
        for study in compared
    ]


def spec_rows(specs: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Every field of the specs by its path, in the order in which a spec has them."""
    flat = asked(specs)
    return [Row(path, flat[path], [True] * len(specs)) for path in _in_order(list(flat))]


def _in_order(paths: Sequence[str]) -> list[str]:
    """Fields of one section together, sections as they first appear."""
    sections = list(dict.fromkeys(path.partition(".")[0] for path in paths))
    return sorted(
        (path for path in paths if path not in UNCOMPARED),
        key=lambda path: sections.index(path.partition(".")[0]),
    )


def trained_rows(compared: Sequence[StudyView]) -> list[Row]:
    """What the trials that stand for the studies were trained with, where they differ or it was searched."""
    found = settings_compared([study.model_dump(mode="json") for study in compared])
    known = [has_settings(study.best_trial, study.spec) for study in compared]
    return [Row(path, values, known) for path, values in found.items()]


async def _studies(
    context: Context, principal: Principal, chosen: Sequence[str]
) -> list[StudyView]:
    """The studies that were asked for, each once, in the order of asking.

    Raises:
        InvalidInputError: fewer than two, or more than six.
        NotFoundError: one is not known, or not the caller's.
    """
    ids = chosen_few(chosen, field="study", things="studies", listed="the list of studies")
    if principal.sees is not None:
        for study_id in ids:
            await expect_study(context, study_id, principal.sees)
    return [await studies.get(context, study_id) for study_id in ids]


async def _runs(context: Context, compared: Sequence[StudyView]) -> list[NamedRun]:
    return [
        NamedRun(label, await curves(context, study.id))
        for label, study in zip(labels(compared), compared, strict=True)
    ]


async def _searches(session: AsyncSession, compared: Sequence[StudyView]) -> list[Search]:
    return [
        Search(label, await _completed(session, study.id))
        for label, study in zip(labels(compared), compared, strict=True)
    ]


async def _completed(session: AsyncSession, study_id: str) -> list[tuple[int, float]]:
    """Numbers and accuracies of the trials that climbed every rung, by number."""
    rows = await session.execute(
        select(Trial.number, Trial.value)
        .where(
            Trial.study_id == study_id,
            Trial.state == TrialState.COMPLETED,
        )
        .order_by(Trial.number)
    )
    return [(number, value) for number, value in rows if value is not None]
