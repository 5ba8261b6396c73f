import math
from dataclasses import replace
from typing import Any

import pytest

from tan_core.accounting import (
    calibrate,
    calibrate_noise_multiplier,
    calibrate_sampling_rate,
    calibrate_steps,
    gdp_mu,
    price,
)
from tan_core.errors import ParameterError, UnreachableTargetError
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation, Sampling


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
        """The published CIFAR-10 and ImageNet settings, by another implementation."""
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
            for relation in (
                NeighboringRelation.ADD_OR_REMOVE_ONE,
                NeighboringRelation.REPLACE_ONE,
            )
        )

        assert 1.8 < replacing / removing < 2.1

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "shape",
        [
            {"neighboring_relation": NeighboringRelation.ZERO_OUT},
            {
                "sampling": Sampling.UNAMPLIFIED,
                "neighboring_relation": NeighboringRelation.ZERO_OUT,
            },
            {
                "sampling": Sampling.TRUNCATED_POISSON,
                "neighboring_relation": NeighboringRelation.ZERO_OUT,
                "num_examples": 10_000,
                "max_batch_size": 1100,
            },
            {
                "sampling": Sampling.FIXED_SIZE,
                "neighboring_relation": NeighboringRelation.REPLACE_ONE,
                "num_examples": 10_000,
                "accountant": Accountant.RDP,
            },
        ],
        ids=["zero-out", "unamplified", "truncated", "fixed-size"],
    )
    def test_meets_the_target_under_every_way_of_drawing(self, shape: dict[str, Any]) -> None:
        sigma = calibrate_noise_multiplier(
            sampling_rate=0.1, steps=200, epsilon=3.0, delta=1e-6, **shape
        )

        accountant = shape.pop("accountant", Accountant.PLD)
        run = Mechanism(
            sampling_rate=0.1, noise_multiplier=sigma, clip_norm=1.0, steps=200, **shape
        )
        assert 2.997 <= price([run], delta=1e-6, accountant=accountant).epsilon <= 3.0

    @pytest.mark.parametrize(
        "target",
        [
            {"sampling_rate": 0.0128, "steps": 18_000, "epsilon": 4.0, "delta": 8e-7},
            {"sampling_rate": 512 / 1_281_167, "steps": 501, "epsilon": 1.0, "delta": 1e-6},
            {"sampling_rate": 0.5, "steps": 100, "epsilon": 10.0, "delta": 1e-5},
            {"sampling_rate": 1.0, "steps": 100, "epsilon": 2.0, "delta": 1e-5},
        ],
        ids=["cifar", "behind the wall", "half the data", "all of it"],
    )
    def test_a_plan_that_is_not_certified_is_within_a_thousandth_all_the_same(
        self, target: dict[str, Any]
    ) -> None:
        sigma = calibrate_noise_multiplier(**target, certified=False)

        run = Mechanism(
            sampling_rate=target["sampling_rate"],
            noise_multiplier=sigma,
            clip_norm=1.0,
            steps=target["steps"],
        )
        assert price([run], delta=target["delta"]).epsilon == pytest.approx(
            target["epsilon"], rel=1e-3
        )

    def test_a_cap_that_cuts_often_is_paid_for_though_whole_batches_were_the_start(self) -> None:
        shape = {
            "sampling": Sampling.TRUNCATED_POISSON,
            "neighboring_relation": NeighboringRelation.ZERO_OUT,
            "num_examples": 10_000,
            "max_batch_size": 1000,
        }

        sigma = calibrate_noise_multiplier(
            sampling_rate=0.1, steps=200, epsilon=3.0, delta=1e-6, certified=False, **shape
        )

        run = Mechanism(
            sampling_rate=0.1, noise_multiplier=sigma, clip_norm=1.0, steps=200, **shape
        )
        assert 2.997 <= price([run], delta=1e-6).epsilon <= 3.0

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("epsilon", 0),
            ("epsilon", -1.0),
            ("epsilon", float("nan")),
            ("epsilon", float("inf")),
            ("epsilon", "3"),
            ("epsilon", True),
            ("epsilon", 1e300),
            ("delta", 0.0),
            ("delta", 1.0),
            ("delta", 1e-300),
            ("steps", 0),
            ("steps", 2.5),
            ("steps", 10**30),
            ("sampling_rate", 0.0),
            ("sampling_rate", 1.5),
            ("sampling_rate", None),
            ("low", -1.0),
            ("high", 0.001),
        ],
    )
    def test_a_bad_argument_is_refused_by_its_name(self, field: str, value: object) -> None:
        good = {"sampling_rate": 0.1, "steps": 100, "epsilon": 1.0, "delta": 1e-5}

        with pytest.raises(ParameterError, match=field) as caught:
            calibrate_noise_multiplier(**{**good, field: value})

        assert caught.value.field == field

    def test_a_target_below_reach_says_what_can_be_reached(self) -> None:
        with pytest.raises(UnreachableTargetError, match=r"the smallest is .* 10000") as caught:
            calibrate_noise_multiplier(sampling_rate=0.5, steps=100, epsilon=1e-4, delta=1e-7)

        assert caught.value.field == "privacy.epsilon"

    @pytest.mark.slow
    def test_a_rate_that_shows_nothing_reaches_no_target(self) -> None:
        with pytest.raises(UnreachableTargetError, match=r"the largest is 0\b"):
            calibrate_noise_multiplier(sampling_rate=1e-200, steps=100, epsilon=1.0, delta=1e-5)

    @pytest.mark.slow
    def test_a_target_above_reach_says_what_can_be_reached(self) -> None:
        with pytest.raises(UnreachableTargetError, match=r"the largest is 0\b"):
            calibrate_noise_multiplier(sampling_rate=1e-6, steps=1, epsilon=5.0, delta=1e-5)

    @pytest.mark.slow
    def test_the_least_that_may_be_considered_is_the_answer_where_it_meets_the_target(self) -> None:
        easy = {"sampling_rate": 0.01, "steps": 1000, "epsilon": 8.0, "delta": 1e-5}

        assert calibrate_noise_multiplier(**easy, low=5.0) == 5.0
        assert calibrate_noise_multiplier(**easy, low=0.1) == calibrate_noise_multiplier(**easy)


