"""What the first visitor would wait for, done before there is one."""

import logging

from anyio import to_thread

from service.context import Context
from service.dashboard.planner_form import PlannerForm
from service.dashboard.render import compile_templates
from tan_core.mechanism import NeighboringRelation
from tan_core.planner.sketch import sketch

log = logging.getLogger(__name__)


async def warm_up(context: Context) -> None:
    """Compile the pages, and answer the planner once as its dials stand at first: part of scipy loads late.

    What fails is logged: the service runs without it, and the first visitor is told what is wrong.
    """
    try:
        await to_thread.run_sync(compile_templates)
        dials = PlannerForm().dials(NeighboringRelation.ADD_OR_REMOVE_ONE)
        await context.arithmetic.run(lambda: sketch(dials))
    except Exception:
        log.exception("the pages could not be prepared: the first visitor waits for them")
