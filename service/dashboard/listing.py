"""``/``: the studies, as filters and an order of the address make them, and what is done to many at once."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from service.access.audit import note_done, note_targets
from service.access.guard import PrincipalDep, expect_study, needs
from service.auth.scopes import Principal, Scope
from service.body import validate
from service.context import Context, ContextDep
from service.dashboard import queries, view
from service.dashboard.charts.table import Cell, Table
from service.dashboard.forms import read_form
from service.dashboard.render import csv_file, page
from service.db.clock import clock
from service.errors import ConflictError, InvalidInputError, ServiceError
from service.studies import service as studies
from service.studies.lifecycle import StudyState
from service.studies.repository import MOST_COUNTED
from service.studies.schemas import Archived, StudyEdit, StudyListing, StudyOrder, StudyQuery
from service.study_table import COLUMNS, row
from tan_core.spec import field_problems

STUDIES_PER_PAGE = 25
MOST_AT_ONCE = 200
ACTIONS = ("cancel", "archive", "unarchive", "tag", "untag")
"""On studies that were chosen."""
FILTERS = ("name_contains", "state", "tag", "dataset", "model", "archived", "sort")
ORDERS = {
    StudyOrder.NEWEST: "Newest first",
    StudyOrder.OLDEST: "Oldest first",
    StudyOrder.NAME: "Name, A to Z",
    StudyOrder.NAME_BACKWARDS: "Name, Z to A",
    StudyOrder.LEAST_EPSILON: "Target ε, smallest first",
    StudyOrder.MOST_EPSILON: "Target ε, largest first",
    StudyOrder.BEST_TRIAL: "Best trial, highest first",
    StudyOrder.WORST_TRIAL: "Best trial, lowest first",
    StudyOrder.MOST_PREDICTED: "Predicted, highest first",
    StudyOrder.LEAST_PREDICTED: "Predicted, lowest first",
    StudyOrder.MOST_REACHED: "Reached, highest first",
    StudyOrder.LEAST_REACHED: "Reached, lowest first",
}
"""By what a list is ordered, in words."""
HEADINGS = {
    "Study": StudyOrder.NAME,
    "State": None,
    "Progress": None,
    "Best trial": StudyOrder.BEST_TRIAL,
    "Predicted": StudyOrder.MOST_PREDICTED,
    "Reached": StudyOrder.MOST_REACHED,
    "Privacy": StudyOrder.LEAST_EPSILON,
    "Age": StudyOrder.NEWEST,
}
"""Headings of the table, with the order that a first click asks for."""
USUAL = {("archived", Archived.EXCLUDE.value), ("sort", StudyOrder.NEWEST.value)}

router = APIRouter(include_in_schema=False)
actions = APIRouter(include_in_schema=False)
"""What a page posts; a refusal is a problem, as the API's."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What the form above the list holds, as it was typed."""

    fields: dict[str, list[str]]

    def first(self, name: str) -> str:
        """The field's text; empty where it is not given."""
        return next(iter(self.fields.get(name, [])), "")

    def has(self, name: str, value: str) -> bool:
        """Whether this value is among the field's."""
        return value in self.fields.get(name, [])

    @property
    def are_any(self) -> bool:
        """Whether the list is less than everything, in the usual order."""
        return bool(self.fields)

    @property
    def text(self) -> str:
        """As a query, to be followed by other fields."""
        return urlencode([(name, each) for name, found in self.fields.items() for each in found])


def read_filters(fields: Iterable[tuple[str, str]]) -> Filters:
    """The fields of a query that filter the list. What is empty or as usual is no filter.

    Example:
        >>> read_filters([("tag", "paper, fig:2"), ("name_contains", ""), ("archived", "exclude")]).fields
        {'tag': ['paper', 'fig:2']}
    """
    found: dict[str, list[str]] = {}
    for name, value in fields:
        words = _words(value) if name == "tag" else [value.strip()]
        if name in FILTERS and any(words) and (name, value) not in USUAL:
            found.setdefault(name, []).extend(word for word in words if word)
    return Filters(found)


def _words(text: str) -> list[str]:
    return re.split(r"[\s,]+", text.strip())


def query_of(filters: Filters, cursor: str | None) -> StudyQuery:
    """The page of the list.

    Raises:
        InvalidInputError: a filter is none.
    """
    several = ("state", "tag")
    given: dict[str, Any] = {
        name: values if name in several else values[-1] for name, values in filters.fields.items()
    }
    try:
        return StudyQuery.model_validate({**given, "limit": STUDIES_PER_PAGE, "cursor": cursor})
    except ValidationError as error:
        raise InvalidInputError.of(field_problems(error, StudyQuery)) from None


@dataclass(frozen=True, slots=True)
class Heading:
    """A column's, which turns the order where there is one by it."""

    label: str
    order: StudyOrder | None
    """Of a click; None: there is none by this column."""
    direction: str | None
    """What ``aria-sort`` says: ``ascending``, ``descending``, or None where the order is another."""
    is_number: bool


def headings(now: StudyOrder) -> list[Heading]:
    """The table's, in the order that it has now."""
    return [_heading(label, first, now) for label, first in HEADINGS.items()]


