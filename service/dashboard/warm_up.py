"""What the first visitor would wait for, done before there is one."""

import logging

from anyio import to_thread

from service.context import Context
from service.dashboard.planner_form import PlannerForm
from service.dashboard.render import compile_templates
from tan_core.accounting import price
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tan_core.planner.sketch import sketch

log = logging.getLogger(__name__)

ANY_RUN = Mechanism(sampling_rate=0.01, noise_multiplier=2.0, clip_norm=1.0, steps=100)


async def warm_up(context: Context) -> None:
    """Compile the pages, answer the planner once as its dials stand at first, and price something by PLD.

    Part of scipy, and the accountant's library, are loaded when they are first asked for: on a busy machine that takes
    seconds.

    What fails is logged: the service runs without it, and the first visitor is told what is wrong.
    """
    try:
        await to_thread.run_sync(compile_templates)
        dials = PlannerForm().dials(NeighboringRelation.ADD_OR_REMOVE_ONE)
        await context.arithmetic.run(lambda: sketch(dials))
        await context.arithmetic.run(
            lambda: price((ANY_RUN,), delta=1e-5, accountant=Accountant.PLD)
        )
    except Exception:
        log.exception("the pages could not be prepared: the first visitor waits for them")