class TestCalibrateSteps:
    @pytest.mark.slow
    def test_runs_of_millions_of_tiny_steps_are_found(self) -> None:
        """Where round-off adds up, two accountants seemed to differ in the middle of the search."""
        found = calibrate_steps(sampling_rate=1e-4, noise_multiplier=4.0, epsilon=0.2, delta=1e-5)

        mu = gdp_mu(epsilon=0.2, delta=1e-5)
        limit = mu**2 / (1e-8 * math.expm1(1 / 16))
        assert 0.99 * limit <= found <= limit

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

    @pytest.mark.parametrize(
        ("accountant", "expected"), [(Accountant.PLD, 155), (Accountant.PRV, 155)]
    )
    def test_reproduces_the_steps_of_a_published_pair(
        self, accountant: Accountant, expected: int
    ) -> None:
        """The accounting example of JAX-Privacy's documents: epsilon 2, T = 155."""
        found = calibrate_steps(
            sampling_rate=0.1,
            noise_multiplier=3.0,
            epsilon=2.0,
            delta=1e-6,
            accountant=accountant,
        )

        assert found == expected

    def test_stops_at_the_most_that_was_asked_about(self) -> None:
        found = calibrate_steps(
            sampling_rate=0.001,
            noise_multiplier=30.0,
            epsilon=50.0,
            delta=1e-6,
            max_steps=20_000,
        )

        assert found == 20_000

    def test_a_step_that_is_too_dear_is_refused(self) -> None:
        with pytest.raises(UnreachableTargetError, match="one step"):
            calibrate_steps(sampling_rate=1.0, noise_multiplier=0.5, epsilon=0.1, delta=1e-5)


