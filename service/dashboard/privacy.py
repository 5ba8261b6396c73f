"""The pages of datasets: what is left of each budget, who holds and was charged it, and the evidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.guard import PrincipalDep, needs
from service.auth.scopes import Scope
from service.context import ContextDep
from service.dashboard import queries, view
from service.dashboard.charts.burndown import burndown_chart
from service.dashboard.privacy_queries import statements_of
from service.dashboard.render import page
from service.datasets import repository as dataset_rows
from service.datasets import service as datasets
from service.datasets.schemas import DatasetView
from service.errors import NotFoundError
from service.ledger import burndown, repository
from service.ledger.schemas import Account, Burndown, Evaluation
from service.ledger.service import Ledger, scope_id_of
from tan_core.accounting import SEARCH_NOTES, SearchAccounting

LAST_ENTRIES = 200
LISTED = 100
"""Rows of each table; what is beyond is in the API and in the export."""
UNACCOUNTED_NOTE = SEARCH_NOTES[SearchAccounting.DECLARED_UNACCOUNTED]

router = APIRouter(include_in_schema=False)
DatasetName = Annotated[str, Path(max_length=200)]


@dataclass(frozen=True)
class Evidence:
    """What a private dataset's ledger says beside its account."""

    account: Account
    burndown: Burndown
    evaluations: Sequence[Evaluation]
    """The newest of each accountant for each reservation, and for all together, which comes first."""


@router.get("/ui/datasets", dependencies=[needs(Scope.READ)])
async def list_datasets(request: Request, context: ContextDep) -> HTMLResponse:
    """Every registered dataset with what is left of its budget."""
    async with context.database.snapshot() as session:
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
    request: Request, context: ContextDep, principal: PrincipalDep, name: DatasetName
) -> HTMLResponse:
    """One dataset: its budget, who holds it, what accountants say, and the journal."""
    async with context.database.snapshot() as session:
        row = await datasets.find(session, name)
        item = await datasets.view(session, row)
        if row.scope_id is None:
            return _public(request, item)
        evidence = await _evidence(session, row.scope_id)
        held = evidence.account.reservations
        studies_of = {each.reservation_id: each.study_id for each in held}
        holders = await queries.holders(session, list(studies_of.values()), tenant=principal.sees)
        stated = await statements_of(session, name, tenant=principal.sees, limit=LISTED)
    account = evidence.account
    chart = burndown_chart(evidence.burndown)
    return page(
        request,
        "dataset.html",
        dataset=item,
        account=account,
        shares=view.shares(account),
        chart=chart,
        last=evidence.burndown.points[-1] if evidence.burndown.points else None,
        evaluations=evidence.evaluations[:LISTED],
        num_evaluations=len(evidence.evaluations),
        newest_held=list(reversed(held))[:LISTED],
        entries=list(reversed(account.entries)),
        studies_of=studies_of,
        holders=holders,
        stated=stated,
        notes=SEARCH_NOTES,
        unaccounted=account.unaccounted_searches,
        note=UNACCOUNTED_NOTE,
    )


@router.get("/ui/datasets/{name}/chain", dependencies=[needs(Scope.READ)])
async def verify_chain(request: Request, context: ContextDep, name: DatasetName) -> HTMLResponse:
    """The verdict on the journal as it is now, as a part of the page."""
    async with context.database.session() as session:
        report = await Ledger().verify_chain(session, await scope_id_of(session, name))
        now = await queries.database_clock(session)
    return page(request, "_chain.html", report=report, now=now)


@router.get("/ui/datasets/{name}/burndown.csv", dependencies=[needs(Scope.READ)])
async def get_burndown_numbers(context: ContextDep, name: DatasetName) -> Response:
    """The burn-down's numbers."""
    async with context.database.snapshot() as session:
        found = await burndown.burndown(session, await scope_id_of(session, name))
    chart = burndown_chart(found)
    if chart is None:
        raise NotFoundError(f"nothing was ever reserved of the budget of {name!r}")
    return Response(chart.table.csv(), media_type="text/csv; charset=utf-8")


def newest(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """The last of each accountant for each reservation: of all charges together first, then the newest."""
    last = {(one.reservation_id, one.accountant): one for one in evaluations}
    return sorted(
        last.values(), key=lambda one: (one.reservation_id is not None, -one.seq, one.accountant)
    )


def _public(request: Request, dataset: DatasetView) -> HTMLResponse:
    return page(request, "dataset.html", dataset=dataset, account=None)


async def _evidence(session: AsyncSession, scope_id: str) -> Evidence:
    return Evidence(
        account=await Ledger().account(session, scope_id, last_entries=LAST_ENTRIES),
        burndown=await burndown.burndown(session, scope_id),
        evaluations=newest(await repository.evaluations(session, scope_id)),
    )


async def _account(session: AsyncSession, scope_id: str | None) -> Account | None:
    if scope_id is None:
        return None
    return await Ledger().account(session, scope_id, last_entries=0)
