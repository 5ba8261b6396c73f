"""``/ui/studies/{id}``: one study, live; its charts and its table are parts with addresses of their own.

The page itself is light however long the search: what all trials are read for comes after it, is asked for
again less often, and is computed once for all who look.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path as FilePath
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.guard import needs_study
from service.auth.scopes import Scope
from service.body import validate
from service.cli.download import loading_example
from service.context import Context, ContextDep
from service.dashboard import queries, view
from service.dashboard.beside import FEWEST, MOST
from service.dashboard.charts.axis import Axis, axes_of
from service.dashboard.charts.curves import curves_chart
from service.dashboard.charts.history import history_chart
from service.dashboard.charts.importance import LEAST_RANKED, LEAST_TRIALS, Importance, importance
from service.dashboard.charts.lines import Lines
from service.dashboard.charts.noise import NoiseChart, noise_chart
from service.dashboard.charts.pair import PairChart, pair_chart
from service.dashboard.charts.parallel import ParallelChart, parallel_chart
from service.dashboard.charts.prediction import PredictionChart, prediction_chart
from service.dashboard.charts.private_run import RunCharts, run_charts
from service.dashboard.charts.slices import Slices, slices
from service.dashboard.charts.timeline import TALL, Span, Timeline, timeline
from service.dashboard.charts.trial_point import TrialPoint, scored
from service.dashboard.forms import read_form
from service.dashboard.pages import StudyId
from service.dashboard.privacy_queries import search_held
from service.dashboard.render import csv_file, page
from service.dashboard.trials_query import (
    ParamName,
    TrialsQuery,
    ranges_of,
    read_query,
    written,
)
from service.dashboard.trials_table import COLUMNS, trials_page, trials_table
from service.datasets import service as datasets
from service.db.clock import clock
from service.errors import NotFoundError
from service.logs import service as drivers
from service.prefix import base_of
from service.private_run.service import curves as run_curves
from service.studies import service as studies
from service.studies.lifecycle import StudyState
from service.studies.schemas import StudyEdit, StudyView
from service.trial_spec import is_searched, sparse
from service.trials.schemas import TrialView
from tan_core.spec.fields import searches_steps
from tan_core.spec.space import Dimension
from tan_core.wire import TrialState

_SPACE = TypeAdapter(dict[str, Dimension])
RUN_CHARTS = frozenset(RunCharts.__dataclass_fields__)
TRIALS_SECTION = "section#trials"
"""As htmx names it."""
MAX_KEPT = 32
"""Studies whose charts are kept until something happens to them."""

router = APIRouter(
    prefix="/ui/studies/{study_id}",
    dependencies=[needs_study(Scope.READ)],
    include_in_schema=False,
)

actions = APIRouter(prefix="/ui/studies/{study_id}", include_in_schema=False)
"""What a page posts; a refusal is a problem, as the API's."""

Shown = Annotated[TrialsQuery, Depends(read_query)]
Rung = Annotated[int | None, Query(ge=0, le=7)]
Chosen = Annotated[ParamName | None, Query()]


@router.get("")
async def show_study(
    request: Request, context: ContextDep, study_id: StudyId, query: Shown
) -> HTMLResponse:
    """One study, live."""
    study = await studies.get(context, study_id)
    attempts = await drivers.attempts(context, study_id)
    async with context.database.session() as session:
        candidates = view.candidates(study.promotion) if study.promotion else []
        named = await _candidates_named(session, study, [one.trial for one in candidates])
        table = await trials_page(session, study_id, query, has_heat=view.has_heat(study.plan))
        flags = await queries.flags(session, study_id)
        unit = (await datasets.find(session, study.spec["dataset"])).unit
        is_tested = study.run is not None and study.run.test_accuracy is not None
        test_reads = await queries.test_reads(session, study.spec["dataset"]) if is_tested else 0
        held = await search_held(session, study_id)
        now = await clock(session)
    return page(
        request,
        "study.html",
        study=study,
        flags=flags,
        search_held=held,
        test_reads=test_reads,
        unit=unit,
        attempts=attempts,
        candidates=candidates,
        named=named,
        prediction_chart=_prediction_chart(study, named),
        yaml=sparse(study.spec),
        classify=loading_example(FilePath(f"{study.name}.safetensors")),
        announcement=view.announcement(study),
        tab_title=view.tab_title(study),
        seconds_taken=view.seconds_taken(study, now),
        search_seconds_left=view.search_seconds_left(study, now),
        run_seconds_left=view.run_seconds_left(study.progress),
        error_text=view.error_text(study),
        reason_here=view.reason_here,
        what_to_do=view.what_to_do(study),
        now=now,
        **_table_values(study, query, table),
    )


