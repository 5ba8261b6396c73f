"""How a budget was used up: the journal folded entry by entry, priced at some of them."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from service.ledger import renyi, repository
from service.ledger.schemas import Burndown, BurndownPoint, Entry, Head, Scope
from service.ledger.service import merge
from tan_core.accounting import price
from tan_core.accounting.events import repeated
from tan_core.mechanism import Accountant, Mechanism

MAX_POINTS = 100
MAX_PRICED_POINTS = 8
"""Where something has no Rényi bound: PLD takes a tenth of a second over each figure, and at first longer the more mechanisms are unlike."""
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
    return known.model_copy(update=dict(await repository.beside(session, scope_id)))


def compute(scope: Scope, head: Head, entries: Sequence[Entry]) -> Burndown:
    """Fold the entries, and price where the budget stood after at most ``MAX_POINTS`` of them, or ``MAX_PRICED_POINTS``."""
    moves = [place for place, entry in enumerate(entries) if entry.kind in MOVES]
    bodies = [json.loads(entry.body) for entry in entries]
    wholes = {
        entry.seq: Mechanism.from_json(body["event"])
        for entry, body in zip(entries, bodies, strict=True)
        if entry.kind == "reserve"
    }
    is_bounded = _are_bounded(set(wholes.values()))
    shown = (
        _shown(moves, MAX_POINTS if is_bounded else MAX_PRICED_POINTS) if entries else set[int]()
    )
    books = _Books(scope, wholes)
    points: list[BurndownPoint] = []
    for place, (entry, body) in enumerate(zip(entries, bodies, strict=True)):
        books.enter(entry, body)
        if place in shown:
            points.append(books.point(entry.seq, body["at"]))
    return Burndown(
        scope_id=scope.scope_id, budget_epsilon=scope.epsilon, delta=scope.delta,
        accountant=books.accountant.value, head=head, points=points,
    )  # fmt: skip


def _shown(moves: Sequence[int], most: int) -> set[int]:
    """The first entry, the last move, and every so many moves: the same ones after the next move, whose figures are known then."""
    stride = 1
    while len(moves) > most * stride:
        stride *= 2
    return {0, *moves[stride - 1 :: stride], *moves[-1:]}


class _Books:
    """Steps of every mechanism by now. A study is priced again only where it was charged since."""

    def __init__(self, scope: Scope, wholes: Mapping[int, Mechanism]) -> None:
        self._scope = scope
        self._wholes = wholes
        self._held: dict[str, tuple[str, Mechanism]] = {}
        self._committed = Counter[Mechanism]()
        self._charged = Counter[Mechanism]()
        self._of_study: dict[str, Counter[Mechanism]] = {}
        self._epsilon_of_study: dict[str, float] = {}
        self._moved: set[str] = set()

    def enter(self, entry: Entry, body: dict[str, Any]) -> None:
        """Fold one entry."""
        name = entry.reservation_id or ""
        if entry.kind == "reserve":
            whole = self._wholes[entry.seq]
            self._held[name] = body["study"], whole.with_steps(1)
            self._committed[whole.with_steps(1)] += whole.steps
        elif entry.kind == "begin":
            study, step = self._held[name]
            self._charged[step] += body["num_steps"]
            self._of_study.setdefault(study, Counter())[step] += body["num_steps"]
            self._moved.add(study)
        elif entry.kind == "release":
            self._committed[self._held[name][1]] -= body["released_steps"]

    def point(self, seq: int, at: str) -> BurndownPoint:
        """Where the budget stands now."""
        for study in self._moved:
            self._epsilon_of_study[study] = self._price(self._of_study[study])
        self._moved.clear()
        return BurndownPoint.model_validate(
            {
                "seq": seq,
                "at": at,
                "committed_epsilon": self._price(self._committed),
                "charged_epsilon": self._price(self._charged),
                "by_study": dict(self._epsilon_of_study),
            }
        )

    @property
    def accountant(self) -> Accountant:
        """Whose figures are those of the last point."""
        held = [step for step, count in self._committed.items() if count]
        return Accountant.RDP if _are_bounded(held) else Accountant.PLD

    def _price(self, steps: Counter[Mechanism]) -> float:
        merged = merge(part for step, count in steps.items() for part in repeated(step, count))
        return _epsilon(merged, self._scope)


def _are_bounded(mechanisms: Iterable[Mechanism]) -> bool:
    return all(map(renyi.divergences, mechanisms))


def _epsilon(merged: tuple[Mechanism, ...], scope: Scope) -> float:
    """By Rényi divergences where they are known: a bound above PLD's, a thousand times as fast."""
    if _are_bounded(merged):
        return renyi.epsilon(merged, order=scope.filter_order, delta=scope.delta)
    return _by_pld(merged, scope.delta)


@lru_cache(maxsize=4096)
def _by_pld(merged: tuple[Mechanism, ...], delta: float) -> float:
    return price(merged, delta=delta).epsilon
