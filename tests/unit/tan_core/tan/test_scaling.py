import pytest

from tan_core.errors import ParameterError
from tan_core.mechanism import Mechanism
from tan_core.tan import (
    Setting,
    keep_epochs,
    overcharge,
    scale_batch,
    signal_to_noise,
    total_noise,
    trade_steps_for_batch,
    trade_steps_for_noise,
)

CIFAR = Setting(expected_batch_size=4096, noise_multiplier=3.0, steps=2500, learning_rate=4.0)


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
        ("steps", "learning_rate"), [(9000, 64), (18_000, 32), (72_000, 8), (288_000, 2)]
    )
    def test_the_ladder_of_the_paper_comes_out_exactly(
        self, steps: int, learning_rate: float
    ) -> None:
        """Sander et al. (2023), Table 3."""
        start = Setting(
            expected_batch_size=256, noise_multiplier=2.5 / 64, steps=72_000, learning_rate=8.0
        )

        assert trade_steps_for_batch(start, steps=steps).learning_rate == learning_rate

    def test_a_setting_outside_its_domain_is_refused_by_name(self) -> None:
        with pytest.raises(ParameterError, match="steps"):
            trade_steps_for_batch(CIFAR, steps=0)


class TestNoise:
    def test_total_noise_is_the_inverse_of_signal_to_noise(self) -> None:
        shape = {"sampling_rate": 0.08192, "noise_multiplier": 3.0, "steps": 2500}

        assert total_noise(**shape) * signal_to_noise(**shape) == pytest.approx(1)

    @pytest.mark.parametrize(("batch", "sigma", "ratio"), [(4096, 3.0, 1.044), (1024, 0.75, 1.974)])
    def test_overcharge_grows_left_of_the_wall(
        self, batch: int, sigma: float, ratio: float
    ) -> None:
        run = Mechanism(
            sampling_rate=batch / 50_000, noise_multiplier=sigma, clip_norm=1.0, steps=2500
        )

        assert overcharge(run, delta=1e-5) == pytest.approx(ratio, abs=3e-3)