@actions.post("/note", dependencies=[needs_study(Scope.SUBMIT)])
async def write_note(request: Request, context: ContextDep, study_id: StudyId) -> Response:
    """Take what was written in the place of the note, if that is still the one that the writer saw.

    Raises:
        PreconditionFailedError: the study was edited since.
    """
    fields = dict(await read_form(request))
    text = fields.get("note", "").replace("\r\n", "\n").strip()
    change = validate(StudyEdit, {"note": text})
    version = fields.get("version", "")
    await studies.edit(context, study_id, change, if_match=f'"{version}-"')
    return Response(status_code=204)


@router.get("/trials")
async def show_trials(
    request: Request, context: ContextDep, study_id: StudyId, query: Shown
) -> HTMLResponse:
    """The table alone; where a reader set it, the browser's address becomes that of the page with it."""
    study = await studies.get(context, study_id)
    async with context.database.session() as session:
        table = await trials_page(session, study_id, query, has_heat=view.has_heat(study.plan))
        flags = await queries.flags(session, study_id)
    answer = page(
        request, "_trials.html", study=study, flags=flags, **_table_values(study, query, table)
    )
    if (
        request.headers.get("hx-source") != TRIALS_SECTION
    ):  # which asks for itself when there is news
        address = f"{base_of(request)}/ui/studies/{study_id}"
        answer.headers["HX-Replace-Url"] = (
            f"{address}?{text}" if (text := query.text()) else address
        )
    return answer


@router.get("/trials.csv")
async def download_trials(context: ContextDep, study_id: StudyId, query: Shown) -> Response:
    """Every trial that the filters leave."""
    study = await studies.get(context, study_id)
    async with context.database.session() as session:
        table = await trials_table(
            session,
            study_id,
            query,
            num_rungs=len(study.plan["simulations"]),
            names=list(study.spec["search"]["space"]),
            has_heat=view.has_heat(study.plan),
        )
    return csv_file(table, f"{study.id}-trials")


@router.get("/search")
async def show_search(
    request: Request,
    context: ContextDep,
    study_id: StudyId,
    rung: Rung = None,
    across: Chosen = None,
    up: Chosen = None,
) -> HTMLResponse:
    """The charts over all trials; those of the space at one rung, and one of them of two parameters."""
    study = await studies.get(context, study_id)
    charts, now = await _search_charts(context, study, rung)
    return page(
        request,
        "_search.html",
        study=study,
        charts=charts,
        pair=charts.pair(across, up),
        timeline=charts.timeline(now),
        TALL=TALL,
        LEAST_TRIALS=LEAST_TRIALS,
        LEAST_RANKED=LEAST_RANKED,
    )


@router.get("/curves")
async def show_curves(
    request: Request, context: ContextDep, study_id: StudyId, rung: Rung = None
) -> HTMLResponse:
    """How the best trials of a rung learnt; of the last one that was reached unless one is named."""
    study = await studies.get(context, study_id)
    shown, chart = await _curves(context, study, rung)
    # Of a study that goes on, another batch may have some in a moment.
    can_choose = not StudyState(study.state).is_terminal or chart is not None
    if not can_choose and rung is not None:
        _, chart_of_another = await _curves(context, study, None)
        can_choose = chart_of_another is not None
    return page(
        request, "_curves.html", study=study, rung=shown, chart=chart, can_choose=can_choose
    )


