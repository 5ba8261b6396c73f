"""The planner: what a target would take, as one turns the dials.

The page answers at once with a sketch (tan_core/planner/sketch.py), and then asks for the plan itself, which is
that of ``POST /plans``. Its whole state is the address.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from service import text
from service.access.guard import PrincipalDep, needs
from service.auth.scopes import Principal, Scope
from service.context import Context, ContextDep
from service.dashboard.charts.batch_cost import LINES, BatchCostChart, batch_cost_chart
from service.dashboard.charts.table import Table
from service.dashboard.charts.wall import WallChart, wall_chart
from service.dashboard.planner_form import PlannerForm, dials_of
from service.dashboard.render import page
from service.datasets import repository as dataset_rows
from service.datasets import service as datasets
from service.datasets.schemas import SUPPORTED_MODES, DatasetView
from service.errors import InvalidInputError, NotFoundError
from service.ledger.schemas import Totals
from service.ledger.service import Ledger, scope_id_of
from service.plans.schemas import PlanView
from service.plans.service import plan_body
from tan_core.accounting import SEARCH_NOTES, SearchAccounting, note_of_search
from tan_core.errors import TanError
from tan_core.mechanism import NeighboringRelation
from tan_core.planner.plan import PlannedSearchPrivacy
from tan_core.planner.search_modes import search_privacy_by_mode
from tan_core.planner.sketch import Sketch, sketch
from tan_core.spec import FieldProblem, StudySpec
from tan_core.spec.models import MODEL_TYPES

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Question:
    """What was asked, on which data, and what is wrong with it."""

    form: PlannerForm
    dataset: DatasetView | None
    known: Sequence[DatasetView]
    problems: Sequence[FieldProblem]
    totals: Totals | None = None
    """Where the budget of the data stands; None where it has none."""

    @property
    def remaining_epsilon(self) -> float | None:
        """Of the budget, at its own delta, with all that is reserved taken off."""
        if self.totals is None or self.dataset is None or self.dataset.budget is None:
            return None
        return max(0.0, self.dataset.budget.epsilon - self.totals.committed_epsilon)

    @property
    def relation(self) -> NeighboringRelation:
        """Of the data's budget; the usual one where there is none."""
        found = self.dataset.neighboring_relation if self.dataset else None
        return found or NeighboringRelation.ADD_OR_REMOVE_ONE

    @property
    def query(self) -> str:
        """The address of the same question."""
        return urlencode(self.form.model_dump(mode="json", exclude_none=True))


@dataclass(frozen=True)
class Answer:
    """The sketch and its charts."""

    sketch: Sketch
    wall: WallChart
    cost: BatchCostChart


@dataclass(frozen=True)
class Certified:
    """The plan of ``POST /plans``, and its search in every mode; or why there is none."""

    plan: PlanView | None = None
    modes: Sequence[PlannedSearchPrivacy] = ()
    problems: Sequence[FieldProblem] = ()
    search_note: str | None = None
    """What has to be said beside every epsilon of the plan."""


@router.get("/ui/plan", dependencies=[needs(Scope.READ)])
async def show_planner(
    request: Request, context: ContextDep, principal: PrincipalDep, certified: bool = False
) -> HTMLResponse:
    """The dials and what they come to; with the plan itself where it is asked for."""
    question = await _question(context, request)
    problems, answer = list(question.problems), None
    if not problems:
        try:
            answer = await _answer(context, question)
        except TanError as error:
            problems.append(_problem(error))
    plan = None
    if certified and answer is not None:
        plan = await _certified(context, question, principal)
    # A part that is asked for is exchanged only where it is good: it says itself what is wrong.
    is_part = "hx-request" in request.headers
    return page(
        request,
        "plan.html",
        status=422 if problems and not is_part else 200,
        form=question.form,
        dataset=question.dataset,
        remaining=question.remaining_epsilon,
        known=question.known,
        dials=dials_of(question.form),
        query=question.query,
        study=question.form.study(),
        problems=problems,
        answer=answer,
        certified=plan,
        models=list(MODEL_TYPES),
        notes=SEARCH_NOTES,
        supported=SUPPORTED_MODES,
    )


@router.get("/ui/plan/{name}.csv", dependencies=[needs(Scope.READ)])
async def get_planner_numbers(request: Request, context: ContextDep, name: str) -> Response:
    """The numbers of one of the planner's charts: ``wall`` or ``cost``."""
    question = await _question(context, request)
    if question.problems:
        raise InvalidInputError.of(list(question.problems))
    answer = await _answer(context, question)
    tables: dict[str, Table] = {"wall": answer.wall.table, "cost": answer.cost.table}
    if name not in tables:
        raise NotFoundError(f"there is nothing at /ui/plan/{name}.csv")
    return Response(tables[name].csv(), media_type="text/csv; charset=utf-8")


async def _question(context: Context, request: Request) -> Question:
    form, problems = PlannerForm.read(request.query_params)
    async with context.database.session() as session:
        known = await datasets.views(session, await dataset_rows.every(session))
        dataset = next((one for one in known if one.name == form.dataset), None)
        totals = None
        if dataset is not None and not dataset.public:
            totals = await Ledger().totals(session, await scope_id_of(session, dataset.name))
    if dataset is not None:
        form = form.model_copy(update={"num_examples": dataset.num_train})
    elif form.dataset is not None:
        listed = text.known_names(form.dataset, [one.name for one in known])
        message = f"no dataset of this name is registered; registered: {listed}"
        problems = [*problems, FieldProblem(path="dataset", message=message, value=form.dataset)]
    return Question(form=form, dataset=dataset, known=known, problems=problems, totals=totals)


async def _answer(context: Context, question: Question) -> Answer:
    dials = question.form.dials(question.relation)
    found = await context.arithmetic.run(partial(sketch, dials))
    return Answer(
        sketch=found,
        wall=wall_chart(found),
        cost=batch_cost_chart(
            found.costs,
            batch=dials.expected_batch_size,
            shown=_costs_of(question.form.accounting),
        ),
    )


def _costs_of(accounting: SearchAccounting) -> Sequence[str]:
    """What can be told of a search before it is planned: the sketch has the ladder of simulations alone."""
    if accounting is SearchAccounting.NO_SEARCH:
        return LINES[:1]
    return [name for name in LINES if name != "search" or not accounting.is_charged]


async def _certified(context: Context, question: Question, by: Principal) -> Certified:
    spec = StudySpec.model_validate(question.form.study())
    try:
        plan = await plan_body(context, question.form.body(), by=by)
        search = next(
            (one for one in question.known if one.name == spec.search.dataset), question.dataset
        )
        num_examples = search.num_train if search else question.form.num_examples
        modes = await context.arithmetic.run(
            lambda: search_privacy_by_mode(spec, plan, search_num_examples=num_examples)
        )
    except InvalidInputError as error:
        return Certified(problems=error.problems or [_problem(error)])
    except TanError as error:
        return Certified(problems=[_problem(error)])
    note = note_of_search(spec.search.accounting, learnt_from=plan.learnt_from)
    return Certified(plan=plan, modes=modes, search_note=note)


def _problem(error: Exception) -> FieldProblem:
    return FieldProblem(path=getattr(error, "field", None) or "plan", message=str(error))
