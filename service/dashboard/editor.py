"""``/ui/new``: a study.yaml is written, checked and submitted, by what ``POST /studies`` does itself."""

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from service.access.audit import note_targets
from service.access.guard import PrincipalDep, expect_study, needs
from service.auth.scopes import Scope
from service.body import validate
from service.cli.template import STUDY
from service.context import Context, ContextDep
from service.dashboard import queries
from service.dashboard.faults import Fault, faults_of
from service.dashboard.forms import read_form
from service.dashboard.render import page, to_yaml
from service.errors import NotFoundError, ServiceError
from service.plans.schemas import PlanView
from service.plans.service import prepare, told
from service.prefix import base_of
from service.studies import service as studies
from service.trial_spec import repeated, sparse
from tan_core.accounting import note_of_search
from tan_core.errors import TanError
from tan_core.spec import StudySpec
from tan_core.spec.yaml import parse_yaml

MAX_TEXT = 100_000
"""Characters of a study in an address."""

router = APIRouter(include_in_schema=False)
actions = APIRouter(include_in_schema=False)
"""What the editor posts; who may not is refused with a problem, as by the API."""


@router.get("/ui/new", dependencies=[needs(Scope.READ)])
async def write_study(
    request: Request,
    context: ContextDep,
    principal: PrincipalDep,
    yaml: Annotated[str | None, Query(max_length=MAX_TEXT, description="To begin with")] = None,
    like: Annotated[str | None, Query(max_length=200, description="A study's id")] = None,
    trial: Annotated[int | None, Query(ge=0, lt=2**31, description="One of its trials")] = None,
) -> HTMLResponse:
    """The editor: with this text, with that of another study or of one trial of it, or with a first study."""
    text = STUDY if yaml is None else yaml
    if like is not None:
        if principal.sees is not None:
            await expect_study(context, like, principal.sees)
        text = await _alike(context, like, trial)
    return _editor(request, text, like=like, trial=trial)


async def _alike(context: Context, study_id: str, number: int | None) -> str:
    """The text of a study, or of one that tries a single trial of it."""
    study = await studies.get(context, study_id)
    if number is None:
        return to_yaml(sparse(study.spec))
    async with context.database.session() as session:
        found = (await queries.trials_named(session, study_id, [number])).get(number)
    if found is None:
        raise NotFoundError(f"study {study_id!r} has no trial {number}")
    return to_yaml(sparse(repeated(study.model_dump(), found.params, number=number)))


@actions.post("/ui/new", dependencies=[needs(Scope.SUBMIT)])
async def take_study(request: Request, context: ContextDep, principal: PrincipalDep) -> Response:
    """Check the text, or submit it and lead to its study. A refusal names its fields and lines."""
    fields = dict(await read_form(request))
    text = fields.get("yaml", "")
    try:
        body = await to_thread.run_sync(parse_yaml, text)
        spec = validate(StudySpec, body)
        if fields.get("action") == "submit":
            study, _ = await studies.submit(context, spec, by=principal)
            note_targets(request, study.id)
            address = f"{base_of(request)}/ui/studies/{study.id}"
            return Response(status_code=204, headers={"HX-Redirect": address})
        prepared = await prepare(context, spec, tenant=principal.reaches)
        plan = await told(context, prepared, by=principal)
    except (ServiceError, TanError) as error:
        faults = await to_thread.run_sync(faults_of, error, text)
        return _editor(request, text, faults=faults, status=422)
    return _editor(request, text, plan=plan, spec=spec)


def _editor(
    request: Request,
    text: str,
    *,
    like: str | None = None,
    trial: int | None = None,
    faults: list[Fault] | None = None,
    plan: PlanView | None = None,
    spec: StudySpec | None = None,
    status: int = 200,
) -> HTMLResponse:
    return page(
        request,
        "editor.html",
        status=status,
        text=text,
        like=like,
        trial=trial,
        faults=faults or [],
        plan=plan.model_dump(mode="json") if plan else None,
        budget=plan.budget.model_dump() if plan and plan.budget else None,
        spec=spec,
        search_note=note_of_search(spec.search.accounting, learnt_from=plan.learnt_from)
        if spec and plan
        else None,
    )
