from collections.abc import Callable
from dataclasses import replace

import pytest

from tan_core.accounting import price
from tan_core.errors import ParameterError
from tan_core.mechanism import Mechanism
from tan_core.tan import (
    Setting,
    keep_epochs,
    scale_batch,
    trade_steps_for_batch,
    trade_steps_for_noise,
)

CIFAR = Setting(expected_batch_size=4096, noise_multiplier=3.0, steps=2500, learning_rate=4.0)
AVERAGED = replace(CIFAR, ema_decay=0.99, warmup_steps=100)
Move = Callable[..., Setting]


class TestMoves:
    def test_the_simulation_scales_batch_and_noise_and_leaves_the_rest(self) -> None:
        assert scale_batch(CIFAR, scale_factor=16) == Setting(
            expected_batch_size=256, noise_multiplier=0.1875, steps=2500, learning_rate=4.0
        )

    def test_doubling_the_batch_takes_a_quarter_of_the_steps(self) -> None:
        assert trade_steps_for_batch(CIFAR, steps=625) == Setting(
            expected_batch_size=8192, noise_multiplier=3.0, steps=625, learning_rate=16.0
        )

    def test_doubling_the_noise_takes_four_times_the_steps(self) -> None:
        assert trade_steps_for_noise(CIFAR, steps=10_000) == Setting(
            expected_batch_size=4096, noise_multiplier=6.0, steps=10_000, learning_rate=1.0
        )

    def test_constant_epochs_scale_the_noise_by_a_root(self) -> None:
        moved = keep_epochs(CIFAR, steps=1250)

        assert (moved.expected_batch_size, moved.learning_rate) == (8192, 8.0)
        assert moved.noise_multiplier == pytest.approx(4.2426, abs=1e-4)

    @pytest.mark.parametrize(
        ("steps", "batch", "learning_rate"),
        [(9000, 724, 64), (18_000, 512, 32), (72_000, 256, 8), (288_000, 128, 2)],
    )
    def test_the_ladder_of_the_paper_comes_out_exactly(
        self, steps: int, batch: int, learning_rate: float
    ) -> None:
        """Sander et al. (2023), Table 3, whose 756 in the first row is 9 % off constant TAN."""
        start = Setting(
            expected_batch_size=256, noise_multiplier=2.5 / 64, steps=72_000, learning_rate=8.0
        )

        moved = trade_steps_for_batch(start, steps=steps)

        assert moved.learning_rate == learning_rate
        assert round(moved.expected_batch_size) == batch
        assert moved.noise_multiplier == 2.5 / 64

    @pytest.mark.parametrize(
        ("moved", "batch", "sigma", "epsilon", "tolerance"),
        [
            (CIFAR, 4096, 3, 6.579, 0.01),
            (scale_batch(CIFAR, scale_factor=1 / 2), 8192, 6, 6.382, 0.01),
            (scale_batch(CIFAR, scale_factor=2), 2048, 1.5, 7.399, 0.01),
            (scale_batch(CIFAR, scale_factor=4), 1024, 0.75, 12.444, 0.01),
            (scale_batch(CIFAR, scale_factor=8), 512, 0.375, 55.66, 0.1),
            (scale_batch(CIFAR, scale_factor=16), 256, 0.1875, 298.6, 0.5),
            (trade_steps_for_batch(CIFAR, steps=625), 8192, 3, 6.624, 0.01),
            (trade_steps_for_batch(CIFAR, steps=10_000), 2048, 3, 6.550, 0.01),
            (trade_steps_for_noise(CIFAR, steps=10_000), 4096, 6, 6.371, 0.01),
            (keep_epochs(CIFAR, steps=5000), 2048, 2.1213, 6.814, 0.01),
            (keep_epochs(CIFAR, steps=1250), 8192, 4.2426, 6.461, 0.01),
        ],
    )
    def test_what_each_move_costs(
        self, moved: Setting, batch: float, sigma: float, epsilon: float, tolerance: float
    ) -> None:
        """Epsilons of an independent run of the PLD accountant, at delta = 1e-5 and N = 50,000."""
        run = Mechanism(
            sampling_rate=moved.expected_batch_size / 50_000,
            noise_multiplier=moved.noise_multiplier,
            clip_norm=1.0,
            steps=moved.steps,
        )

        assert moved.expected_batch_size == pytest.approx(batch)
        assert moved.noise_multiplier == pytest.approx(sigma, abs=1e-4)
        assert price([run], delta=1e-5).epsilon == pytest.approx(epsilon, abs=tolerance)


class TestWhatIsCountedInSteps:
    @pytest.mark.parametrize("move", [trade_steps_for_batch, trade_steps_for_noise, keep_epochs])
    def test_follows_the_steps(self, move: Move) -> None:
        moved = move(AVERAGED, steps=625)

        assert moved.warmup_steps == 25
        assert moved.ema_decay == pytest.approx(0.96)

    def test_is_untouched_by_the_simulation(self) -> None:
        simulated = scale_batch(AVERAGED, scale_factor=16)

        assert (simulated.ema_decay, simulated.warmup_steps) == (0.99, 100)

    def test_an_average_shorter_than_a_step_is_the_last_weights(self) -> None:
        assert trade_steps_for_noise(AVERAGED, steps=25).ema_decay == 0
        assert trade_steps_for_noise(AVERAGED, steps=26).ema_decay == pytest.approx(1 / 26)

    @pytest.mark.parametrize("off", [None, 0.0])
    def test_no_average_stays_none_over_more_steps(self, off: float | None) -> None:
        assert trade_steps_for_noise(replace(AVERAGED, ema_decay=off), steps=9999).ema_decay == off

    def test_no_warmup_stays_none(self) -> None:
        assert trade_steps_for_noise(CIFAR, steps=10_000).warmup_steps is None


class TestSetting:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("steps", 0),
            ("expected_batch_size", -1),
            ("noise_multiplier", 0.0),
            ("learning_rate", float("nan")),
            ("ema_decay", 1.0),
            ("ema_decay", -0.1),
            ("ema_decay", float("nan")),
            ("warmup_steps", 2501),
            ("warmup_steps", -1),
        ],
    )
    def test_a_value_outside_its_domain_is_refused_by_name(self, field: str, value: float) -> None:
        with pytest.raises(ParameterError, match=f"{field} must be .* got {value!r}") as refusal:
            replace(CIFAR, **{field: value})

        assert refusal.value.field == field

    def test_a_move_to_no_steps_is_refused_by_name(self) -> None:
        with pytest.raises(ParameterError, match="steps"):
            trade_steps_for_batch(CIFAR, steps=0)
