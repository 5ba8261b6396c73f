import pytest

from tan_core.accounting import calibrate_noise_multiplier, calibrate_steps, price
from tan_core.errors import UnreachableTargetError
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation


class TestCalibrateNoiseMultiplier:
    @pytest.mark.parametrize(
        ("batch", "num_examples", "steps", "delta", "accountant", "expected"),
        [
            (4096, 50_000, 2500, 1e-5, Accountant.PLD, 2.5764),
            (4096, 50_000, 2500, 1e-5, Accountant.RDP, 2.730),
            (32_768, 1_281_167, 18_000, 8e-7, Accountant.PLD, 2.3737),
            (32_768, 1_281_167, 18_000, 8e-7, Accountant.RDP, 2.495),
        ],
    )
    def test_reproduces_the_noise_for_epsilon_eight(
        self,
        batch: int,
        num_examples: int,
        steps: int,
        delta: float,
        accountant: Accountant,
        expected: float,
    ) -> None:
        """LEDGER A3."""
        found = calibrate_noise_multiplier(
            sampling_rate=batch / num_examples,
            steps=steps,
            epsilon=8.0,
            delta=delta,
            accountant=accountant,
        )

        assert found == pytest.approx(expected, rel=1e-3)

    @pytest.mark.parametrize("accountant", [Accountant.PRV, Accountant.RDP])
    def test_meets_the_target_by_the_accountant_that_was_named(
        self, accountant: Accountant
    ) -> None:
        sigma = calibrate_noise_multiplier(
            sampling_rate=0.02, steps=500, epsilon=2.0, delta=1e-5, accountant=accountant
        )

        run = Mechanism(sampling_rate=0.02, noise_multiplier=sigma, clip_norm=1.0, steps=500)
        assert 1.998 <= price([run], delta=1e-5, accountant=accountant).epsilon <= 2.0

    def test_replacing_one_needs_about_twice_the_noise(self) -> None:
        removing, replacing = (
            calibrate_noise_multiplier(
                sampling_rate=0.08192,
                steps=2500,
                epsilon=8.0,
                delta=1e-5,
                neighboring_relation=relation,
            )
            for relation in NeighboringRelation
        )

        assert 1.8 < replacing / removing < 2.1

    def test_a_target_below_reach_says_what_can_be_reached(self) -> None:
        with pytest.raises(UnreachableTargetError, match=r"the smallest is .* 10000") as caught:
            calibrate_noise_multiplier(sampling_rate=0.5, steps=100, epsilon=1e-4, delta=1e-7)

        assert caught.value.field == "privacy.epsilon"

    def test_a_target_above_reach_says_what_can_be_reached(self) -> None:
        with pytest.raises(UnreachableTargetError, match=r"the largest is 0\b"):
            calibrate_noise_multiplier(sampling_rate=1e-6, steps=1, epsilon=5.0, delta=1e-5)


class TestCalibrateSteps:
    def test_one_more_step_would_exceed_the_target(self) -> None:
        steps = calibrate_steps(
            sampling_rate=0.08192, noise_multiplier=3.0, epsilon=6.0, delta=1e-5
        )

        cost = [
            price(
                [
                    Mechanism(
                        sampling_rate=0.08192, noise_multiplier=3.0, clip_norm=1.0, steps=count
                    )
                ],
                delta=1e-5,
            ).epsilon
            for count in (steps, steps + 1)
        ]
        assert cost[0] <= 6.0 < cost[1]

    def test_a_step_that_is_too_dear_is_refused(self) -> None:
        with pytest.raises(UnreachableTargetError, match="one step"):
            calibrate_steps(sampling_rate=1.0, noise_multiplier=0.5, epsilon=0.1, delta=1e-5)