def _heading(label: str, first: StudyOrder | None, now: StudyOrder) -> Heading:
    is_number = label in ("Best trial", "Predicted", "Reached")
    if first is None or first.field != now.field:
        return Heading(label, first, None, is_number)
    direction = "descending" if now.is_backwards else "ascending"
    return Heading(label, now.turned if now is first else first, direction, is_number)


@router.get("/", dependencies=[needs(Scope.READ)])
async def list_studies(
    request: Request, context: ContextDep, principal: PrincipalDep
) -> HTMLResponse:
    """The studies that the filters leave, newest first unless ``sort`` says otherwise."""
    filters = read_filters(request.query_params.multi_items())
    cursor = request.query_params.get("cursor") or None
    try:
        query = query_of(filters, cursor)
    except InvalidInputError as error:
        return _page(
            request, filters, StudyListing(), cursor=None, refusal=error.detail, status=422
        )
    found = await studies.page(context, query, tenant=principal.sees)
    async with context.database.session() as session:
        rows = await queries.list_rows(session, [study.id for study in found.items])
        now = await clock(session)
    return _page(
        request,
        filters,
        query,
        cursor=cursor,
        studies=found.items,
        rows=rows,
        next_cursor=found.next_cursor,
        total=found.total,
        now=now,
    )


@router.get("/ui/studies.csv", dependencies=[needs(Scope.READ)])
async def download_list(request: Request, context: ContextDep, principal: PrincipalDep) -> Response:
    """Every study that the filters leave, not a page of them.

    Raises:
        InvalidInputError: a filter is none.
    """
    query = query_of(read_filters(request.query_params.multi_items()), None)
    query = query.model_copy(update={"limit": MOST_AT_ONCE})
    rows: list[list[Cell]] = []
    while True:
        found = await studies.page(context, query, tenant=principal.sees, counts=False)
        rows += [row(study.model_dump(mode="json")) for study in found.items]
        if found.next_cursor is None:
            return csv_file(Table(COLUMNS, rows), "studies")
        query = query.model_copy(update={"cursor": found.next_cursor})


def _page(
    request: Request, filters: Filters, query: StudyListing, *, status: int = 200, **values: Any
) -> HTMLResponse:
    nothing: dict[str, Any] = {
        "studies": [], "rows": {}, "next_cursor": None, "total": None, "refusal": None,
    }  # fmt: skip
    return page(
        request,
        "studies.html",
        status=status,
        filters=filters,
        query=query,
        states=list(StudyState),
        orders=ORDERS,
        headings=headings(query.sort),
        archives=list(Archived),
        why=view.why_not_running,
        most_counted=MOST_COUNTED,
        **{**nothing, **values},
    )


@actions.post("/ui/studies/bulk", dependencies=[needs(Scope.SUBMIT)])
async def act_on_many(request: Request, context: ContextDep, principal: PrincipalDep) -> Response:
    """Cancel, archive, bring back or tag the studies that were chosen; those that cannot be are named.

    Raises:
        ConflictError: some could not; what could be done is done.
    """
    fields = await read_form(request, max_fields=MOST_AT_ONCE + 2)
    action = next((value for name, value in fields if name == "action"), "")
    if action not in ACTIONS:
        raise InvalidInputError.at("action", f"expected one of {', '.join(ACTIONS)}", action)
    chosen = [value for name, value in fields if name == "study"]
    if not chosen:
        raise InvalidInputError.at("study", "choose at least one study")
    note_targets(request, *(f"{study_id}/{action}" for study_id in chosen))
    tags = [tag for name, value in fields if name == "tags" for tag in _words(value) if tag]
    if action in ("tag", "untag") and not tags:
        raise InvalidInputError.at("tags", "write at least one tag")
    if action == "tag":
        validate(StudyEdit, {"tags": tags})  # or each study would refuse them in turn
    refused: list[str] = []
    for study_id in chosen:
        error = await _try(context, principal, action, study_id, tags)
        if error is None:
            note_done(request, f"{study_id}/{action}")
        else:
            refused.append(f"{study_id}: {error.detail}")
    if refused:
        done = len(chosen) - len(refused)
        raise ConflictError(f"{done} of {len(chosen)} done; {'; '.join(refused)}")
    return Response(status_code=204)


async def _try(
    context: Context, principal: Principal, action: str, study_id: str, tags: list[str]
) -> ServiceError | None:
    try:
        if principal.reaches is not None:
            await expect_study(context, study_id, principal.reaches)
        if action == "cancel":
            await studies.cancel(context, study_id)
        elif action in ("tag", "untag"):
            await _retag(context, study_id, tags, adds=action == "tag")
        else:
            change = StudyEdit(archived=action == "archive")
            await studies.edit(context, study_id, change, if_match="*")
    except ServiceError as error:
        return error
    return None


async def _retag(context: Context, study_id: str, tags: list[str], *, adds: bool) -> None:
    """Add these tags to a study's, or take them away."""
    study = await studies.get(context, study_id)
    kept = [tag for tag in study.tags if tag not in tags]
    wanted = list(dict.fromkeys([*study.tags, *tags])) if adds else kept
    change = validate(StudyEdit, {"tags": wanted})
    await studies.edit(context, study_id, change, if_match=f'"{study.version}-"')
