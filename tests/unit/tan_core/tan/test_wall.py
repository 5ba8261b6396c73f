import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tan_core.accounting import gdp_epsilon, price
from tan_core.errors import ParameterError, UnsupportedEventError
from tan_core.mechanism import Mechanism, NeighboringRelation, Sampling
from tan_core.tan import (
    constant_tan_curve,
    epsilon_tan,
    limit_epsilon,
    overcharge,
    signal_to_noise,
    wall,
)

TABLE = Path(__file__).parents[3] / "golden" / "tan_wall.csv"
with TABLE.open(newline="") as _file:
    ROWS = list(csv.DictReader(_file))

CIFAR = Mechanism(sampling_rate=0.08192, noise_multiplier=3.0, clip_norm=1.0, steps=2500)
SMALL_BATCH = replace(CIFAR, sampling_rate=0.02048, noise_multiplier=0.75)


class TestConstantTanCurve:
    @pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
    def test_reproduces_the_golden_table(self, row: dict[str, str]) -> None:
        """Found with other grids and another implementation of PLD; CIFAR-10 and ImageNet by batch."""
        eta, steps, sigma = (float(row["signal_to_noise"]), int(row["steps"]), 2.0)
        reference = Mechanism(
            sampling_rate=eta * sigma * math.sqrt(2 / steps),
            noise_multiplier=sigma,
            clip_norm=1.0,
            steps=steps,
        )
        asked = float(row["noise_multiplier"])

        (point,) = constant_tan_curve(
            reference, delta=float(row["delta"]), noise_multipliers=[asked]
        )

        assert point.epsilon == pytest.approx(float(row["epsilon"]), abs=float(row["tolerance"]))
        assert point.noise_multiplier == asked
        assert point.scale_factor == sigma / asked

    def test_every_point_has_the_total_noise_of_the_reference(self) -> None:
        eta = signal_to_noise(sampling_rate=0.08192, noise_multiplier=3.0, steps=2500)

        for point in constant_tan_curve(CIFAR, delta=1e-5, noise_multipliers=[0.5, 2.0, 7.0]):
            assert signal_to_noise(
                sampling_rate=point.sampling_rate,
                noise_multiplier=point.noise_multiplier,
                steps=2500,
            ) == pytest.approx(eta, rel=1e-12)
            assert point.epsilon_tan == epsilon_tan(signal_to_noise=eta, delta=1e-5)

    def test_the_point_of_the_reference_is_the_reference(self) -> None:
        (point,) = constant_tan_curve(CIFAR, delta=1e-5, noise_multipliers=[3.0])

        assert point.sampling_rate == CIFAR.sampling_rate
        assert point.epsilon == price([CIFAR], delta=1e-5).epsilon
        assert point.overcharge == overcharge(CIFAR, delta=1e-5)

    def test_points_above_the_full_batch_are_left_out(self) -> None:
        full = 3.0 / 0.08192

        points = constant_tan_curve(
            CIFAR, delta=1e-5, noise_multipliers=[full * 1.001, full, full * 0.9]
        )

        assert [point.sampling_rate for point in points] == pytest.approx([1.0, 0.9])
        assert points[0].overcharge == pytest.approx(1.0, abs=1e-3)

    def test_the_full_batch_is_a_point_whatever_the_round_off(self) -> None:
        """0.3 times (0.7 / 0.3) / 0.7 is above 1."""
        run = Mechanism(sampling_rate=0.3, noise_multiplier=0.7, clip_norm=1.0, steps=1)

        (point,) = constant_tan_curve(run, delta=1e-5, noise_multipliers=[0.7 / 0.3])

        assert point.sampling_rate == 1

    def test_a_point_that_cannot_be_priced_says_so(self) -> None:
        (point,) = constant_tan_curve(CIFAR, delta=1e-5, noise_multipliers=[1e-6])

        assert point.scale_factor == pytest.approx(3e6)
        assert point.epsilon is None
        assert point.overcharge is None

    def test_a_noise_multiplier_of_zero_is_refused_by_name(self) -> None:
        with pytest.raises(ParameterError, match=r"noise_multiplier must be .* got 0"):
            constant_tan_curve(CIFAR, delta=1e-5, noise_multipliers=[1.0, 0])


