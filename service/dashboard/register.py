"""``/ui/register``: a dataset is described, looked at and registered, by what ``POST /datasets`` does itself."""

from typing import Final

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from service.access.audit import note_targets
from service.access.guard import PrincipalDep, needs
from service.auth.scopes import Scope
from service.body import validate
from service.context import ContextDep
from service.dashboard.faults import Fault, faults_of
from service.dashboard.forms import read_form
from service.dashboard.render import page
from service.datasets import service as datasets
from service.datasets.schemas import DatasetRegistration, DatasetView
from service.errors import ServiceError
from tan_core.errors import TanError
from tan_core.spec.yaml import parse_yaml

FIRST: Final = """\
name: my-data
path: /data/my-data       # file or folder that every node sees: parquet, csv, npz, a folder per class
epsilon: 10.0             # in total, of every study that will ever read it
delta: 1.0e-6             # in total; far below 1 / number of units
unit: record              # or the column that says whose a record is: then one guarantee is for one user
label: label              # the column of the classes
# features:               # columns of a table, and what is publicly known of them; left out: those of numbers
#   - height
#   - {column: age, low: 0, high: 100}
#   - {column: job, choices: [clerk, nurse]}
# public: true            # no budget: leave out epsilon and delta
# approval: required      # a person approves every private run
# waiver: "owner: reason" # who lets searches read it that are not accounted, and why; never later
"""
"""To begin with."""

router = APIRouter(include_in_schema=False)
actions = APIRouter(include_in_schema=False)


@router.get("/ui/register", dependencies=[needs(Scope.READ)])
async def describe_dataset(request: Request) -> HTMLResponse:
    """The editor, with a first description."""
    return _editor(request, FIRST)


@actions.post("/ui/register", dependencies=[needs(Scope.ADMIN)])
async def take_dataset(
    request: Request, context: ContextDep, principal: PrincipalDep
) -> HTMLResponse:
    """Look at the data and say what was found, or register them. A refusal names its fields and lines."""
    fields = dict(await read_form(request))
    text, is_check = fields.get("yaml", ""), fields.get("action") != "register"
    try:
        body = await to_thread.run_sync(parse_yaml, text)
        registration = validate(DatasetRegistration, body)
        note_targets(request, registration.name + ("/dry run" if is_check else ""))
        found, _ = await datasets.register_for(
            context, registration, by=principal, dry_run=is_check
        )
    except (ServiceError, TanError) as error:
        faults = await to_thread.run_sync(faults_of, error, text)
        return _editor(request, text, faults=faults, status=422)
    return _editor(request, text, found=found, is_registered=not is_check)


def _editor(
    request: Request,
    text: str,
    *,
    faults: list[Fault] | None = None,
    found: DatasetView | None = None,
    is_registered: bool = False,
    status: int = 200,
) -> HTMLResponse:
    return page(
        request,
        "register.html",
        status=status,
        text=text,
        faults=faults or [],
        found=found,
        is_registered=is_registered,
    )
