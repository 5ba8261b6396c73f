"""Learning rates: torch's curves, read in the middle of each step."""

import doctest
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tan_core.errors import ParameterError
from tan_core.spec import schedules
from tan_core.spec.schedules import scheduled_learning_rate
from tan_core.spec.train import Schedule, TrainerConfig

fractions = st.floats(0, 0.95)
warmups = st.one_of(st.just(0.0), st.floats(0.05, 0.9))
num_steps = st.integers(20, 300)
kinds = st.sampled_from(list(Schedule))


def rates(steps: int, **fields) -> list[float]:
    config = TrainerConfig.model_validate(fields)
    return [scheduled_learning_rate(config, step=t, steps=steps) for t in range(steps)]


def rates_of_torch(steps: int, make_scheduler) -> list[float]:
    """Two ticks of torch's scheduler to a step; the odd ones are the middles."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=3.0)
    scheduler = make_scheduler(optimizer, 2 * steps)
    ticks = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it wants optimizer.step() in between
        for _ in range(2 * steps):
            ticks.append(scheduler.get_last_lr()[0])
            scheduler.step()
    return ticks[1::2]


class TestCurve:
    @given(final=fractions, steps=num_steps)
    def test_linear_is_that_of_torch(self, final: float, steps: int) -> None:
        final = max(final, 1e-9)
        expected = rates_of_torch(
            steps,
            lambda optimizer, ticks: torch.optim.lr_scheduler.LinearLR(
                optimizer, start_factor=1.0, end_factor=final, total_iters=ticks
            ),
        )

        found = rates(
            steps, learning_rate=3.0, schedule="linear", final_learning_rate_fraction=final
        )

        assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)

    @given(final=fractions, steps=num_steps)
    def test_cosine_is_that_of_torch(self, final: float, steps: int) -> None:
        expected = rates_of_torch(
            steps,
            lambda optimizer, ticks: torch.optim.lr_scheduler.CosineAnnealingLR(
                optimizer, T_max=ticks, eta_min=3.0 * final
            ),
        )

        found = rates(
            steps, learning_rate=3.0, schedule="cosine", final_learning_rate_fraction=final
        )

        assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)

    def test_a_warm_up_rises_in_proportion_and_then_the_whole_curve_follows(self) -> None:
        found = rates(20, learning_rate=8.0, schedule="linear", warmup_fraction=0.2)

        assert found[:4] == pytest.approx([1, 3, 5, 7])
        assert found[4:] == pytest.approx(rates(16, learning_rate=8.0, schedule="linear"))

    @pytest.mark.parametrize("learning_rate", [1 / 3, 0.1, 7.7e8])
    def test_the_default_is_the_learning_rate_itself(self, learning_rate: float) -> None:
        assert set(rates(17, learning_rate=learning_rate)) == {learning_rate}

    @given(schedule=kinds, warmup=fractions, final=fractions, steps=st.integers(1, 10**7))
    def test_every_rate_is_above_zero_and_at_most_the_whole(
        self, schedule, warmup: float, final: float, steps: int
    ) -> None:
        config = TrainerConfig(
            schedule=schedule, warmup_fraction=warmup, final_learning_rate_fraction=final
        )

        for step in {0, steps // 2, steps - 1}:
            assert 0 < scheduled_learning_rate(config, step=step, steps=steps) <= 1


class TestConstantTan:
    @given(schedule=kinds, warmup=warmups, final=fractions, steps=num_steps)
    def test_the_rates_sum_to_the_same_at_any_number_of_steps(
        self, schedule, warmup: float, final: float, steps: int
    ) -> None:
        """The area below the curve: half the warm-up, then the mean of both ends."""
        settled = 1.0 if schedule is Schedule.CONSTANT else (1 + final) / 2
        area = warmup / 2 + (1 - warmup) * settled

        found = rates(
            steps,
            learning_rate=5.0 / steps,
            schedule=schedule,
            warmup_fraction=warmup,
            final_learning_rate_fraction=final,
        )

        # Of the middle rule: a kink costs a jump in slope / 8S², a curve its second derivative / 24S².
        assert sum(found) / 5.0 == pytest.approx(area, abs=6 / steps**2)


class TestArguments:
    @pytest.mark.parametrize("step", [-1, 4])
    def test_a_step_outside_the_run_is_refused(self, step: int) -> None:
        with pytest.raises(ParameterError, match=r"step must be in \[0, 4\)"):
            scheduled_learning_rate(TrainerConfig(), step=step, steps=4)


def test_the_example_gives_what_it_shows() -> None:
    assert doctest.testmod(schedules).attempted > 0
    assert doctest.testmod(schedules).failed == 0
