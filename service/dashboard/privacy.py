"""The pages of datasets: what is left of each budget, who holds and was charged it, and the evidence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.guard import PrincipalDep, needs
from service.auth.scopes import Scope
from service.context import ContextDep
from service.dashboard import privacy_queries, queries, view
from service.dashboard.charts.bought import bought_chart
from service.dashboard.charts.burndown import burndown_chart
from service.dashboard.charts.table import Table
from service.dashboard.privacy_queries import Slice, statements_of
from service.dashboard.render import csv_file, page
from service.datasets import repository as dataset_rows
from service.datasets import service as datasets
from service.db.clock import clock
from service.errors import InvalidInputError, NotFoundError
from service.ledger import burndown, names, repository, words
from service.ledger.prices import PAGE_PATIENCE_SECONDS, budgets
from service.ledger.schemas import Account, Beside, Burndown, Entry, Evaluation, Totals
from service.ledger.schemas import Scope as LedgerScope
from service.ledger.service import Ledger, scope_id_of
from tan_core.accounting import SEARCH_NOTES, SearchAccounting
from tan_core.mechanism import Accountant

ENTRIES_PER_PAGE = 50
DATASETS_PER_PAGE = 50
KINDS: tuple[str, ...] = get_args(Entry.model_fields["kind"].annotation)
STEPS = ("begin", "end")
"""Nearly all of a journal, one of each for every checkpoint: shown where they are asked for."""
SHOWN_KINDS = tuple(kind for kind in KINDS if kind not in STEPS)
LISTED = 50
"""Rows of each table; what is beyond is in the API and in the export."""
UNACCOUNTED_NOTE = SEARCH_NOTES[SearchAccounting.DECLARED_UNACCOUNTED]

router = APIRouter(include_in_schema=False)
DatasetName = Annotated[str, Path(max_length=200)]
Kinds = Annotated[
    list[Annotated[str, Query(max_length=20)]],
    Query(
        alias="kind", default_factory=list, max_length=20, description="Of entries; any of these"
    ),
]
OfStudy = Annotated[
    str | None,
    Query(
        max_length=200, pattern=r"^[^\x00]*$", description="Only entries of this study, by its id"
    ),
]
After = Annotated[
    str,
    Query(max_length=200, pattern=r"^[^\x00]*$", description="Only datasets behind this name"),
]
Over = Annotated[Literal["entries", "time"], Query(description="What the burn-down is drawn over")]
Before = Annotated[int | None, Query(ge=1, le=2**53, description="Only entries of a lower number")]


@dataclass(frozen=True)
class Standing:
    """One of many budgets."""

    scope: LedgerScope
    beside: Beside
    totals: Totals | None
    """None: not priced yet."""


@dataclass(frozen=True)
class Evidence:
    """What a private dataset's ledger says beside its account."""

    account: Account
    burndown: Burndown
    evaluations: Sequence[Evaluation]
    """The newest of each accountant for each reservation, and for all together, which comes first."""


@dataclass(frozen=True)
class Journal:
    """One page of a journal, as its filters leave it."""

    which: Slice
    entries: Sequence[Entry]
    total: int
    """That the filters leave, on all pages."""
    query: str
    """The filters, as an address has them."""

    @property
    def next_before(self) -> int | None:
        """Where the next page begins; None on the last one."""
        if len(self.entries) <= ENTRIES_PER_PAGE:
            return None
        return self.entries[ENTRIES_PER_PAGE - 1].seq

    @property
    def shown(self) -> Sequence[Entry]:
        """The entries of this page."""
        return self.entries[:ENTRIES_PER_PAGE]

    @property
    def hides_steps(self) -> bool:
        """Whether charges of steps are left out."""
        return not set(STEPS) & set(self.which.kinds)


@router.get("/ui/datasets", dependencies=[needs(Scope.READ)])
async def list_datasets(request: Request, context: ContextDep, after: After = "") -> HTMLResponse:
    """A page of the registered datasets, by name, with what is left of each budget."""
    async with context.database.snapshot() as session:
        # Each budget is looked at: all of a thousand would take a while.
        found = await dataset_rows.after(session, after, DATASETS_PER_PAGE + 1)
        shown = found[:DATASETS_PER_PAGE]
        items = await datasets.views(session, shown)
        scope_ids = [row.scope_id for row in shown if row.scope_id is not None]
        scopes = await repository.scopes(session, scope_ids)
        beside = {each: await repository.beside(session, each) for each in scope_ids}
        asked = await budgets(session, scope_ids)
        unaccounted = await queries.unaccounted_searches(session)
    totals = await request.app.state.metrics.prices.newest(asked, PAGE_PATIENCE_SECONDS)
    standings = [
        row.scope_id and Standing(scopes[row.scope_id], beside[row.scope_id], totals.get(row.scope_id))
        for row in shown
    ]  # fmt: skip
    return page(
        request,
        "datasets.html",
        datasets=list(zip(items, standings, strict=True)),
        after=after,
        next_after=shown[-1].name if len(found) > len(shown) else None,
        shares=view.shares,
        unaccounted=unaccounted,
        note=UNACCOUNTED_NOTE,
    )


