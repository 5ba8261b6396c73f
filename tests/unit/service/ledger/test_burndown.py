"""The budget over time, from a journal alone."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from service.ledger import burndown, renyi
from service.ledger.schemas import Entry, Head, Scope
from tan_core.accounting import price
from tan_core.mechanism import Mechanism, NeighboringRelation, Sampling

STEP = Mechanism(sampling_rate=0.02, noise_multiplier=2.0, clip_norm=1.0, steps=1)
OTHER = Mechanism(sampling_rate=0.01, noise_multiplier=3.0, clip_norm=1.0, steps=1)
SCOPE = Scope(
    scope_id="x", name="x", unit="record", neighboring_relation=STEP.neighboring_relation,
    epsilon=10.0, delta=1e-5,
)  # fmt: skip


def journal(*moves: tuple[str, str | None, dict[str, Any]]) -> list[Entry]:
    return [
        Entry(
            seq=seq, kind=kind, reservation_id=name, prev_hash="", hash="",  # type: ignore[arg-type]
            body=json.dumps({"at": "2026-11-21T12:00:00Z", **body}),
        )
        for seq, (kind, name, body) in enumerate((("open", None, {}), *moves), start=1)
    ]  # fmt: skip


def reserve(name: str, study: str, mechanism: Mechanism) -> tuple[str, str, dict[str, Any]]:
    return "reserve", name, {"study": study, "event": mechanism.to_json()}


def begin(name: str, steps: int) -> tuple[str, str, dict[str, Any]]:
    return "begin", name, {"num_steps": steps}


def epsilon(*mechanisms: Mechanism) -> float:
    return renyi.epsilon(mechanisms, order=None, delta=1e-5)


def test_every_point_is_what_the_entries_up_to_it_come_to() -> None:
    entries = journal(
        reserve("a", "s1", STEP.with_steps(100)),
        begin("a", 30),
        reserve("b", "s2", STEP.with_steps(50)),
        reserve("c", "s1", OTHER.with_steps(40)),
        begin("c", 10),
        begin("b", 20),
        ("release", "a", {"released_steps": 70}),
        begin("b", 5),
    )
    points = burndown.compute(SCOPE, Head(seq=len(entries), hash=""), entries).points
    assert [point.seq for point in points] == list(range(1, 10))
    assert (points[0].committed_epsilon, points[0].by_study) == (0.0, {})
    assert points[4].committed_epsilon == epsilon(STEP.with_steps(150), OTHER.with_steps(40))
    assert points[4].by_study == {"s1": epsilon(STEP.with_steps(30))}
    last = points[-1]
    assert last.committed_epsilon == epsilon(STEP.with_steps(80), OTHER.with_steps(40))
    assert last.charged_epsilon == epsilon(STEP.with_steps(55), OTHER.with_steps(10))
    assert last.by_study == {
        "s1": epsilon(STEP.with_steps(30), OTHER.with_steps(10)),
        "s2": epsilon(STEP.with_steps(25)),
    }


def test_it_says_whose_figures_they_are() -> None:
    """What is held without a Rényi bound is priced by PLD, and no bound that lies above PLD's."""
    capped = replace(
        STEP, neighboring_relation=NeighboringRelation.ZERO_OUT, sampling=Sampling.TRUNCATED_POISSON,
        num_examples=1000, max_batch_size=60, steps=20,
    )  # fmt: skip
    entries = journal(reserve("a", "s1", STEP.with_steps(100)))
    bounded = burndown.compute(SCOPE, Head(seq=2, hash=""), entries)
    assert bounded.accountant == "rdp"
    scope = SCOPE.model_copy(update={"neighboring_relation": capped.neighboring_relation})
    entries = journal(reserve("b", "s2", capped), begin("b", 20))
    priced = burndown.compute(scope, Head(seq=3, hash=""), entries)
    assert priced.accountant == "pld"
    assert priced.points[-1].charged_epsilon == price([capped], delta=1e-5).epsilon


def test_few_points_are_priced_by_pld() -> None:
    """A page waits for them, and asks again after every segment of a run."""
    replaced = replace(STEP, neighboring_relation=NeighboringRelation.REPLACE_ONE)
    scope = SCOPE.model_copy(update={"neighboring_relation": replaced.neighboring_relation})
    entries = journal(reserve("a", "s1", replaced.with_steps(60)), *[begin("a", 1)] * 60)
    found = burndown.compute(scope, Head(seq=len(entries), hash=""), entries)
    assert len(found.points) <= burndown.MAX_PRICED_POINTS + 1
    assert [found.points[0].seq, found.points[-1].seq] == [1, len(entries)]
    assert found.points[-1].charged_epsilon == price([replaced.with_steps(60)], delta=1e-5).epsilon


def test_a_study_is_priced_when_it_was_charged_and_not_at_every_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    studies = 60
    entries = journal(
        *(
            move
            for n in range(studies)
            for move in (reserve(f"r{n}", f"s{n}", STEP.with_steps(9)), begin(f"r{n}", 1))
        )
    )
    priced: list[tuple[Mechanism, ...]] = []
    monkeypatch.setattr(burndown, "_epsilon", lambda merged, _: priced.append(merged) or 1.0)
    found = burndown.compute(SCOPE, Head(seq=len(entries), hash=""), entries)
    assert len(found.points[-1].by_study) == studies
    assert len(priced) == studies + 2 * len(found.points)


@pytest.mark.parametrize("moves", [1, 2, 99, 100, 101, 200, 201, 777])
def test_points_stay_where_they_are_when_the_budget_moves(moves: int) -> None:
    """What was priced for a page is priced for the next one too, but for the last point."""
    before, after = (burndown._shown(range(1, count + 1), 100) for count in (moves, moves + 1))
    assert {0, moves} <= before
    assert len(before) <= 101 + 1
    if moves not in (100, 200):  # where every second one is left out from now on
        assert before - {moves} <= after


def test_what_is_spent_is_summed_mechanism_by_mechanism_at_every_order() -> None:
    capped = replace(
        STEP, neighboring_relation=NeighboringRelation.ZERO_OUT, sampling=Sampling.TRUNCATED_POISSON,
        num_examples=1000, max_batch_size=60, steps=20,
    )  # fmt: skip
    runs = [STEP.with_steps(70), OTHER.with_steps(300), replace(OTHER, noise_multiplier=0.3)]
    for order in (*renyi.ORDERS, None):
        places = [renyi.ORDERS.index(order)] if order else range(len(renyi.ORDERS))
        by_hand = []
        for place in places:
            spent = 0.0
            for run in runs:
                known = renyi.divergences(run)
                assert known is not None
                one = known[place]
                spent += math.inf if one is None else run.steps * one
            alpha = renyi.ORDERS[place]
            by_hand.append(
                max(0.0, spent + math.log1p(-1 / alpha) - math.log(1e-5 * alpha) / (alpha - 1))
            )
        assert renyi.epsilon(runs, order=order, delta=1e-5) == min(by_hand)
    assert renyi.epsilon([*runs, capped], order=None, delta=1e-5) == math.inf
