"""How a budget was used up: the journal folded entry by entry, priced at some of them."""

import asyncio
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from service.ledger import renyi, repository
from service.ledger.schemas import Burndown, BurndownPoint, Entry, Head, Scope
from service.ledger.service import merge
from tan_core.accounting import price
from tan_core.mechanism import Mechanism

MAX_POINTS = 100
MOVES = frozenset({"reserve", "begin", "release"})
"""The kinds of entries after which the budget stands elsewhere."""
_cache: dict[str, Burndown] = {}
"""The newest one of each scope: it holds as long as the head does."""


async def burndown(session: AsyncSession, scope_id: str) -> Burndown:
    """The scope's burn-down up to its head."""
    head = await repository.head(session, scope_id)
    known = _cache.get(scope_id)
    if known is None or known.head != head:
        scope = await repository.scope(session, scope_id)
        entries = await repository.entries(session, scope_id)
        known = await asyncio.to_thread(compute, scope, head, entries)
        _cache[scope_id] = known
    return known


def compute(scope: Scope, head: Head, entries: Sequence[Entry]) -> Burndown:
    """Fold the entries, and price where the budget stood after at most ``MAX_POINTS`` of them."""
    moves = [place for place, entry in enumerate(entries) if entry.kind in MOVES]
    stride = max(1, -(-len(moves) // MAX_POINTS))
    shown = {0, *moves[::-1][::stride]} if entries else set[int]()
    held: dict[str, _Held] = {}
    points: list[BurndownPoint] = []
    for place, entry in enumerate(entries):
        body = json.loads(entry.body)
        _fold(held, entry, body)
        if place in shown:
            points.append(_point(scope, entry.seq, body["at"], held))
    return Burndown(
        scope_id=scope.scope_id, budget_epsilon=scope.epsilon, delta=scope.delta, accountant="rdp",
        head=head, points=points,
    )  # fmt: skip


class _Held:
    """What one reservation holds and was charged, in steps."""

    def __init__(self, study: str, mechanism: Mechanism) -> None:
        self.study, self.mechanism = study, mechanism
        self.committed, self.charged = mechanism.steps, 0


def _fold(held: dict[str, _Held], entry: Entry, body: dict[str, Any]) -> None:
    name = entry.reservation_id or ""
    match entry.kind:
        case "reserve":
            held[name] = _Held(body["study"], Mechanism.from_json(body["event"]))
        case "begin":
            held[name].charged += body["num_steps"]
        case "release":
            held[name].committed -= body["released_steps"]
        case _:
            pass


def _point(scope: Scope, seq: int, at: str, held: dict[str, _Held]) -> BurndownPoint:
    charged: dict[str, list[Mechanism]] = {}
    for each in held.values():
        if each.charged:
            charged.setdefault(each.study, []).append(each.mechanism.with_steps(each.charged))
    committed = [
        each.mechanism.with_steps(each.committed) for each in held.values() if each.committed
    ]
    everything = [mechanism for mechanisms in charged.values() for mechanism in mechanisms]
    return BurndownPoint.model_validate(
        {
            "seq": seq,
            "at": at,
            "committed_epsilon": _epsilon(merge(committed), scope),
            "charged_epsilon": _epsilon(merge(everything), scope),
            "by_study": {
                study: _epsilon(merge(mechanisms), scope) for study, mechanisms in charged.items()
            },
        }
    )


def _epsilon(merged: tuple[Mechanism, ...], scope: Scope) -> float:
    """By Rényi divergences where they are known: a bound above PLD's, a thousand times as fast."""
    if all(renyi.divergences(mechanism.with_steps(1)) for mechanism in merged):
        return renyi.epsilon(merged, order=scope.filter_order, delta=scope.delta)
    return _by_pld(merged, scope.delta)


@lru_cache(maxsize=1024)
def _by_pld(merged: tuple[Mechanism, ...], delta: float) -> float:
    return price(merged, delta=delta).epsilon
