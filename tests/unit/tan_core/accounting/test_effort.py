"""Accountants stop when their time is used up, and say nothing that was not confirmed."""

import math
import time

import pytest

from tan_core.accounting import calibrate_noise_multiplier, effort, loss_distribution, pld, price
from tan_core.accounting.effort import (
    check_effort,
    limited_effort,
    remaining_effort,
    spare_effort,
    spent_elsewhere,
)
from tan_core.errors import AccountantError, TooHardError
from tan_core.mechanism import Accountant, Mechanism
from tan_core.planner import plan_mechanism


def run(sampling_rate: float, noise_multiplier: float, steps: int) -> Mechanism:
    return Mechanism(
        sampling_rate=sampling_rate, noise_multiplier=noise_multiplier, clip_norm=1.0, steps=steps
    )


def test_nobody_set_a_limit() -> None:
    check_effort("pld")
    assert remaining_effort() == math.inf


def test_it_is_processor_time_that_counts() -> None:
    with limited_effort(0.2):
        time.sleep(0.3)
        check_effort("pld")
        began = time.thread_time()
        while time.thread_time() < began + 0.25:
            pass
        with pytest.raises(TooHardError, match="rdp was stopped"):
            check_effort("rdp")
    check_effort("rdp")


def test_what_can_be_done_without_ends_sooner_and_child_processes_count_for_the_whole() -> None:
    with limited_effort(10.0):
        with spare_effort():
            assert 2.5 < remaining_effort() <= 10.0 * effort.SPARE_SHARE
            spent_elsewhere(5.0)
            assert remaining_effort() > 2.5
        assert remaining_effort() <= 5.0
        spent_elsewhere(5.0)
        with pytest.raises(TooHardError):
            check_effort("prv")


@pytest.mark.parametrize("accountant", Accountant)
def test_a_price_is_refused_without_any_time(accountant: Accountant) -> None:
    with limited_effort(0.0), pytest.raises(TooHardError, match="was stopped"):
        price([run(0.0123, 1.7, 77)], delta=1e-5, accountant=accountant)


def test_a_price_that_was_not_confirmed_is_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time ends between dp-accounting and the second voice."""

    def late(who: str) -> None:
        if who == "the loss distribution":
            raise TooHardError("too late")

    monkeypatch.setattr(loss_distribution, "check_effort", late)
    with pytest.raises(TooHardError, match="too late"):
        price([run(0.0124, 1.7, 77)], delta=1e-5)


def test_a_calibration_is_stopped_on_its_way() -> None:
    def many() -> None:
        for steps in range(1000, 2000):
            calibrate_noise_multiplier(sampling_rate=0.01, steps=steps, epsilon=3.0, delta=1e-5)

    with limited_effort(0.3), pytest.raises(TooHardError):
        many()


def test_a_composition_that_would_need_gigabytes_is_refused_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pld, "_of_event", lambda *_, **__: pytest.fail("composed"))
    with pytest.raises(AccountantError, match=r"points for 10,000,000 steps"):
        price([run(0.5, 0.02, 10_000_000)], delta=1e-5)


def test_what_no_delta_is_left_for_is_refused_before_it_is_composed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pld, "_composed", lambda _: pytest.fail("composed"))
    with pytest.raises(AccountantError, match="to round-off"):
        price([run(1e-9, 0.02, 10_000_000)], delta=1e-10)


@pytest.mark.slow
def test_a_plan_does_without_hints_that_take_too_long() -> None:
    asked = {
        "num_examples": 50_000,
        "expected_batch_size": 511,
        "noise_multiplier": 1.9,
        "steps": 1234,
        "delta": 1e-5,
    }
    whole = plan_mechanism(**asked)
    with pytest.MonkeyPatch.context() as patch, limited_effort(60.0):
        patch.setattr(effort, "SPARE_SHARE", 0.0)
        from tan_core.accounting.calibrate import _least_noise
        from tan_core.accounting.price import _price

        _price.cache_clear()
        _least_noise.cache_clear()
        plan = plan_mechanism(**asked)

    assert plan.privacy.epsilon == whole.privacy.epsilon
    assert plan.privacy.epsilon_reserved == whole.privacy.epsilon_reserved
    assert plan.privacy.epsilon_by_accountant[Accountant.RDP] is None
    assert any("rdp was stopped" in warning for warning in plan.warnings)
    assert [each.reference for each in plan.step_candidates] == [True]
    assert plan.search_privacy.epsilon_if_accounted is None
    assert "was stopped" in plan.search_privacy.note