class TestCalibrateSamplingRate:
    def test_inverts_the_price(self) -> None:
        rate = calibrate_sampling_rate(noise_multiplier=3.0, steps=2500, epsilon=6.0, delta=1e-5)

        run = Mechanism(sampling_rate=rate, noise_multiplier=3.0, clip_norm=1.0, steps=2500)
        assert 5.994 <= price([run], delta=1e-5).epsilon <= 6.0

    def test_is_the_full_batch_where_the_target_allows_it(self) -> None:
        found = calibrate_sampling_rate(noise_multiplier=300.0, steps=25, epsilon=6.0, delta=1e-5)

        assert found == 1.0

    @pytest.mark.parametrize(
        ("noise_multiplier", "epsilon", "delta", "expected"),
        [
            (0.2, 3.0, 1e-5, 2.827230626e-5),
            (0.15, 20.0, 1e-5, 8.766417429e-5),
            (0.1, 8.0, 1e-6, 1.003448096e-6),
        ],
    )
    def test_one_step_of_little_noise_is_known_exactly(
        self, noise_multiplier: float, epsilon: float, delta: float, expected: float
    ) -> None:
        """The root in q of q delta_G(log(1 + (e^epsilon - 1) / q)) = delta, by mpmath to 40 digits."""
        rate = calibrate_sampling_rate(
            noise_multiplier=noise_multiplier, steps=1, epsilon=epsilon, delta=delta
        )

        assert 0.998 * expected <= rate <= expected

    @pytest.mark.parametrize(
        ("noise_multiplier", "steps", "epsilon"), [(0.1, 100, 8.0), (0.2, 100, 3.0), (0.24, 9, 0.5)]
    )
    def test_asks_the_accountant_a_few_times_where_noise_is_little(
        self,
        noise_multiplier: float,
        steps: int,
        epsilon: float,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        asked: list[Mechanism] = []

        def counting(mechanisms: list[Mechanism], **what: Any) -> Any:
            asked.extend(mechanisms)
            return price(mechanisms, **what)

        monkeypatch.setattr(calibrate, "price", counting)

        rate = calibrate_sampling_rate(
            noise_multiplier=noise_multiplier, steps=steps, epsilon=epsilon, delta=1e-5
        )

        run = replace(asked[0], sampling_rate=rate)
        assert 0.999 * epsilon <= price([run], delta=1e-5).epsilon <= epsilon
        assert len(asked) <= 4

    @pytest.mark.slow
    @pytest.mark.parametrize("noise_multiplier", [0.03, 0.06])
    def test_asks_twice_where_epsilon_jumps_with_the_rate(
        self, noise_multiplier: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each price takes seconds: one rate that fits, and one a hundred-thousandth above that does not."""
        asked: list[tuple[float, float]] = []

        def counting(mechanisms: list[Mechanism], **what: Any) -> Any:
            [mechanism] = mechanisms
            found = price(mechanisms, **what)
            asked.append((mechanism.sampling_rate, found.epsilon))
            return found

        monkeypatch.setattr(calibrate, "price", counting)

        rate = calibrate_sampling_rate(
            noise_multiplier=noise_multiplier, steps=1000, epsilon=1.0, delta=1e-5
        )

        (fits, little), (exceeds, much) = asked
        assert rate == pytest.approx(fits, rel=1e-12)
        assert fits < exceeds <= fits * (1 + 1.1e-5)
        assert little <= 1.0 < much

    @pytest.mark.parametrize("guess", [0.1, 2.0, 50.0])
    def test_stops_where_epsilon_jumps_on_the_side_that_fits(self, guess: float) -> None:
        """As where a step of very little noise hides its unit or shows it."""

        def cost(x: float) -> float:
            return 200.0 / x if x < math.pi else 0.0

        found = calibrate._cheapest(
            cost, 1.0, guess=guess, low=0.02, high=1e4, window=calibrate._MET
        )

        assert math.pi <= found <= math.pi * (1 + 1e-6)


class TestPublishedPairs:
    @pytest.mark.parametrize(
        ("sampling_rate", "steps", "epsilon", "delta", "expected"),
        [
            (0.1, 512, 1.0, 1e-6, 9.66),  # JAX-Privacy's documents
            (2048 / 60_000, 1160, 3.0, 1e-5, 1.801),
            (8192 / 60_000, 300, 1.0, 1e-5, 8.935),
            (1024 / 60_000, 2340, 8.0, 1e-5, 0.813),
        ],
    )
    def test_noise_is_inverted_to_a_thousandth(
        self, sampling_rate: float, steps: int, epsilon: float, delta: float, expected: float
    ) -> None:
        found = calibrate_noise_multiplier(
            sampling_rate=sampling_rate, steps=steps, epsilon=epsilon, delta=delta
        )

        assert found == pytest.approx(expected, rel=1e-3)

    @pytest.mark.parametrize(
        ("batch", "num_examples", "sigma", "steps"),
        [
            (4096, 50_000, 3.0, 2500),
            (4096, 50_000, 10.0, 875),
            (4096, 50_000, 9.3, 875),
            (16_384, 50_000, 40.0, 906),
            (512, 60_000, 1.23, 4680),
            (32_768, 1_281_167, 2.5, 18_000),
        ],
    )
    def test_hardly_more_noise_is_added_than_a_price_was_of(
        self, batch: int, num_examples: int, sigma: float, steps: int
    ) -> None:
        """Rows of the golden table: the window below the target is ten times as wide, and its near end is found."""
        shape = {"sampling_rate": batch / num_examples, "steps": steps}
        run = Mechanism(**shape, noise_multiplier=sigma, clip_norm=1.0)
        epsilon = price([run], delta=1e-5).epsilon

        found = calibrate_noise_multiplier(**shape, epsilon=epsilon, delta=1e-5)

        assert sigma <= found <= sigma * (1 + 2e-4)


def test_noise_is_found_where_a_search_looks_at_so_little_that_it_has_no_price() -> None:
    """Under replace_one it begins far away."""
    asked = {"sampling_rate": 5e-4, "steps": 2000, "neighboring_relation": "replace_one"}

    sigma = calibrate_noise_multiplier(**asked, epsilon=3.0, delta=1e-6)

    run = Mechanism(**asked, noise_multiplier=sigma, clip_norm=1.0)
    assert 3.0 * (1 - 1e-3) <= price([run], delta=1e-6).epsilon <= 3.0
