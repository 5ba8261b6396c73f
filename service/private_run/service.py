"""The course of a private run, from its events, its charges and its configuration."""

import json
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TypeVar

from pydantic import TypeAdapter

from service.context import Context
from service.db.tables import Run, Study
from service.errors import NotFoundError
from service.ledger import repository as ledger
from service.ledger.schemas import Reservation
from service.private_run import repository
from service.private_run.schemas import PrivateRunCurves, RatePoint, SpendingPoint, StepPoint
from service.studies import repository as studies
from tan_core.accounting import price
from tan_core.errors import AccountantError
from tan_core.mechanism import Accountant, Mechanism
from tan_core.spec.schedules import scheduled_learning_rate
from tan_core.spec.train import TrainerConfig
from tan_core.wire import UpdatePoint

T = TypeVar("T")
_UPDATES = TypeAdapter(list[UpdatePoint])

MAX_POINTS = 600
"""Of what was reported and charged."""
SPENDING_POINTS = 24
RATE_POINTS = 100


async def curves(context: Context, study_id: str) -> PrivateRunCurves | None:
    """The run over its steps; None while there is no private run.

    Raises:
        NotFoundError: there is no such study.
    """
    async with context.database.session() as session:
        study = await studies.find(session, study_id)
        if study is None:
            raise NotFoundError(f"there is no study {study_id!r}")
        run = await studies.run_of(session, study_id, "private")
        if run is None:
            return None
        progress = await repository.progress(session, study_id)
        held, segments, searched = None, [], ()
        if study.reservation_id is not None:
            held = await ledger.reservation(session, study.reservation_id)
            searched = tuple(
                each.charged
                for each in await ledger.of_study(session, study.id)
                if each.charged is not None and each.reservation_id != study.reservation_id
            )
            segments = await repository.segments(session, study.reservation_id)
    spending: list[SpendingPoint] = []
    if held is not None:
        spending = await context.arithmetic.run(partial(_spending, study, held, searched))
    privacy = study.plan["privacy"]
    return PrivateRunCurves(
        steps=run.steps,
        charged_steps=held.charged_steps if held else None,
        delta=privacy["delta"],
        accountant=privacy["accountant"],
        neighboring_relation=privacy["neighboring_relation"],
        search_note=study.search_note,
        progress=[*_thinned(progress), *_last(run, progress)],
        segments=_thinned(segments),
        spending=spending,
        learning_rates=_learning_rates(run),
        updates=_UPDATES.validate_python((run.result or {}).get("updates", [])),
    )


def _last(run: Run, reported: Sequence[StepPoint]) -> list[StepPoint]:
    """Where a run has ended: drivers report now and then, and rarely after the last step. Nothing once reports are forgotten."""
    if run.finished_at is None or not reported or run.step <= reported[-1].step:
        return []
    return [StepPoint(at=run.finished_at, step=run.step, steps_per_second=None)]


def _spending(
    study: Study, held: Reservation, searched: tuple[Mechanism, ...]
) -> list[SpendingPoint]:
    """Priced as the study itself is, on top of what its search was charged; what cannot be priced is left out."""
    whole = Mechanism.from_json(json.loads(held.event))
    # What a study that ended did not use was given back: nothing is spent beyond its charges.
    end = held.reserved_steps if held.state == "open" else held.charged_steps
    evenly = {round(end * part / SPENDING_POINTS) for part in range(1, SPENDING_POINTS + 1)}
    privacy = study.plan["privacy"]
    delta, accountant = privacy["delta"], Accountant(privacy["accountant"])
    start = _epsilon(searched, delta, accountant) if searched else 0.0
    points = [] if start is None else [SpendingPoint(charged_steps=0, epsilon=start)]
    for steps in sorted({*evenly, held.charged_steps} - {0}):
        epsilon = _epsilon((whole.with_steps(steps), *searched), delta, accountant)
        if epsilon is not None:
            points.append(SpendingPoint(charged_steps=steps, epsilon=epsilon))
    return points


@lru_cache(maxsize=4096)
def _epsilon(
    mechanisms: tuple[Mechanism, ...], delta: float, accountant: Accountant
) -> float | None:
    try:
        return price(mechanisms, delta=delta, accountant=accountant).epsilon
    except AccountantError:
        return None


def _learning_rates(run: Run) -> list[RatePoint]:
    """Of the run's own configuration: no look at what it does."""
    if not run.steps:
        return []
    config = TrainerConfig.model_validate(run.assignment["trainer"])
    stride = -(-run.steps // RATE_POINTS)
    shown = sorted({*range(0, run.steps, stride), run.steps - 1})
    return [
        RatePoint(
            step=step, learning_rate=scheduled_learning_rate(config, step=step, steps=run.steps)
        )
        for step in shown
    ]


def _thinned(points: Sequence[T]) -> list[T]:
    """At most so many, evenly, the last among them."""
    if not points:
        return []
    stride = -(-len(points) // MAX_POINTS)
    return [*points[:-1:stride], points[-1]]
