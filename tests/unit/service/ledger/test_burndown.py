"""The budget over time, from a journal alone."""

import json
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
