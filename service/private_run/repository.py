"""Queries over the course of a private run."""

import json
from datetime import datetime
from itertools import accumulate

from sqlalchemy import Double, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Event
from service.private_run.schemas import Segment, StepPoint

_BEGUN = text(
    "SELECT body FROM ledger_entry WHERE reservation_id = :held AND kind = 'begin' ORDER BY seq"
)


async def progress(session: AsyncSession, study_id: str) -> list[StepPoint]:
    """What the drivers reported, in order of time."""
    rows = await session.execute(
        select(
            Event.at,
            Event.data["step"].as_integer(),
            Event.data["steps_per_second"].astext.cast(Double),
        )
        .where(Event.study_id == study_id, Event.kind == "step")
        .order_by(Event.seq)
    )
    return [
        StepPoint(at=at, step=step, steps_per_second=steps_per_second)
        for at, step, steps_per_second in rows
    ]


async def segments(session: AsyncSession, reservation_id: str) -> list[Segment]:
    """What was charged to a reservation, in order of time."""
    rows = await session.execute(_BEGUN, {"held": reservation_id})
    bodies = [json.loads(body) for (body,) in rows]
    charged = accumulate(body["num_steps"] for body in bodies)
    return [
        Segment(
            at=datetime.fromisoformat(body["at"]),
            start_step=body["start_step"],
            num_steps=body["num_steps"],
            charged_steps=so_far,
        )
        for body, so_far in zip(bodies, charged, strict=True)
    ]
