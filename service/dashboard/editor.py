"""``/ui/new``: a study.yaml is written, checked and submitted, by what ``POST /studies`` does itself."""

from dataclasses import dataclass
from typing import Annotated, Any

import yaml
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from service.access.guard import PrincipalDep, expect_study, needs
from service.auth.scopes import Scope
from service.body import validate
from service.cli.template import STUDY
from service.context import Context, ContextDep
from service.dashboard import queries
from service.dashboard.forms import read_form
from service.dashboard.render import page, to_yaml
from service.errors import NotFoundError, ServiceError
from service.plans.service import prepare
from service.prefix import base_of
from service.studies import service as studies
from service.trial_spec import repeated, sparse
from tan_core.accounting import note_of_search
from tan_core.errors import TanError
from tan_core.planner import Plan
from tan_core.spec import FieldProblem, StudySpec
from tan_core.spec.yaml import parse_yaml

MAX_TEXT = 100_000
"""Characters of a study in an address."""

router = APIRouter(include_in_schema=False)
actions = APIRouter(include_in_schema=False)
"""What the editor posts; who may not is refused with a problem, as by the API."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with the text, and where."""

    path: str
    message: str
    value: Any = None
    line: int | None = None
    """From 1; None where the text does not say it at all."""


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
            address = f"{base_of(request)}/ui/studies/{study.id}"
            return Response(status_code=204, headers={"HX-Redirect": address})
        prepared = await prepare(context, spec, tenant=principal.reaches)
    except (ServiceError, TanError) as error:
        faults = await to_thread.run_sync(faults_of, error, text)
        return _editor(request, text, faults=faults, status=422)
    return _editor(request, text, plan=prepared.told(), spec=spec)


def _editor(
    request: Request,
    text: str,
    *,
    like: str | None = None,
    trial: int | None = None,
    faults: list[Fault] | None = None,
    plan: Plan | None = None,
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
        spec=spec,
        search_note=note_of_search(spec.search.accounting, learnt_from=plan.learnt_from)
        if spec and plan
        else None,
    )


def faults_of(error: ServiceError | TanError, text: str) -> list[Fault]:
    """What an error says about a text, each with its line."""
    problems = error.problems if isinstance(error, ServiceError) else []
    field = getattr(error, "field", None)
    if not problems and field:
        problems = [FieldProblem(path=field, message=str(error))]
    if not problems:
        return [Fault(path="", message=str(error), line=_line_in(str(error)))]
    root = _composed(text)
    return [
        Fault(
            each.path, each.message, each.value, None if root is None else line_of(root, each.path)
        )
        for each in problems
    ]


def line_of(root: yaml.Node, path: str) -> int | None:
    """The line of the key or the item that a path such as ``search.space.lr.low`` names.

    Where only the beginning of the path is written, it is the line of that: there the rest is missing.
    """
    node, line, parts = root, None, path.split(".")
    while parts:
        if isinstance(node, yaml.SequenceNode) and parts[0].isdigit():
            index = int(parts.pop(0))
            if index >= len(node.value):
                break
            node = node.value[index]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode):
            found = _longest_key(node, parts)
            if found is None:
                break
            key, node, used = found
            line, parts = key.start_mark.line + 1, parts[used:]
        else:
            break
    return line


def _longest_key(
    node: yaml.MappingNode, parts: list[str]
) -> tuple[yaml.Node, yaml.Node, int] | None:
    """The entry whose key is the most of these parts: a key may have dots of its own."""
    by_name = {key.value: (key, value) for key, value in node.value}
    for used in range(len(parts), 0, -1):
        if entry := by_name.get(".".join(parts[:used])):
            return *entry, used
    return None


def _composed(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None


def _line_in(message: str) -> int | None:
    """The line that a parser's message begins with."""
    word, _, rest = message.partition(" ")
    number = rest.partition(",")[0]
    return int(number) if word == "line" and number.isdigit() else None
