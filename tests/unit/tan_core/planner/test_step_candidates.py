import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tan_core.accounting import price
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tan_core.planner import Plan, calibration, plan_mechanism, plan_study, reserved_mechanism
from tan_core.planner import privacy as privacy_section
from tan_core.spec import StudySpec
from tan_core.tan import Setting, trade_steps_for_noise

N = 50_000


@pytest.fixture(autouse=True, scope="module")
def _two_voices() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(privacy_section, "PRV_MAX_EPSILON", 0.0)
        yield


def planned(*, steps: int = 2500, sigma: float = 3.0, batch: float = 4096, **more: Any) -> Plan:
    return plan_mechanism(
        num_examples=N,
        expected_batch_size=batch,
        noise_multiplier=sigma,
        steps=steps,
        delta=1e-5,
        **more,
    )


def study(**changes: Any) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "study",
            "privacy": {"epsilon": 3.0, "delta": 1e-5, **changes.pop("privacy", {})},
            "dataset": "data",
            "model": {"name": "linear"},
            "search": {"accounting": "public_proxy", "space": {"learning_rate": 1.0}},
            "train": {"batch_size": 2048, "steps": 300, **changes},
        }
    )


def cost(plan: Plan, index: int, accountant: Accountant = Accountant.PLD) -> float:
    """Epsilon of a candidate with its slack."""
    one = plan.step_candidates[index]
    mechanism = Mechanism(
        sampling_rate=plan.reference.sampling_rate,
        noise_multiplier=one.noise_multiplier,
        clip_norm=1.0,
        steps=one.steps,
        neighboring_relation=plan.privacy.neighboring_relation,
    )
    return price([reserved_mechanism(mechanism)], delta=1e-5, accountant=accountant).epsilon


def test_the_reference_stands_in_the_middle_as_it_is() -> None:
    plan = planned()

    assert [one.steps for one in plan.step_candidates] == [625, 1250, 2500, 5000, 10_000]
    assert [one.reference for one in plan.step_candidates] == [False, False, True, False, False]
    reference = plan.step_candidates[2]
    assert reference.noise_multiplier == plan.reference.noise_multiplier
    assert reference.signal_to_noise == plan.privacy.signal_to_noise
    assert reference.overcharge == plan.privacy.overcharge
    assert reference.private_run_examples == plan.cost.private_run_examples


@pytest.mark.parametrize("accountant", [Accountant.PLD, Accountant.RDP])
def test_every_candidate_meets_the_reserved_epsilon_of_a_mechanism(accountant: Accountant) -> None:
    plan = planned(accountant=accountant)

    costs = [cost(plan, index, accountant) for index in range(5)]
    assert max(costs) <= costs[2]
    assert min(costs) > 0.998 * costs[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "relation", [NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE]
)
def test_a_candidate_is_the_plan_that_its_number_of_steps_would_get(
    relation: NeighboringRelation,
) -> None:
    options: dict[str, Any] = {"num_examples": N, "neighboring_relation": relation}
    plan = plan_study(study(), **options)

    for one in plan.step_candidates:
        own = plan_study(study(steps=one.steps), **options)
        assert own.reference.noise_multiplier == one.noise_multiplier
        assert own.privacy.signal_to_noise == one.signal_to_noise
        assert own.cost.private_run_examples == one.private_run_examples


def test_fixed_noise_spans_its_own_epsilon_and_not_the_target_above_it() -> None:
    plan = plan_study(study(noise_multiplier=4.0), num_examples=N)

    costs = [cost(plan, index) for index in range(5)]
    assert max(costs) <= costs[2] < 3.0


def test_more_steps_pay_less_overcharge_and_the_signal_grows() -> None:
    """At one epsilon: the wall falls behind, so a little more signal may be had."""
    candidates = planned().step_candidates

    ratios = [one.overcharge or math.nan for one in candidates]
    signals = [one.signal_to_noise for one in candidates]
    assert ratios == sorted(ratios, reverse=True)
    assert signals == sorted(signals)


def test_the_learning_rate_goes_as_in_the_constant_tan_move() -> None:
    setting = Setting(expected_batch_size=4096, noise_multiplier=3.0, steps=2500, learning_rate=1.0)

    for one in planned().step_candidates:
        moved = trade_steps_for_noise(setting, steps=one.steps)
        assert one.learning_rate_factor == pytest.approx(moved.learning_rate)
        assert one.private_run_examples == 4096 * one.steps


def test_a_run_that_is_hardly_private_has_no_other_candidates() -> None:
    assert [one.steps for one in planned(batch=256, sigma=0.1875).step_candidates] == [2500]


def test_prv_takes_its_hints_from_pld(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Accountant] = []

    def calibrate(*, accountant: Accountant, **_: Any) -> float:
        asked.append(accountant)
        return 5.0

    monkeypatch.setattr(calibration, "calibrate_noise_multiplier", calibrate)

    planned(accountant=Accountant.PRV)

    assert asked == [Accountant.PLD] * 4


@pytest.mark.slow
@settings(max_examples=10)
@given(steps=st.integers(1, 40), sigma=st.floats(1.0, 8.0), batch=st.sampled_from([8192, N]))
def test_steps_rise_and_there_is_one_reference(steps: int, sigma: float, batch: int) -> None:
    candidates = planned(steps=steps, sigma=sigma, batch=batch).step_candidates

    numbers = [one.steps for one in candidates]
    assert numbers == sorted(set(numbers))
    assert [one.steps for one in candidates if one.reference] == [steps]
