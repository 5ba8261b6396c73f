"""How long a budget takes to be priced that many unlike studies share.

    python benchmarks/budgets.py [--quick] [--json FILE]

A ledger of so many studies, no two of which have the same mechanism (sampling rates of 0.3 to 10 %, noise of 1.5 to 6, 100 to
3,000 steps), at delta = 1e-5. What is priced is what admission and the account ask for: all of it at first, as after a start; then
with each of five more studies; then with five more segments of one study. Each size has mechanisms of its own, so nothing is
remembered of the one before. The burn-down is of 20 segments of each study, and again after each of five more. Times are a processor's. The script asks
by names that are older than itself: at an earlier commit it measures that one (add it to the checkout).
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from _report import circumstances, row

from service.ledger import burndown
from service.ledger.schemas import Entry, Head, Scope
from tan_core.accounting import price
from tan_core.mechanism import Mechanism, NeighboringRelation

SIZES, QUICK_SIZES = (8, 20, 60, 200), (8, 20)
MORE = 5
SEGMENTS = 20
DELTA = 1e-5


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small ledgers, within a minute")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    options = parser.parse_args()
    price(studies(1, seed=1), delta=DELTA)  # imports are not part of an answer
    rows: list[dict[str, Any]] = []
    print(f"{circumstances()}\n")
    print("| ms | studies | at first | again: median | at worst |\n| --- | --- | --- | --- | --- |")
    for size in QUICK_SIZES if options.quick else SIZES:
        for what, ask in (
            ("one more study", one_more_study),
            ("one more segment", one_more_segment),
            ("burn-down, add_or_remove_one", burnt_down),
            ("burn-down, replace_one", burnt_down_by_pld),
        ):
            first, *again = [1000 * seconds for seconds in ask(size)]
            typical, worst = statistics.median(again), max(again)
            print(f"| {what} | {size} | {first:.0f} | {typical:.0f} | {worst:.0f} |", flush=True)
            rows.append(row(f"{what}, {size} studies: at first", first, "ms"))
            rows.append(row(f"{what}, {size} studies: again", typical, "ms"))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def studies(
    count: int,
    *,
    seed: int,
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> list[Mechanism]:
    """So many unlike mechanisms."""
    rng = random.Random(seed)
    return [
        Mechanism(
            sampling_rate=10 ** rng.uniform(-2.5, -1),
            noise_multiplier=rng.uniform(1.5, 6),
            clip_norm=1.0,
            steps=int(10 ** rng.uniform(2, 3.5)),
            neighboring_relation=relation,
        )
        for _ in range(count)
    ]


def one_more_study(size: int) -> list[float]:
    """Seconds of a processor: all, then with each of some more."""
    every = studies(size + MORE, seed=10 * size)
    return [_took(lambda: price(every[:size], delta=DELTA))] + [
        _took(lambda known=size + more: price(every[:known], delta=DELTA)) for more in range(1, MORE + 1)
    ]  # fmt: skip


def one_more_segment(size: int) -> list[float]:
    """Seconds of a processor: all, then with each of some more segments of one study."""
    *others, running = studies(size, seed=10 * size + 1)
    return [
        _took(lambda part=part: price([*others, running.with_steps(50 + part)], delta=DELTA))
        for part in range(MORE + 1)
    ]


def burnt_down(size: int) -> list[float]:
    """Seconds, where Rényi bounds are known."""
    return _burnt_down(studies(size, seed=10 * size + 2))


def burnt_down_by_pld(size: int) -> list[float]:
    """Seconds, where none is."""
    replaced = NeighboringRelation.REPLACE_ONE
    return _burnt_down(studies(size, seed=10 * size + 3, relation=replaced))


def _burnt_down(every: Sequence[Mechanism]) -> list[float]:
    relation = every[0].neighboring_relation
    scope = Scope(
        scope_id="x", name="x", unit="record", neighboring_relation=relation, epsilon=1e3, delta=DELTA
    )  # fmt: skip
    moves = [
        move
        for number, whole in enumerate(every)
        for move in (
            ("reserve", number, {"study": str(number), "event": whole.to_json()}),
            *[("begin", number, {"num_steps": whole.steps // SEGMENTS})] * SEGMENTS,
        )
    ]
    entries = [_entry(seq, kind, name, body) for seq, (kind, name, body) in enumerate(moves, 1)]
    took: list[float] = []
    for _ in range(MORE + 1):
        head = Head(seq=len(entries), hash="")
        took.append(_took(partial(burndown.compute, scope, head, entries)))
        entries.append(_entry(len(entries) + 1, "begin", len(every) - 1, {"num_steps": 1}))
    return took


def _entry(seq: int, kind: str, name: int, body: dict[str, Any]) -> Entry:
    body = {"at": "2026-11-30T12:00:00Z", **body}
    return Entry.model_validate(
        {"seq": seq, "kind": kind, "reservation_id": str(name), "prev_hash": "", "hash": "", "body": json.dumps(body)}
    )  # fmt: skip


def _took(ask: Callable[[], object]) -> float:
    start = time.process_time()
    ask()
    return time.process_time() - start


if __name__ == "__main__":
    main()