class TestOvercharge:
    @pytest.mark.parametrize(("mechanism", "ratio"), [(CIFAR, 1.044), (SMALL_BATCH, 1.974)])
    def test_grows_left_of_the_wall(self, mechanism: Mechanism, ratio: float) -> None:
        assert overcharge(mechanism, delta=1e-5) == pytest.approx(ratio, abs=3e-3)

    @pytest.mark.parametrize(
        ("relation", "moved"),
        [
            (NeighboringRelation.ADD_OR_REMOVE_ONE, 1),
            (NeighboringRelation.ZERO_OUT, 1),
            (NeighboringRelation.REPLACE_ONE, 2),
        ],
    )
    def test_the_full_batch_is_never_overcharged(
        self, relation: NeighboringRelation, moved: int
    ) -> None:
        full = Mechanism(
            sampling_rate=1.0,
            noise_multiplier=20.0,
            clip_norm=1.0,
            steps=100,
            neighboring_relation=relation,
        )
        exact = gdp_epsilon(mu=moved * math.sqrt(100) / 20, delta=1e-5)

        assert price([full], delta=1e-5).epsilon == pytest.approx(exact, rel=2e-3)
        assert overcharge(full, delta=1e-5) == pytest.approx(1.0, abs=2e-3)

    def test_is_infinite_where_only_the_limit_costs_nothing(self) -> None:
        rare = Mechanism(sampling_rate=1e-5, noise_multiplier=0.1, clip_norm=1.0, steps=100)

        assert overcharge(rare, delta=5e-4) == math.inf

    def test_is_one_where_delta_covers_the_mechanism_too(self) -> None:
        rare = Mechanism(sampling_rate=1e-5, noise_multiplier=0.1, clip_norm=1.0, steps=100)

        assert overcharge(rare, delta=0.5) == 1.0

    def test_what_a_cap_costs_is_part_of_it(self) -> None:
        free = replace(
            CIFAR,
            sampling_rate=0.01,
            steps=100,
            neighboring_relation=NeighboringRelation.ZERO_OUT,
        )
        capped = replace(
            free, sampling=Sampling.TRUNCATED_POISSON, num_examples=10_000, max_batch_size=120
        )
        costs = [price([each], delta=1e-5).epsilon for each in (free, capped)]

        assert costs[1] > 1.01 * costs[0]
        assert overcharge(capped, delta=1e-5) == pytest.approx(
            overcharge(free, delta=1e-5) * costs[1] / costs[0]
        )

    def test_other_sampling_than_poisson_is_refused_by_name(self) -> None:
        shuffled = replace(CIFAR, sampling=Sampling.UNAMPLIFIED)

        with pytest.raises(UnsupportedEventError, match="poisson, got unamplified"):
            overcharge(shuffled, delta=1e-5)
        with pytest.raises(UnsupportedEventError, match="poisson, got unamplified"):
            limit_epsilon(shuffled, delta=1e-5)
        with pytest.raises(UnsupportedEventError, match="poisson, got unamplified"):
            constant_tan_curve(shuffled, delta=1e-5, noise_multipliers=[1.0])
        with pytest.raises(UnsupportedEventError, match="poisson, got unamplified"):
            wall(shuffled, delta=1e-5)


class TestWall:
    @pytest.mark.parametrize("tolerance", [1.02, 1.10, 2.0])
    def test_is_where_the_overcharge_passes_the_tolerance(self, tolerance: float) -> None:
        sigma = wall(CIFAR, delta=1e-5, tolerance=tolerance)

        at, left = constant_tan_curve(
            CIFAR, delta=1e-5, noise_multipliers=[sigma, sigma * (1 - 5e-3)]
        )
        assert at.overcharge is not None
        assert left.overcharge is not None
        assert at.overcharge <= tolerance < left.overcharge

    def test_lies_near_two_for_the_settings_of_the_paper(self) -> None:
        """Sander et al. (2023), Figure 2: epsilon is flat above a noise multiplier of 2."""
        imagenet = Mechanism(
            sampling_rate=32768 / 1_281_167, noise_multiplier=2.5, clip_norm=1.0, steps=18_000
        )

        assert wall(CIFAR, delta=1e-5) == pytest.approx(1.96, abs=0.02)
        assert wall(imagenet, delta=8e-7) == pytest.approx(1.86, abs=0.02)

    def test_few_steps_move_it_to_the_right(self) -> None:
        few = replace(CIFAR, steps=100, sampling_rate=CIFAR.sampling_rate * 5)

        assert wall(few, delta=1e-5) > wall(CIFAR, delta=1e-5) * 1.1

    def test_does_not_depend_on_the_point_it_is_asked_from(self) -> None:
        assert wall(SMALL_BATCH, delta=1e-5) == pytest.approx(wall(CIFAR, delta=1e-5), rel=2e-3)

    def test_is_found_where_it_lies_just_before_the_full_batch(self) -> None:
        """One step from half of the data: right of where the search begins, and no doubling of it."""
        half = Mechanism(sampling_rate=0.5, noise_multiplier=2.5, clip_norm=1.0, steps=1)

        sigma = wall(half, delta=1e-5, tolerance=1.01)

        at, left = constant_tan_curve(
            half, delta=1e-5, noise_multipliers=[sigma, sigma * (1 - 5e-3)]
        )
        assert 4 < sigma < 5
        assert at.overcharge <= 1.01 < left.overcharge

    def test_never_lies_beyond_the_full_batch(self) -> None:
        nearly_full = Mechanism(sampling_rate=0.5, noise_multiplier=0.8, clip_norm=1.0, steps=5)

        assert 0.8 < wall(nearly_full, delta=1e-5, tolerance=1.01) <= 1.6

    @pytest.mark.parametrize("tolerance", [1.0, 0.5, math.nan, math.inf])
    def test_a_tolerance_that_cannot_be_met_or_means_nothing_is_refused(
        self, tolerance: float
    ) -> None:
        with pytest.raises(ParameterError, match="tolerance must be in"):
            wall(CIFAR, delta=1e-5, tolerance=tolerance)