@router.get("/run")
async def show_run(request: Request, context: ContextDep, study_id: StudyId) -> HTMLResponse:
    """The private run over its steps."""
    study = await studies.get(context, study_id)
    curves = await run_curves(context, study_id)
    charts = run_charts(curves) if curves else None
    return page(request, "_run.html", study=study, curves=curves, charts=charts)


@router.get("/charts/{name}.csv")
async def download_chart(
    context: ContextDep,
    study_id: StudyId,
    name: Annotated[str, Path(max_length=50)],
    rung: Rung = None,
    across: Chosen = None,
    up: Chosen = None,
) -> Response:
    """The numbers of one chart, all of them.

    Raises:
        NotFoundError: there is no such chart, or nothing to draw in it yet.
    """
    study = await studies.get(context, study_id)
    chart: Any = None
    if name == "curves":
        _, chart = await _curves(context, study, rung)
    elif name == "prediction":
        async with context.database.session() as session:
            chart = _prediction_chart(study, await _candidates_named(session, study, []))
    elif name in RUN_CHARTS:
        curves = await run_curves(context, study_id)
        chart = run_charts(curves).by_name()[name] if curves else None
    else:
        charts, now = await _search_charts(context, study, rung)
        drawn = {"pair": charts.pair(across, up), "timeline": charts.timeline(now)}
        chart = (charts.by_name() | drawn).get(name)
    if name not in CHARTS:
        raise NotFoundError(f"there is no chart {name!r}; charts: {', '.join(sorted(CHARTS))}")
    if chart is None:
        raise NotFoundError(f"nothing is to be drawn in {name!r} of study {study_id!r}")
    return csv_file(chart.table, f"{study.id}-{name}")


@dataclass(frozen=True, slots=True)
class SearchCharts:
    """What is drawn of all trials; None where there is nothing to draw yet."""

    history: Lines | None
    parallel: ParallelChart | None
    slices: Slices | None
    importance: Importance | None
    noise: NoiseChart | None
    rung: int
    """Whose accuracies are over the space: in ``parallel``, ``slices``, ``importance`` and :meth:`pair`."""
    num_scored: tuple[int, ...]
    """Trials by rung."""
    scored: list[tuple[TrialPoint, float]]
    """Those at ``rung``."""
    axes: list[Axis]
    best: int | None
    """The number of the trial that stands for the study."""
    spans: list[Span]

    def timeline(self, now: datetime) -> Timeline | None:
        """When each trial ran, those that go on until now."""
        return timeline(self.spans, now)

    def pair(self, across: str | None, up: str | None) -> PairChart | None:
        """Two parameters at once: those that are named, else those that mattered most."""
        known = self.importance.rows if self.importance else [(axis.name,) for axis in self.axes]
        return pair_chart(
            self.scored,
            self.axes,
            ranked=[name for name, *_ in known],
            across=across,
            up=up,
            marked=self.best,
        )

    def by_name(self) -> dict[str, Any]:
        """As the addresses of their numbers have it."""
        return {name: getattr(self, name) for name in SEARCH_CHARTS}


SEARCH_CHARTS = ("history", "parallel", "slices", "importance", "noise")
CHARTS = {"curves", "prediction", "pair", "timeline", *RUN_CHARTS, *SEARCH_CHARTS}
"""Whose numbers can be had."""
LEAST_DRAWN = 10
"""Trials at a rung, for it to be drawn before a smaller one where none is named."""
_kept: OrderedDict[tuple[str, int | None], tuple[int, SearchCharts]] = OrderedDict()
"""By study and rung: the number of the study's last event, and the charts of then."""


