"""The pages: ``/`` and ``/ui``. They show what the API says and store nothing.

A page updates itself by being asked for again: htmx fetches the same address and patches what has
changed (``refresh`` in templates/_macros.html). So every number is rendered in one place only.
"""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.guard import PrincipalDep, needs, needs_study, open_to_all
from service.auth.scopes import Scope
from service.calibration.endpoints import DatasetName, ModelName
from service.calibration.service import calibration
from service.context import ContextDep
from service.dashboard import queries, view
from service.dashboard.assets import assets
from service.dashboard.charts.calibration import calibration_chart
from service.dashboard.charts.noise import NoiseChart, noise_chart
from service.dashboard.charts.prediction import PredictionChart, prediction_chart
from service.dashboard.charts.search import search_chart
from service.dashboard.pages import PageRoute
from service.dashboard.render import page
from service.datasets import repository as dataset_rows
from service.datasets import service as datasets
from service.errors import NotFoundError
from service.ledger.schemas import Account
from service.ledger.service import Ledger
from service.logs import service as drivers
from service.studies import service as studies
from service.studies.schemas import StudyView
from service.trials.schemas import TrialView
from tan_core.accounting import SEARCH_NOTES, SearchAccounting

STUDIES_PER_PAGE = 25
TRIALS_PER_PAGE = 50
LAST_ENTRIES = 200
CALIBRATED_STUDIES = 200
LISTED_STUDIES = 50
UNACCOUNTED_NOTE = SEARCH_NOTES[SearchAccounting.DECLARED_UNACCOUNTED]

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/ui/studies/{study_id}", dependencies=[needs_study(Scope.READ)])
async def show_study(
    request: Request,
    context: ContextDep,
    study_id: Annotated[str, Path(max_length=200)],
    order: queries.TrialOrder = "newest",
    trials: Annotated[int, Query(ge=1, le=100_000, description="Page of the trials")] = 1,
) -> HTMLResponse:
    """One study, live."""
    study = await studies.get(context, study_id)
    attempts = await drivers.attempts(context, study_id)
    async with context.database.session() as session:
        points = await queries.trial_points(session, study_id)
        num_pages = max(1, -(-len(points) // TRIALS_PER_PAGE))
        number = min(trials, num_pages)
        shown = await queries.trial_page(
            session,
            study_id,
            order=order,
            offset=(number - 1) * TRIALS_PER_PAGE,
            limit=TRIALS_PER_PAGE,
        )
        candidates = view.candidates(study.promotion) if study.promotion else []
        predicted = [study.prediction.trial] if study.prediction else []
        named = await queries.trials_named(
            session, study_id, [*predicted, *(one.trial for one in candidates)]
        )
        noise = await _noise_chart(session, study)
        flags = await queries.flags(session, study_id)
        now = await queries.database_clock(session)
    return page(
        request,
        "study.html",
        study=study,
        flags=flags,
        attempts=attempts,
        chart=search_chart(points, num_expected=study.progress.trials_total),
        trials=shown,
        num_trials=len(points),
        order=order,
        number=number,
        num_pages=num_pages,
        candidates=candidates,
        named=named,
        prediction_chart=_prediction_chart(study, named),
        noise=noise,
        trial_seconds=view.trial_seconds,
        rung_accuracies=view.rung_accuracies,
        num_fresh_seeds=view.num_fresh_seeds,
        announcement=view.announcement(study),
        seconds_taken=view.seconds_taken(study, now),
        search_seconds_left=view.search_seconds_left(study, now),
        run_seconds_left=view.run_seconds_left(study.progress),
        error_text=view.error_text(study),
        what_to_do=view.what_to_do(study),
        now=now,
    )


@router.get("/ui/calibration", dependencies=[needs(Scope.READ)])
async def show_calibration(
    request: Request,
    context: ContextDep,
    principal: PrincipalDep,
    dataset: Annotated[str | None, DatasetName] = None,
    model: Annotated[str | None, ModelName] = None,
) -> HTMLResponse:
    """What was predicted, what was reached, and how often the intervals held."""
    found = await calibration(
        context, dataset=dataset, model=model, limit=CALIBRATED_STUDIES, tenant=principal.sees
    )
    async with context.database.session() as session:
        terms = await queries.terms(session, [item.study for item in found.items])
    return page(
        request,
        "calibration.html",
        calibration=found,
        chart=calibration_chart(found.items),
        num_listed=LISTED_STUDIES,
        terms=terms,
        notes=SEARCH_NOTES,
        dataset=dataset,
        model=model,
    )


@router.get("/ui/datasets", dependencies=[needs(Scope.READ)])
async def list_datasets(request: Request, context: ContextDep) -> HTMLResponse:
    """Every registered dataset with what is left of its budget."""
    async with context.database.session() as session:
        listed = [
            (await datasets.view(session, row), await _account(session, row.scope_id))
            for row in await dataset_rows.every(session)
        ]
        unaccounted = await queries.unaccounted_searches(session)
    return page(
        request,
        "datasets.html",
        datasets=listed,
        shares=view.shares,
        unaccounted=unaccounted,
        note=UNACCOUNTED_NOTE,
    )


@router.get("/ui/datasets/{name}", dependencies=[needs(Scope.READ)])
async def show_dataset(
    request: Request,
    context: ContextDep,
    principal: PrincipalDep,
    name: Annotated[str, Path(max_length=200)],
) -> HTMLResponse:
    """One dataset: its budget, who holds it, and the journal."""
    async with context.database.session() as session:
        row = await datasets.find(session, name)
        item = await datasets.view(session, row)
        account = await _account(session, row.scope_id)
        held = account.reservations if account else []
        studies_of = {each.reservation_id: each.study_id for each in held}
        holders = await queries.holders(session, list(studies_of.values()), tenant=principal.sees)
        unaccounted = (await queries.unaccounted_searches(session)).get(name, 0)
    return page(
        request,
        "dataset.html",
        dataset=item,
        account=account,
        shares=view.shares(account) if account else None,
        entries=list(reversed(account.entries)) if account else [],
        studies_of=studies_of,
        holders=holders,
        notes=SEARCH_NOTES,
        unaccounted=unaccounted,
        note=UNACCOUNTED_NOTE,
    )


@router.get("/ui/static/{name:path}", dependencies=[open_to_all()])
async def get_asset(
    name: str, accept_encoding: Annotated[str, Header(max_length=1000)] = ""
) -> Response:
    """A stylesheet, script or icon. Its address changes with its content."""
    asset = assets().get(name)
    if asset is None:
        raise NotFoundError(f"there is no file {name!r}")
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable",
        "ETag": f'"{asset.version}"',
        "Vary": "Accept-Encoding",
    }
    if "gzip" not in accept_encoding:
        return Response(asset.content, media_type=asset.media_type, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(asset.compressed, media_type=asset.media_type, headers=headers)


@router.get("/ui/{path:path}", dependencies=[open_to_all()])
async def nothing_here(path: str) -> Response:
    """Any other address below ``/ui``."""
    raise NotFoundError(f"there is nothing at /ui/{path}")


def _prediction_chart(study: StudyView, trials: Mapping[int, TrialView]) -> PredictionChart | None:
    if study.prediction is None or study.prediction.trial not in trials:
        return None
    return prediction_chart(study.prediction, trials[study.prediction.trial])


async def _noise_chart(session: AsyncSession, study: StudyView) -> NoiseChart | None:
    if not view.searches_steps(study):
        return None
    batch = study.plan["reference"]["expected_batch_size"]
    return noise_chart(await queries.noise_points(session, study.id, expected_batch_size=batch))


async def _account(session: AsyncSession, scope_id: str | None) -> Account | None:
    if scope_id is None:
        return None
    return await Ledger().account(session, scope_id, last_entries=LAST_ENTRIES)
