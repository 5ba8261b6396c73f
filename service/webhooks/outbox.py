"""The outbox: a delivery for each message and address, taken, tried and finished.

The events of studies are the messages: whatever state was committed has one. A delivery that is taken is
out of the others' sight for a while; whoever took it and died loses it to the next.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import exists, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from service.db.clock import clock
from service.db.tables import Event, Study, WebhookDelivery
from service.webhooks.targets import Target

STATES = ("completed", "failed", "cancelled", "awaiting_approval")
LIFETIME = timedelta(days=1)
"""After which a message is given up."""
FIRST_PAUSE = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(hours=1)
IN_FLIGHT = timedelta(seconds=60)
"""How long a taken delivery is left to whoever took it; longer than any try may take."""


async def fill(session: AsyncSession, targets: Iterable[Target]) -> None:
    """A delivery for each address and each time in the last day that a state worth a message was reached.

    A study that is paused in it says its state again, which is no news. One that has left it since may wait for a
    person once more: for the private run after its search. So may one whose promotion met a full budget, anew.
    """
    left = aliased(Event)
    for target in targets:
        known = select(WebhookDelivery.id).where(
            WebhookDelivery.study_id == Event.study_id,
            WebhookDelivery.event == Event.data["state"].astext,
            WebhookDelivery.target == target.id,
            or_(Event.data["anew"].astext.is_(None), WebhookDelivery.seq == Event.seq),
            ~exists(left.seq)
            .where(
                left.study_id == Event.study_id,
                left.kind == "state",
                left.seq > WebhookDelivery.seq,
                left.seq < Event.seq,
                left.data["state"].astext != Event.data["state"].astext,
            )
            .correlate(Event, WebhookDelivery),
        )
        found = await session.execute(
            select(Event, Study.name, Study.dataset)
            .join(Study, Study.id == Event.study_id)
            .where(
                Event.kind == "state",
                Event.at > func.now() - LIFETIME,
                Event.data["state"].astext.in_(STATES),
                ~known.exists(),
            )
            .order_by(Event.at, Event.seq)
            .limit(200)
        )
        told: set[tuple[str, str]] = set()
        for event, name, dataset in found:
            news = (event.study_id, event.data["state"])
            if news in told:
                continue  # the next look tells whether it is the same time
            told.add(news)
            await session.execute(
                insert(WebhookDelivery)
                .values(_row(event, name, dataset, target))
                .on_conflict_do_nothing()
            )


async def take(session: AsyncSession, target: Target, *, limit: int) -> Sequence[WebhookDelivery]:
    """Deliveries to the address that are due, for the caller alone until ``IN_FLIGHT`` has passed.

    One that is due later than any is put off to was put off before the clock was put back.
    """
    at = WebhookDelivery.next_try_at
    due = (
        select(WebhookDelivery.id)
        .where(
            WebhookDelivery.state == "pending",
            WebhookDelivery.target == target.id,
            or_(at <= func.now(), at > func.now() + 2 * LONGEST_PAUSE),
        )
        .order_by(at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    taken = await session.scalars(
        update(WebhookDelivery)
        .where(WebhookDelivery.id.in_(due.scalar_subquery()))
        .values(next_try_at=func.now() + IN_FLIGHT, tries=WebhookDelivery.tries + 1)
        .returning(WebhookDelivery)
    )
    return taken.all()


async def give_up_others(session: AsyncSession, targets: Iterable[Target]) -> None:
    """Give up after a day what goes to none of the addresses.

    No sooner: another orchestrator may have been told of its address before this one.
    """
    await session.execute(
        update(WebhookDelivery)
        .where(
            WebhookDelivery.state == "pending",
            WebhookDelivery.target.not_in([target.id for target in targets]),
            WebhookDelivery.created_at < func.now() - LIFETIME,
        )
        .values(
            state="given_up", finished_at=func.now(), answer="its address is no longer configured"
        )
    )


async def finish(
    session: AsyncSession, delivery_id: str, answer: str, *, is_accepted: bool
) -> None:
    """Write down how a try went: accepted, given up, or to be tried again."""
    delivery = await session.get(WebhookDelivery, delivery_id, with_for_update=True)
    if delivery is None or delivery.state != "pending":
        return
    now = await clock(session)
    delivery.answer = answer
    if is_accepted:
        delivery.state, delivery.finished_at = "delivered", now
    elif now - delivery.created_at > LIFETIME:
        delivery.state, delivery.finished_at = "given_up", now
    else:
        delivery.next_try_at = now + pause_after(delivery.tries)


def pause_after(tries: int) -> timedelta:
    """Before the next try: five seconds, then twice as long each time, an hour at most."""
    return min(FIRST_PAUSE * 2 ** min(tries - 1, 20), LONGEST_PAUSE)


def _row(event: Event, name: str, dataset: str, target: Target) -> dict[str, Any]:
    state = event.data["state"]
    seq = str(event.seq)
    message_id = f"m-{_digest(event.study_id, state, seq)}"
    body = {
        "id": message_id,
        "type": f"study.{state}",
        "at": event.at.isoformat(),
        "study": {
            "id": event.study_id,
            "name": name,
            "dataset": dataset,
            "state": state,
            "reason": event.data["reason"],
        },
    }
    return {
        "id": f"d-{_digest(event.study_id, state, seq, target.id)}",
        "study_id": event.study_id,
        "event": state,
        "seq": event.seq,
        "target": target.id,
        "host": target.host,
        "body": json.dumps(body, ensure_ascii=False, separators=(",", ":")),
        "state": "pending",
    }


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]