async def _search_charts(
    context: Context, study: StudyView, rung: int | None
) -> tuple[SearchCharts, datetime]:
    """And the time that it is."""
    key = study.id, rung
    async with context.database.session() as session:
        now = await clock(session)
        seq = (await queries.flags(session, study.id)).event_seq
        known = _kept.get(key)
        if known is not None and known[0] == seq:
            return known[1], now
        points = await queries.trial_points(session, study.id, has_heat=view.has_heat(study.plan))
        noise = await _noise_chart(session, study)
        spans = await queries.trial_spans(session, study.id)
        if study.progress.repeats_finished:
            spans += await queries.repeat_spans(session, study.id)
    charts = await to_thread.run_sync(_drawn, study, points, rung, noise, spans)
    _kept[key] = seq, charts
    _kept.move_to_end(key)
    while len(_kept) > MAX_KEPT:
        _kept.popitem(last=False)
    return charts, now


def _drawn(
    study: StudyView,
    points: list[TrialPoint],
    rung: int | None,
    noise: NoiseChart | None,
    spans: list[Span],
) -> SearchCharts:
    axes = _axes(study)
    # Of trials with the same parameters one that went on is the better for what came before it.
    anew = [point for point in points if not point.went_on]
    by_rung = [scored(anew, each) for each in range(len(study.plan["simulations"]))]
    if rung is None:
        # The largest batch says most of the private run, if it has seen enough of the space.
        enough = [each for each, found in enumerate(by_rung) if len(found) >= LEAST_DRAWN]
        rung = max(enough, default=0)
    at_rung = by_rung[rung] if rung < len(by_rung) else []
    best = study.best_trial.number if study.best_trial else None
    return SearchCharts(
        history=history_chart(points),
        parallel=parallel_chart(at_rung, axes),
        slices=slices(at_rung, axes, marked=best),
        importance=importance(at_rung, axes),
        noise=noise,
        rung=rung,
        num_scored=tuple(map(len, by_rung)),
        scored=at_rung,
        axes=axes,
        best=best,
        spans=spans,
    )


async def _noise_chart(session: AsyncSession, study: StudyView) -> NoiseChart | None:
    if not searches_steps(study.spec["search"]["space"]):
        return None
    batch = study.plan["reference"]["expected_batch_size"]
    return noise_chart(await queries.noise_points(session, study.id, expected_batch_size=batch))


async def _curves(context: Context, study: StudyView, rung: int | None) -> tuple[int, Lines | None]:
    wanted = range(len(study.plan["simulations"]))[::-1] if rung is None else (rung,)
    async with context.database.session() as session:
        for each in wanted:
            chart = curves_chart(await queries.curves(session, study.id, each))
            if chart is not None:
                return each, chart
    return next(iter(wanted), 0), None


async def _candidates_named(
    session: AsyncSession, study: StudyView, numbers: list[int]
) -> dict[int, TrialView]:
    predicted = [study.prediction.trial] if study.prediction else []
    return await queries.trials_named(session, study.id, [*predicted, *numbers])


def _prediction_chart(study: StudyView, trials: Mapping[int, TrialView]) -> PredictionChart | None:
    if study.prediction is None or study.prediction.trial not in trials:
        return None
    what = "noisy score" if study.plan.get("charged_search") else "simulation"
    return prediction_chart(study.prediction, trials[study.prediction.trial], what=what)


def _axes(study: StudyView) -> list[Axis]:
    """Of what was searched."""
    return axes_of(_SPACE.validate_python(study.spec["search"]["space"]))


def _table_values(study: StudyView, query: TrialsQuery, table: Any) -> dict[str, Any]:
    axes = _axes(study)
    helpers: dict[str, Callable[..., Any]] = {
        "trial_seconds": view.trial_seconds,
        "rung_accuracies": view.rung_accuracies,
        "num_fresh_seeds": view.num_fresh_seeds,
        "clipped_fraction": view.clipped_fraction,
        "written": written,
        "is_searched": is_searched,
    }
    return {
        "query": query,
        "table": table,
        "axes": axes,
        "ranges": ranges_of(axes),
        "columns": COLUMNS,
        "trial_states": list(TrialState),
        "FEWEST": FEWEST,
        "MOST": MOST,
        **helpers,
    }