@router.get("/ui/datasets/{name}", dependencies=[needs(Scope.READ)])
async def show_dataset(
    request: Request,
    context: ContextDep,
    principal: PrincipalDep,
    name: DatasetName,
    kinds: Kinds,
    study: OfStudy = None,
    before: Before = None,
    over: Over = "entries",
) -> HTMLResponse:
    """One dataset: its budget, who holds it, what accountants say, and the journal."""
    async with context.database.snapshot() as session:
        row = await datasets.find(session, name)
        item = await datasets.view(session, row)
        test_reads = await queries.test_reads(session, name)
        if row.scope_id is None:
            return page(request, "dataset.html", dataset=item, account=None, test_reads=test_reads)
        evidence = await _evidence(session, row.scope_id)
        journal = await _journal(session, row.scope_id, _slice(kinds, study, before))
        held = evidence.account.reservations
        studies_of = {each.reservation_id: each.study_id for each in held if not each.is_outside}
        holders = await queries.holders(session, list(studies_of.values()), tenant=principal.sees)
        stated = await statements_of(session, name, tenant=principal.sees, limit=LISTED + 1)
    account = evidence.account
    chart = burndown_chart(evidence.burndown, account, over_time=over == "time")
    return page(
        request,
        "dataset.html",
        dataset=item,
        test_reads=test_reads,
        account=account,
        shares=view.shares(account.scope.epsilon, account),
        cap_shares=view.cap_shares,
        chart=chart,
        over=over,
        bounded=evidence.burndown.accountant == Accountant.RDP,
        last=evidence.burndown.points[-1] if evidence.burndown.points else None,
        evaluations=evidence.evaluations[:LISTED],
        num_evaluations=len(evidence.evaluations),
        newest_held=list(reversed(held))[:LISTED],
        journal=journal,
        kinds=KINDS,
        studies_of=studies_of,
        outside={
            each.reservation_id: words.outside(each.reason) for each in held if each.is_outside
        },
        parts=names.parts((each.study_id, each.reservation_id) for each in held),
        holders=holders,
        stated=stated[:LISTED],
        bought=bought_chart(stated[:LISTED]),
        has_more_stated=len(stated) > LISTED,
        notes=SEARCH_NOTES,
        unaccounted=account.unaccounted_searches,
        note=UNACCOUNTED_NOTE,
    )


@router.get("/ui/datasets/{name}/chain", dependencies=[needs(Scope.READ)])
async def verify_chain(request: Request, context: ContextDep, name: DatasetName) -> HTMLResponse:
    """The verdict on the journal as it is now, as a part of the page."""
    async with context.database.session() as session:
        report = await Ledger().verify_chain(session, await scope_id_of(session, name))
        now = await clock(session)
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


@router.get("/ui/datasets/{name}/bought.csv", dependencies=[needs(Scope.READ)])
async def get_bought_numbers(
    context: ContextDep, principal: PrincipalDep, name: DatasetName
) -> Response:
    """The test accuracies and ε of the newest studies that completed."""
    async with context.database.session() as session:
        await scope_id_of(session, name)
        stated = await statements_of(session, name, tenant=principal.sees, limit=LISTED)
    chart = bought_chart(stated)
    if chart is None:
        raise NotFoundError(f"fewer than two studies that you may see have completed on {name!r}")
    return csv_file(chart.table, f"{name}-bought")


@router.get("/ui/datasets/{name}/journal.csv", dependencies=[needs(Scope.READ)])
async def download_journal(
    context: ContextDep, name: DatasetName, kinds: Kinds, study: OfStudy = None
) -> Response:
    """Every entry that the filters leave, oldest first, each with the exact text that its hash covers."""
    async with context.database.session() as session:
        scope_id = await scope_id_of(session, name)
        which = _slice(kinds, study, None)
        entries = await privacy_queries.journal(session, scope_id, which, limit=None)
    columns = ("entry", "kind", "reservation", "what", "at", "by", "body", "prev_hash", "hash")
    rows = [
        (
            *(one.seq, one.kind, one.reservation_id, words.what(one)),
            *(words.when(one).isoformat(), words.by_whom(one), one.body, one.prev_hash, one.hash),
        )
        for one in reversed(entries)
    ]
    return csv_file(Table(columns, rows), f"{name}-journal")


def _slice(kinds: Sequence[str], study: str | None, before: int | None) -> Slice:
    """What the address asks for; all but the charges of steps where it names no kind.

    Raises:
        InvalidInputError: a kind is none.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise InvalidInputError.at("kind", f"expected one of {', '.join(KINDS)}", kind)
    return Slice(tuple(kinds) or SHOWN_KINDS, (study or "").strip() or None, before)


async def _journal(session: AsyncSession, scope_id: str, which: Slice) -> Journal:
    filters = [("kind", kind) for kind in which.kinds if which.kinds != SHOWN_KINDS]
    return Journal(
        which,
        await privacy_queries.journal(session, scope_id, which, limit=ENTRIES_PER_PAGE + 1),
        await privacy_queries.num_entries(session, scope_id, replace(which, before=None)),
        urlencode([*filters, *([("study", which.study)] if which.study else [])]),
    )


def newest(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """The last of each accountant for each reservation: of all charges together first, then the newest."""
    last = {(one.reservation_id, one.accountant): one for one in evaluations}
    return sorted(
        last.values(), key=lambda one: (one.reservation_id is not None, -one.seq, one.accountant)
    )


async def _evidence(session: AsyncSession, scope_id: str) -> Evidence:
    return Evidence(
        account=await Ledger().account(session, scope_id, last_entries=0),
        burndown=await burndown.burndown(session, scope_id),
        evaluations=newest(await repository.evaluations(session, scope_id)),
    )
