"""Heats: whose searches begin with one, what the plan says of it, and that the budget holds it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tan_core.planner import in_parts, may_climb, plan_study
from tan_core.planner.plan import Plan
from tan_core.spec import StudySpec
from tan_core.wire import CurvePoint, RungScore, TrialRecord, TrialState

STEPS, HEAT, BATCH = 200, 50, 128
NUM_TRIALS = 10


def planned(*, model: Any = "tanh-cnn", train: Any = None, **search: Any) -> Plan:
    spec = StudySpec.model_validate(
        {
            "name": "heats",
            "privacy": {"epsilon": 3.0, "delta": 1e-5},
            "dataset": "private",
            "model": {"name": model} if isinstance(model, str) else model,
            "search": {
                "accounting": "declared_unaccounted",
                "space": {"learning_rate": {"low": 0.1, "high": 10.0, "log": True}},
                **search,
            },
            "train": {"batch_size": 2048, "steps": STEPS, **(train or {})},
        }
    )
    return plan_study(spec, num_examples=45_000)


CLASSIFIER = {
    "name": "tanh-cnn",
    "pretrained": {"path": "/a.pt", "data": "public", "train": "classifier"},
}


class TestPlan:
    @pytest.mark.slow
    def test_a_network_begins_with_the_first_quarter_of_four_times_the_batch(self) -> None:
        whole, heated = planned(model="linear"), planned()

        assert [rung.expected_batch_size for rung in whole.simulations] == [32, 128]
        assert whole.heat is None
        (rung,) = heated.simulations
        assert (rung.expected_batch_size, rung.steps, rung.trials) == (BATCH, STEPS, 24)
        assert heated.heat is not None
        assert heated.heat.steps == HEAT
        assert heated.confirmation_batch == whole.confirmation_batch == 512

    @pytest.mark.slow
    def test_its_cost_is_that_of_the_heat_and_of_what_goes_on(self) -> None:
        plan = planned()

        assert plan.heat is not None
        expected = BATCH * (24 * HEAT + plan.heat.trials * (STEPS - HEAT))
        assert plan.cost.search_examples == pytest.approx(expected, rel=0.01)
        assert plan.cost.search_examples + 512 * STEPS <= plan.cost.private_run_examples

    def test_with_few_trials_the_rungs_above_stay(self) -> None:
        plan = planned(trials=4)

        assert [rung.expected_batch_size for rung in plan.simulations] == [128, 512]
        assert plan.simulations[0].trials == 4
        assert plan.heat is not None
        assert plan.simulations[1].trials < plan.heat.trials < 4

    @pytest.mark.parametrize(
        "changes",
        [
            {"model": "linear"},
            {"model": "scatter-linear"},
            {"model": CLASSIFIER},
            {"rungs": [32, 128]},
            {"trials": 4, "accounting": "accounted"},
            {"train": {"steps": 31}},
            {"train": {"batch_size": 8192}},
            {"train": {"batch_size": 256}},
            {"train": {"steps": "auto"}, "space": {"steps": {"choices": [24, 300]}}},
        ],
        ids=[
            *("linear", "features", "fine-tuned classifier", "given rungs", "accounted"),
            *("few steps", "large batch", "one rung would be left", "few steps searched"),
        ],
    )
    def test_others_begin_with_whole_simulations(self, changes: dict[str, Any]) -> None:
        plan = planned(**changes)

        assert plan.heat is None
        assert "heat" not in plan.model_dump(mode="json")

    @pytest.mark.parametrize("train", ["all", "biases"])
    def test_more_than_the_classifier_of_a_checkpoint_is_a_network(self, train: str) -> None:
        tuned = {**CLASSIFIER, "pretrained": {**CLASSIFIER["pretrained"], "train": train}}

        assert planned(model=tuned).heat is not None

    def test_a_plan_of_before_has_none(self) -> None:
        stored = planned(model="linear").model_dump(mode="json")

        assert Plan.model_validate(stored).heat is None


def score(accuracy: float | None, *curve: float, heat: bool = False, steps: int | None = None) -> RungScore:  # fmt: skip
    """At the first rung, as far as its curve goes."""
    return RungScore(
        rung=0,
        expected_batch_size=BATCH,
        noise_multiplier=0.1,
        steps=HEAT * len(curve) if steps is None else steps,
        accuracy=accuracy,
        seconds=1.0,
        heat=heat,
        curve=[CurvePoint(step=HEAT * n, accuracy=point) for n, point in enumerate(curve, 1)],
    )


def trial(number: int, *scores: RungScore, state: TrialState = TrialState.RUNNING) -> TrialRecord:
    return TrialRecord(number=number, state=state, params={"n": number}, scores=list(scores))


class TestParts:
    @pytest.mark.parametrize(
        ("whole", "parts"),
        [
            (score(0.3, 0.3, heat=True), [(0, 0.3, HEAT)]),
            (score(0.6, 0.3, 0.4, 0.5, 0.6), [(0, 0.3, HEAT), (1, 0.6, 3 * HEAT)]),
            (score(None, 0.3, 0.1), [(0, 0.3, HEAT), (1, None, HEAT)]),
            (score(None, 0.3, steps=HEAT + 7), [(0, 0.3, HEAT), (1, None, 7)]),
            (score(None, 0.1), [(0, None, HEAT)]),
            (score(None, steps=9), [(0, None, 9)]),
        ],
        ids=["heat", "whole", "diverged", "not finite after the heat", "chance", "not finite"],
    )
    def test_a_heat_is_a_rung_of_its_own(self, whole: RungScore, parts: list[Any]) -> None:
        found = in_parts(trial(0, whole))

        assert [(each.rung, each.accuracy, each.steps) for each in found.scores] == parts
        assert found.examples == trial(0, whole).examples

    def test_rungs_above_it_are_one_higher(self) -> None:
        above = score(0.7, 0.4, 0.5, 0.6, 0.7).model_copy(update={"rung": 1})

        found = in_parts(trial(0, score(0.6, 0.3, 0.4, 0.5, 0.6), above))

        assert [each.rung for each in found.scores] == [0, 1, 2]


def asked(newest: TrialRecord, *others: TrialRecord, max_examples: int) -> bool:
    return may_climb(
        newest,
        others,
        rungs=[BATCH],
        num_trials=NUM_TRIALS,
        max_examples=max_examples,
        repetition=512,
        heated_steps=STEPS,
    )


FIRSTS, REST = NUM_TRIALS * BATCH * HEAT, BATCH * (STEPS - HEAT)
LEAST = FIRSTS + REST + 512 * STEPS
"""All heats, one that goes on, and one confirmation."""


class TestBudget:
    def test_the_first_goes_on_whatever_it_costs(self) -> None:
        assert asked(trial(0, score(0.3, 0.3, heat=True)), max_examples=0)

    def test_the_best_goes_on_while_there_is_room_and_not_an_example_longer(self) -> None:
        first = trial(0, score(0.6, 0.3, 0.4, 0.5, 0.6), state=TrialState.COMPLETED)
        best = trial(1, score(0.4, 0.4, heat=True))

        assert asked(best, first, max_examples=LEAST + REST)
        assert not asked(best, first, max_examples=LEAST + REST - 1)

    def test_what_goes_on_beside_it_is_paid(self) -> None:
        beside = trial(0, score(0.3, 0.3, heat=True))
        # It passed its heat and is under way: by now it has a place in the rest of its rung.
        best = trial(1, score(0.4, 0.4, heat=True))

        assert not asked(best, beside, max_examples=LEAST)

    def test_odd_steps_are_held_too(self) -> None:
        steps, heat = 203, 50
        first = trial(0, score(0.6, 0.3, 0.4, 0.5, 0.6, steps=steps), state=TrialState.COMPLETED)
        best = trial(1, score(0.4, 0.4, heat=True))
        needed = NUM_TRIALS * BATCH * heat + 2 * BATCH * (steps - heat) + 512 * steps

        for less in (0, 1):
            assert may_climb(
                best,
                [first],
                rungs=[BATCH],
                num_trials=NUM_TRIALS,
                max_examples=needed - less,
                repetition=512,
                heated_steps=steps,
            ) == (less == 0)


@given(
    found=st.lists(st.integers(0, 100), min_size=NUM_TRIALS, max_size=NUM_TRIALS),
    workers=st.integers(1, 4),
    extra=st.integers(0, 4 * REST),
    draw=st.data(),
)
def test_a_search_never_processes_more(
    found: list[int], workers: int, extra: int, draw: st.DataObject
) -> None:
    """Every trial wants to go on; workers take them in turn and end their parts in any order."""
    max_examples = LEAST + extra
    records: dict[int, TrialRecord] = {}
    active: list[int] = []
    while len(records) < NUM_TRIALS or active:
        if len(records) < NUM_TRIALS and len(active) < workers:
            active.append(len(records))
            records[active[-1]] = trial(active[-1])
            continue
        number = draw.draw(st.sampled_from(active))
        reached = found[number] / 100
        others = [each for each in records.values() if each.number != number]
        heat = trial(number, score(reached, reached, heat=True))
        if not records[number].scores and asked(heat, *others, max_examples=max_examples):
            records[number] = heat
            continue
        ends = heat
        if records[number].scores:
            ends = trial(number, score(reached, reached, reached, reached, reached))
        state = TrialState.COMPLETED if records[number].scores else TrialState.PRUNED
        records[number] = ends.model_copy(update={"state": state})
        active.remove(number)

    assert any(each.state is TrialState.COMPLETED for each in records.values())
    spent = sum(each.examples for each in records.values())
    assert spent + 512 * STEPS <= max_examples
